"""Operations on a batch equal PIL image by image."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oracles_finetune import operated_one_by_one
from rectifier.data.operations import OPERATIONS, operate

AMOUNTS = {
    **dict.fromkeys(("shear_x", "shear_y"), (-0.99, -0.3, 0.1, 0.7)),
    **dict.fromkeys(("translate_x", "translate_y"), (-40, -3.7, 2.5, 9)),
    "rotate": (-134.0, -17.3, 44.1, 89.0),
    **dict.fromkeys(("brightness", "colour", "contrast", "sharpness"), (-0.99, -0.4, 0.33, 0.99)),
    "posterize": (-2.0, 1.2, 5.0, 6.0),
    "solarize": (-30.0, 100.3, 255.0, 256.0),
    **dict.fromkeys(("identity", "autocontrast", "equalize"), (0.0, 1.0, 2.0, 3.0)),
}
# A fraction of rotated pixels lies on an edge between two, where PIL's fixed point and floats differ.
EQUAL = {"identity", "translate_x", "translate_y", "posterize", "solarize", "equalize"}


def pictures(kind: str, shape: tuple[int, ...]) -> Tensor:
    g = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, shape, dtype=torch.uint8, generator=g)
    if kind == "dark":
        return noise // 5 + 10
    return torch.full_like(noise, 77) if kind == "flat" else noise


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", ["noise", "dark", "flat"])
@pytest.mark.parametrize("shape", [(4, 33, 40, 3), (4, 20, 17, 1), (4, 2, 1, 3)])
def test_each_operation_is_pils(name: str, kind: str, shape: tuple[int, ...]) -> None:
    images = pictures(kind, shape)
    found = operate(images, torch.full((4,), OPERATIONS.index(name)), torch.tensor(AMOUNTS[name]))
    off = (found.int() - operated_one_by_one(images, [name] * 4, AMOUNTS[name]).int()).abs()
    if name in EQUAL:
        assert not off.any()
    elif name in ("shear_x", "shear_y", "rotate"):
        assert float((off > 0).float().mean()) < 0.01 or shape[1] < 3
    else:
        assert int(off.max()) <= 1


def test_operations_of_a_batch_are_those_of_its_images() -> None:
    g = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (60, 12, 10, 3), dtype=torch.uint8, generator=g)
    operation = torch.randint(0, len(OPERATIONS), (60,), generator=g)
    amount = torch.randn(60, generator=g)
    together = operate(images, operation, amount)
    for i in range(60):
        one = slice(i, i + 1)
        assert torch.equal(together[one], operate(images[one], operation[one], amount[one])), OPERATIONS[operation[i]]


def test_the_given_images_stay() -> None:
    images = torch.randint(0, 256, (14, 8, 8, 3), dtype=torch.uint8)
    before = images.clone()
    operate(images, torch.arange(14), torch.full((14,), 0.9))
    assert torch.equal(images, before)
