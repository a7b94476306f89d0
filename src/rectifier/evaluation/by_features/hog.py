"""HOG: features without a network."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check, console

_IMAGES = 256  # sent to a process at a time


def hog_features(pixels: NDArray[np.uint8] | Tensor, workers: int = -1) -> Tensor:
    """Return histograms of oriented gradients of uint8 images ``(N, H, W, C)`` as float32 ``(N, D)``.

    9 orientations, cells of 8 x 8 pixels, overlapping blocks of 2 x 2 cells (Dalal and Triggs 2005). Each pixel uses
    the channel with the largest gradient. For images below 16 pixels a cell is half of the shorter side.
    ``workers`` processes share the images; -1 starts one per processor.

    >>> hog_features(np.zeros((2, 32, 24, 3), np.uint8)).shape
    torch.Size([2, 216])
    """
    images = pixels.numpy(force=True) if isinstance(pixels, Tensor) else pixels
    if images.ndim != 4 or images.dtype != np.uint8 or min(images.shape[1:3]) < 4:
        got = f"{images.dtype}, shape {tuple(images.shape)}"
        check.fail("pixels", "uint8 of shape (N, H, W, C), at least 4 high and wide", got)
    cell = min(8, min(images.shape[1:3]) // 2)
    down, across = (side // cell - 1 for side in images.shape[1:3])
    found = torch.empty(len(images), down * across * 2 * 2 * 9)
    with console.progress() as display:
        task = display.add_task("HOG", total=len(images), visible=len(images) > _IMAGES)
        for row, described in zip(found, _describe(images, cell, workers), strict=True):
            row.copy_(torch.from_numpy(described))
            display.advance(task)
    if workers != 1 and len(images) > _IMAGES:
        from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]

        get_reusable_executor().shutdown()  # idle workers would delay exit by minutes
    return found


def _describe(images: NDArray[np.uint8], cell: int, workers: int) -> Iterable[NDArray[np.float64]]:
    from skimage.feature import hog

    describe = partial(hog, orientations=9, pixels_per_cell=(cell, cell), cells_per_block=(2, 2), channel_axis=-1)
    if workers == 1 or len(images) <= _IMAGES:
        return map(describe, images)
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # Workers call scikit-image's own function, so they need not import torch.
    parallel = Parallel(workers, return_as="generator", batch_size=_IMAGES, pre_dispatch=f"{2 * _IMAGES} * n_jobs")
    found: Iterable[NDArray[np.float64]] = parallel(delayed(describe)(image) for image in images)
    return found
