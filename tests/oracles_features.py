"""Slow twins of the cache of features: one image and one view at a time, from pillow alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def view_of(path: Path, size: tuple[int, int], view: int, digest: bytes) -> np.ndarray:
    """One view of an ordinary RGB image that is not larger than ``size``, bilinear and stretched."""
    image = Image.open(path).convert("RGB")
    if view < 2:
        pixels = np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR))
    else:
        draw = random.Random(digest + bytes([view, 0, 0, 0]))
        area = 0.6 + 0.4 * draw.random()
        ratio = (4 / 3) ** (2 * draw.random() - 1)
        width, height = min(1, (area * ratio) ** 0.5), min(1, (area / ratio) ** 0.5)
        left, top = draw.random() * (1 - width), draw.random() * (1 - height)
        frame = image.resize((math.ceil(1.5 * size[1]), math.ceil(1.5 * size[0])), Image.Resampling.BILINEAR)
        box = (left * frame.width, top * frame.height, (left + width) * frame.width, (top + height) * frame.height)
        pixels = np.asarray(frame.resize(size[::-1], Image.Resampling.BILINEAR, box=box))
    return pixels[:, ::-1] if view % 2 else pixels


def vector(pixels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The fake network of these tests, for one image: channel means, then a product with the pixels."""
    means = [float(pixels[..., c].astype(np.float64).mean()) for c in range(3)]
    products = [
        sum(float(p) * float(w) for p, w in zip(pixels.ravel(), column, strict=True)) / 255 for column in weights.T
    ]
    return np.array([*means, *products])


def gathered(rows: Sequence[np.ndarray], index: Sequence[int]) -> np.ndarray:
    return np.stack([rows[i] for i in index])
