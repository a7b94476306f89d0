from __future__ import annotations

import pytest
import torch

import oracles
from rectifier import LabelSpace
from rectifier.labels import columns

LAYOUTS = [(5,), (2, 2, 2), (3, 7, 2), (2,) * 30 + (100,), (1, 1, 50, 3, 2, 60, 1), (1,)]


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_softmax_and_argmax_of_each_label(sizes: tuple[int, ...]) -> None:
    logits = torch.randn(9, sum(sizes), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    blocks = oracles.softmax_per_label(logits, list(sizes))
    torch.testing.assert_close(columns.log_softmax(logits, sizes).exp(), torch.cat(blocks, 1))
    assert columns.argmax(logits, sizes).tolist() == torch.stack([block.argmax(1) for block in blocks], 1).tolist()


@pytest.mark.parametrize("sizes", LAYOUTS)
def test_gradient_of_softmax(sizes: tuple[int, ...]) -> None:
    logits = torch.randn(
        4, sum(sizes), dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True
    )
    weight = torch.linspace(1, 2, sum(sizes), dtype=torch.float64)
    (ours,) = torch.autograd.grad((columns.log_softmax(logits, sizes) * weight).sum(), logits)
    (expected,) = torch.autograd.grad(
        (torch.cat(oracles.softmax_per_label(logits, list(sizes)), 1).log() * weight).sum(), logits
    )
    torch.testing.assert_close(ours, expected)


def test_padding_stays_small() -> None:
    """One label of a thousand classes beside forty binary ones must not make all of them a thousand wide."""
    for sizes in (*LAYOUTS, (1000,) + (2,) * 40):
        assert len(columns._padded_columns(sizes)) <= 4 * sum(sizes)


def test_own_columns() -> None:
    assert columns.own_columns(torch.tensor([[1, 0], [-1, 2], [0, -100]]), (2, 3)).tolist() == [
        [1, 2],
        [-1, 4],
        [0, -1],
    ]


def test_every_spelling_of_sizes() -> None:
    for sizes in ([2, 3], (2, 3), torch.tensor([2, 3]), LabelSpace.from_sizes([2, 3])):
        assert columns.as_sizes(sizes) == (2, 3)
    assert columns.as_sizes(None, 7) == (7,)
