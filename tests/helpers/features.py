"""A fake network, and tiny photographs, for tests of the cache of features."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from rectifier import LabelSpace
from rectifier.data.dataset import ImageData, ImageFiles

SIZE = (8, 8)
WEIGHTS = np.random.default_rng(0).normal(size=(SIZE[0] * SIZE[1] * 3, 4)).astype(np.float32)


@dataclass
class FakeNetwork:
    """Channel means and a fixed random projection; it counts the images that it sees."""

    key: str = "weights-1"
    size: tuple[int, int] = SIZE
    interpolation: str = "bilinear"
    described: str = "a fake network on no core"
    layers: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"last": (3,), "penultimate": (4,)})
    seen: int = 0
    stops_after: int | None = None  # images

    def __call__(self, pixels: Any) -> dict[str, Any]:
        if self.stops_after is not None and self.seen + len(pixels) > self.stops_after:
            raise KeyboardInterrupt
        self.seen += len(pixels)
        assert pixels.dtype == np.uint8
        assert pixels.shape[1:] == (*self.size, 3)
        flat = pixels.reshape(len(pixels), -1).astype(np.float32)
        last = flat.reshape(len(pixels), -1, 3).mean(1)
        every = {
            "last": last,
            "penultimate": flat @ WEIGHTS[: flat.shape[1]] / 255,
            "maps": last[:, :, None, None] / np.ones((2, 2)),
        }
        return {layer: every[layer].astype(np.float32) for layer in self.layers}


def maps(**options: Any) -> FakeNetwork:
    return FakeNetwork(layers={"maps": (3, 2, 2)}, **options)


def photographs(folder: Path, count: int, seed: int = 0, suffix: str = "png") -> ImageData:
    """Write random images of up to 8 x 8, and return them as data with two classes and all parts."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    paths = tuple(f"{number:04d}.{suffix}" for number in range(count))
    for path in paths:
        height, width = draw.integers(3, 9, 2)
        Image.fromarray(draw.integers(0, 256, (height, width, 3), np.uint8)).save(folder / path)
    return table_of(folder, paths)


def table_of(folder: Path, paths: Sequence[str]) -> ImageData:
    number = torch.arange(len(paths))
    space = LabelSpace.from_names({"kind": ["a", "b"]})
    split = torch.tensor([0, 0, 1, 2]).repeat(len(paths) // 4 + 1)[: len(paths)]
    return ImageData("photos", ImageFiles(folder, tuple(paths)), (number % 2)[:, None], space, split, tuple(paths))


def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()[:16]
