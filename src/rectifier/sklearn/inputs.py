"""X as one tensor: vectors ``(N, F)``, or images ``(N, C, H, W)`` from arrays or files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rectifier._base import check

VECTORS, IMAGES, FILES = "vectors", "image arrays", "file names"
Shape = tuple[int, ...]
"""``(F,)`` of vectors, ``(H, W, C)`` of images, as ``build_network`` takes it."""
_AT_ONCE = 1024, 2**22  # samples, and their numbers, in one forward pass


def kind_of(x: Any) -> str:
    """Say what X holds. Strings and paths, in a single column, are file names.

    >>> kind_of(np.zeros((5, 3))), kind_of(np.zeros((5, 8, 8))), kind_of(["a.png", "b.png"])
    ('vectors', 'image arrays', 'file names')
    """
    if hasattr(x, "toarray"):  # sparse: scikit-learn's check of vectors refuses it
        return VECTORS
    shape = (x if hasattr(x, "shape") else np.asarray(x)).shape
    if len(shape) in (3, 4):
        return IMAGES
    is_column = shape and shape[0] and shape[1:] in ((), (1,))
    return FILES if is_column and isinstance(_column(x)[0], str | os.PathLike) else VECTORS


def image_array(x: Any) -> Tensor:
    """Return image arrays as ``(N, C, H, W)``, uint8 or float32.

    Arrays are ``(N, H, W)``, ``(N, H, W, C)`` or ``(N, C, H, W)``. Channels are first if there are one or three of them
    and the last axis is longer than three.

    >>> image_array(np.zeros((2, 3, 8, 6))).shape, image_array(np.zeros((2, 8, 6))).shape
    (torch.Size([2, 3, 8, 6]), torch.Size([2, 1, 8, 6]))
    """
    array = np.asarray(x)
    kept = np.uint8 if array.dtype == np.uint8 else np.float32
    pixels = torch.from_numpy(np.array(array, kept))  # a copy, because memory maps may be read-only
    if not bool(pixels.isfinite().all()):
        check.fail("X", "finite", "NaN or infinity among the pixels")
    if pixels.dim() == 3:
        return pixels[:, None]
    is_first = pixels.shape[1] in (1, 3) and pixels.shape[3] > 3
    return pixels if is_first else pixels.permute(0, 3, 1, 2).contiguous()


def read_files(x: Any, height: int, width: int, channels: int) -> Tensor:
    """Decode image files to uint8 ``(N, C, H, W)``, RGB or grey. A file that cannot be read is an error."""
    from PIL import Image  # vectors and arrays do without it

    from rectifier.data.decode import UnreadableError, decode

    paths, unreadable = [Path(name) for name in _column(x)], dict[Path, str]()

    def pixels(path: Path) -> NDArray[np.uint8]:
        try:
            colour = decode(path, (height, width))
        except UnreadableError as error:
            unreadable[path] = str(error)
            return np.zeros((height, width, channels), np.uint8)
        return colour if channels == 3 else np.asarray(Image.fromarray(colour).convert("L"))[:, :, None]

    with ThreadPoolExecutor(os.cpu_count(), "rectifier-decode") as threads:
        images = np.stack(list(threads.map(pixels, paths)))
    if unreadable:
        bad = [path for path in paths if path in unreadable]
        named = "; ".join(f"{path}: {unreadable[path]}" for path in bad[:3])
        raise ValueError(f"Cannot read {len(bad)} of {check.amount(len(paths), 'image')}. {named}")
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def sample_shape(samples: Tensor) -> Shape:
    """Return ``(F,)`` of vectors, ``(H, W, C)`` of images."""
    first, *others = samples.shape[1:]
    return (*others, first)


def as_float(samples: Tensor, dtype: torch.dtype) -> Tensor:
    """Return samples in floating point, bytes scaled to values from 0 to 1."""
    return samples.to(dtype) / 255 if samples.dtype == torch.uint8 else samples.to(dtype)


def chunks(samples: Tensor) -> list[Tensor]:
    """Split samples into parts that fit in memory with all that a network makes of them."""
    most, numbers = _AT_ONCE
    return list(samples.split(max(1, min(most, numbers // samples[0].numel()))))


class Standardise(nn.Module):
    """Subtract the mean and divide by the deviation, of each feature of vectors or each channel of images.

    >>> layer = Standardise.of(torch.tensor([[1.0, 5.0], [3.0, 5.0]]), torch.ones(2))
    >>> layer(torch.tensor([[5.0, 5.0]]))
    tensor([[3., 0.]], dtype=torch.float64)
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    @classmethod
    def of(cls, samples: Tensor, weights: Tensor) -> Standardise:
        """Take mean and deviation from samples with weights ``(N,)``. A constant is divided by 1."""
        mean = _weighted_mean(samples, weights)
        square = _weighted_mean(samples, weights, mean)
        rounding = (1e-12 * mean).square()  # the deviation of a constant may not be exactly 0
        return cls(mean, torch.where(square > rounding, square, 1.0).sqrt())

    def forward(self, samples: Tensor) -> Tensor:
        standardised: Tensor = (samples - _beside(self.mean, samples)) / _beside(self.deviation, samples)
        return standardised


def _column(x: Any) -> NDArray[Any]:
    return np.asarray(x, dtype=object).ravel()


def _beside(values: Tensor, samples: Tensor) -> Tensor:
    """Give values ``(C,)`` the dimensions of samples ``(N, C, ...)``."""
    return values.view(1, -1, *[1] * (samples.dim() - 2))


def _weighted_mean(samples: Tensor, weights: Tensor, centre: Tensor | None = None) -> Tensor:
    """Return the mean over samples and pixels, float64 ``(C,)``; with a centre, of the squared distances to it."""
    total, parts = torch.zeros(samples.shape[1], dtype=torch.float64), chunks(samples)
    for part, weight in zip(parts, weights.double().split([len(part) for part in parts]), strict=True):
        values = as_float(part, torch.float64)
        if centre is not None:
            values = (values - _beside(centre, values)).square()
        total += weight @ values.flatten(2).mean(2) if values.dim() > 2 else weight @ values
    return total / weights.double().sum()
