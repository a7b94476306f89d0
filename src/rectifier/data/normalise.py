"""Normalise images by the mean and standard deviation of each channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from rectifier._base import check
from rectifier.data.dataset import Decoded, ImageData


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel, for pixels from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = (*self.mean, *self.std)
        if len(self.mean) != len(self.std) or not all(map(check.is_real, numbers)) or min(self.std) <= 0:
            check.fail("a normalisation", "a mean and a positive deviation for each channel", repr(self))


def statistics(data: ImageData) -> Normalisation:
    """Return mean and deviation of the training part's channels, from up to 64 MiB of images spread over it."""
    images = cast(Decoded, data.images)
    positions = data.indices("train").numpy()
    if not len(positions):
        wanted = "data with a training part to normalise by"
        check.fail(f"data {data.name!r}", wanted, "none; pass normalise=Normalisation(...)")
    count = min(len(positions), max(1, (64 << 20) // int(np.prod(images.shape))))
    spread = positions[np.linspace(0, len(positions) - 1, count).astype(np.int64)]
    tally = np.zeros((images.shape[2], 256))
    for part in np.array_split(spread, -(-count // 64)):
        pixels = images.gather(part)
        tally += np.stack([np.bincount(pixels[..., c].ravel(), minlength=256) for c in range(images.shape[2])])
    shares, values = tally / tally.sum(1, keepdims=True), np.arange(256) / 255
    mean = shares @ values
    std = np.sqrt(np.maximum(shares @ values**2 - mean**2, 1e-6))
    return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))
