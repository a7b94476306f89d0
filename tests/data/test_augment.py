"""Batch augmentation equals a loop over images, one crop and one flip at a time."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from oracles_finetune import operated_one_by_one
from rectifier.data import Loader
from rectifier.data.augment import POLICIES, Augment, CropAndFlip
from rectifier.data.operations import OPERATIONS
from rectifier.data.readers.shapes import shapes


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


# TrivialAugment and RandAugment


@pytest.mark.parametrize("policy", ["trivial", "rand"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_policy_equals_pil_image_by_image(policy: str, channels: int) -> None:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (200, 20, 24, channels), dtype=torch.uint8, generator=g)
    augment = Augment(padding=0, flip=False, policy=policy)
    draws = augment.draw(len(images), g)
    expected = images
    for first in range(3, draws.shape[1], 3):
        operation, strength, negative = draws[:, first : first + 3].T.tolist()
        full = POLICIES[policy].amounts(20, 24)
        amounts = [full[o] * s / 30 * (1 - 2 * n) for o, s, n in zip(operation, strength, negative, strict=True)]
        expected = operated_one_by_one(expected, [OPERATIONS[each] for each in operation], amounts)
    off = (augment(images, draws).int() - expected.int()).abs()
    assert float((off <= 2).float().mean()) > 0.98  # pixels on an edge between two, and steps of posterize or equalize


@pytest.mark.parametrize("policy", ["trivial", "rand"])
def test_no_strength_is_no_change(policy: str) -> None:
    images = torch.randint(0, 256, (14, 9, 11, 3), dtype=torch.uint8)
    augment = Augment(padding=2, policy=policy)
    draws = augment.draw(14, torch.Generator().manual_seed(0))
    draws[:, 3::3] = torch.arange(14)[:, None].clamp(max=OPERATIONS.index("solarize"))  # the others have no strength
    draws[:, 4::3] = 0
    assert torch.equal(augment(images, draws), CropAndFlip(2)(images, draws[:, :3]))


def test_the_policy_crop_is_crop_and_flip() -> None:
    images = torch.rand(6, 8, 8, 3)
    drawn = [made.draw(6, torch.Generator().manual_seed(1)) for made in (CropAndFlip(3), Augment(3, policy="crop"))]
    assert torch.equal(*drawn)
    assert torch.equal(Augment(3, policy="crop")(images, drawn[0]), CropAndFlip(3)(images, drawn[0]))


@pytest.mark.parametrize("policy", ["trivial", "rand"])
def test_floats_of_bytes_change_as_the_bytes(policy: str) -> None:
    augment, g = Augment(2, policy=policy), torch.Generator().manual_seed(3)
    images = torch.randint(0, 256, (40, 10, 12, 3), dtype=torch.uint8, generator=g)
    draws = augment.draw(40, g)
    assert torch.equal(augment(images / 255, draws), augment(images, draws) / 255)


@pytest.mark.parametrize(("policy", "operations"), [("crop", 0), ("trivial", 1), ("rand", 2)])
def test_draws_of_a_policy_cover_their_range(policy: str, operations: int) -> None:
    augment = Augment(2, policy=policy)
    draws = augment.draw(70_000, torch.Generator().manual_seed(0))
    assert draws.shape[1] == 3 + 3 * operations
    assert torch.equal(draws[:, :3], CropAndFlip(2).draw(70_000, torch.Generator().manual_seed(0)))
    for column, values in zip(draws[:, 3:].T, operations * (14, 31, 2), strict=True):
        share = column.bincount(minlength=values) / len(column)
        if values == 31 and policy == "rand":
            assert column.unique().tolist() == [9]
        else:
            assert abs(share - 1 / values).max() < 0.01


def test_a_shift_leaves_half_of_a_small_image() -> None:
    assert POLICIES["trivial"].amounts(16, 200)[3:5] == [32, 8]


def test_the_loader_draws_for_a_policy_as_for_crops() -> None:
    data = shapes(samples=40, size=16, ratio=4)
    make = partial(Loader, data, "train", shuffle=True, augment=Augment(2, policy="rand"), seed=3)
    small, large = ([batch.images for batch in make(batch_size=size)] for size in (4, 12))
    assert torch.equal(torch.cat(small), torch.cat(large))
    plain = [batch.images for batch in Loader(data, "train", 4, shuffle=True, augment=CropAndFlip(2), seed=3)]
    assert not torch.equal(torch.cat(small), torch.cat(plain))


def test_wrong_policy() -> None:
    with pytest.raises(ValueError, match=r"policy to be one of 'crop', 'trivial', 'rand', but got 'trival'.*'trivial'"):
        Augment(policy="trival")
