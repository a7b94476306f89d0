"""A few images on disk, and ways to look into their store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rectifier import LabelSpace
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.decode import decode
from rectifier.data.store.shards import StoredImages

SIZE = (10, 8)


def write_images(folder: Path, count: int = 20) -> ImageData:
    folder.mkdir()
    random = np.random.default_rng(0)
    names = tuple(f"{i:03d}.png" for i in range(count))
    for name in names:
        Image.fromarray(random.integers(0, 256, (12, 9, 3), np.uint8)).save(folder / name)
    space = LabelSpace.from_names({"kind": ["a", "b"], "colour": ["x", "y", "z"]})
    targets = torch.stack([torch.arange(count) % 2, torch.arange(count) % 4 - 1], 1)
    split = torch.arange(count) % 3
    return ImageData("tiny", ImageFiles(folder, names), targets, space, split, names, ("A note.",))


def freshly_decoded(data: ImageData) -> np.ndarray:
    assert isinstance(data.images, ImageFiles)
    return np.stack([decode(data.images.root / path, SIZE) for path in data.images.paths])


def pixels(data: ImageData) -> np.ndarray:
    assert isinstance(data.images, StoredImages)
    return data.images.gather(np.arange(len(data)))


def shard(folder: Path, number: int, suffix: str = ".bin") -> Path:
    (found,) = (folder / "shards").glob(f"{number:05d}-*{suffix}")
    return found


def times_of_shards(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / "shards").glob("*.bin"))}
