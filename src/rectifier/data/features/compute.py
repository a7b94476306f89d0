"""What computes features, and how they lie in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import Pixels
from rectifier.data.decode import INTERPOLATIONS

Floats = NDArray[np.floating[Any]]


class Compute(Protocol):
    """A frozen network: uint8 pixels ``(n, H, W, 3)`` in, float32 ``(n, *shape)`` of each layer out."""

    @property
    def key(self) -> str:
        """A hash of all that changes the features: weights, architecture, layers, preprocessing."""
        ...

    @property
    def layers(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each layer's features for one image."""
        ...

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images that it takes."""
        ...

    @property
    def interpolation(self) -> str: ...

    @property
    def described(self) -> str:
        """What computes, in words for a message."""
        ...

    def __call__(self, pixels: Pixels, /) -> Mapping[str, NDArray[np.float32]]: ...


@dataclass(frozen=True)
class Layout:
    """Shape and type of the features of one view: vectors of float32 end to end, or one map of float16."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, compute: Compute) -> Layout:
        shapes = list(compute.layers.values())
        if shapes and all(len(shape) == 1 for shape in shapes):
            return cls((sum(shape[0] for shape in shapes),), np.dtype("<f4"))
        if len(shapes) != 1 or len(shapes[0]) != 3:
            check.fail("layers", "vectors, or one map (C, h, w)", dict(compute.layers))
        return cls(tuple(shapes[0]), np.dtype("<f2"))

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.dtype.itemsize


def features_of(compute: Compute, pixels: Pixels, layout: Layout) -> Floats:
    """Compute the features ``(n, *shape)`` of images, as they lie in the cache."""
    found = compute(pixels)
    parts = [found[layer] for layer in compute.layers]
    values = parts[0] if len(parts) == 1 else np.concatenate(parts, 1)
    if values.shape != (wanted := (len(pixels), *layout.shape)):
        check.fail("the features", f"of shape {wanted}", values.shape)
    with np.errstate(over="ignore"):  # reported below
        values = values.astype(layout.dtype)
    if not np.isfinite(values).all():
        check.fail("all features", "finite numbers", f"others (in {values.dtype}); the weights may be damaged")
    return values


def check_compute(compute: Compute) -> None:
    check.raise_all([check.choice("interpolation", compute.interpolation, INTERPOLATIONS)])
