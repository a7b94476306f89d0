"""Batch augmentation equals a loop over images, one crop and one flip at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rectifier.data.augment import CropAndFlip


def one_by_one(images: Tensor, draws: Tensor, padding: int) -> Tensor:
    """Pad, cut the window out, then mirror: an image at a time."""
    height, width = images.shape[1:3]
    out = []
    for image, (down, right, mirrored) in zip(images.numpy(), draws.tolist(), strict=True):
        padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        window = padded[down : down + height, right : right + width]
        out.append(window[:, ::-1] if mirrored else window)
    return torch.from_numpy(np.stack(out))


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("shape", [(16, 7, 9, 3), (5, 8, 8, 1), (1, 3, 2, 3)])
def test_equals_the_loop(padding: int, flip: bool, shape: tuple[int, ...]) -> None:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=g)
    augment = CropAndFlip(padding, flip)
    draws = augment.draw(shape[0], g)
    assert torch.equal(augment(images, draws), one_by_one(images, draws, padding))


def test_draws_cover_their_range_evenly() -> None:
    draws = CropAndFlip(2).draw(100_000, torch.Generator().manual_seed(0))
    for column, values in zip(draws.T, (5, 5, 2), strict=True):
        share = column.bincount(minlength=values) / len(column)
        assert abs(share - 1 / values).max() < 0.01
    assert not CropAndFlip(2, flip=False).draw(1000, torch.Generator())[:, 2].any()


def test_the_middle_window_is_the_image() -> None:
    images = torch.randint(0, 256, (4, 6, 6, 3), dtype=torch.uint8)
    assert torch.equal(CropAndFlip(3)(images, torch.tensor([[3, 3, 0]] * 4)), images)


def test_same_generator_same_draws() -> None:
    first, second = (CropAndFlip().draw(50, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("padding", [-1, 1.5, True])
def test_wrong_padding(padding: object) -> None:
    with pytest.raises(ValueError, match="padding to be a number of pixels, 0 or more"):
        CropAndFlip(padding)
