from __future__ import annotations

import pytest
import torch

import oracles
from rectifier.losses.crl import chunks, comparison
from rectifier.losses.crl.comparison import Comparison, Pairs


def one_anchor(positive: list[float], negative: list[float]) -> Pairs:
    near, far = torch.tensor([[positive]], dtype=torch.float64), torch.tensor([[negative]], dtype=torch.float64)
    return Pairs(near, torch.ones_like(near, dtype=torch.bool), far, torch.ones_like(far, dtype=torch.bool))


def test_relative_by_hand() -> None:
    """Hinges of 1 + {0.5, 2} - {1, 2.5}: 0.5, 0, 2, 0.5."""
    comparing = Comparison("relative", torch.tensor([1.0], dtype=torch.float64), 100, signed=False)
    pairs = one_anchor([0.5, 2.0], [1.0, 2.5])
    sums = comparing.sums(pairs, comparing.reach(pairs))
    assert comparing.loss(sums).item() == 3.0 / 4
    assert comparing.number(sums).item() == 4


def test_absolute_by_hand() -> None:
    comparing = Comparison("absolute", torch.tensor([1.0], dtype=torch.float64), 100, signed=False)
    pairs = one_anchor([0.5, 2.0], [0.5, 3.0])
    sums = comparing.sums(pairs, comparing.reach(pairs))
    assert comparing.loss(sums).item() == ((0.25 + 4) / 2 + 0.25 / 2) / 2
    assert comparing.number(sums).item() == 4


def test_distribution_is_one_when_negatives_are_nearer_and_zero_when_they_are_not() -> None:
    comparing = Comparison("distribution", torch.tensor([1.0], dtype=torch.float64), 5, signed=False)
    for positive, negative, expected in (([4.0], [1.0], 1.0), ([1.0], [4.0], 0.0), ([0.0], [0.0], 1.0)):
        pairs = one_anchor(positive, negative)
        assert comparing.loss(comparing.sums(pairs, comparing.reach(pairs))).item() == expected


def test_a_histogram_adds_up_to_its_pairs() -> None:
    g = torch.Generator().manual_seed(0)
    distances = torch.rand(3, 5, 7, generator=g, dtype=torch.float64) * 2 - 1
    exists = torch.rand(3, 5, 7, generator=g) < 0.7
    low, high = torch.full((3,), -1.0, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    histogram = comparison._histogram(distances, exists, low, high, 11)
    torch.testing.assert_close(histogram.sum(1), exists.sum((1, 2)).double())
    for label in range(3):
        slow = oracles.histogram(list(distances[label][exists[label]]), -1.0, 1.0, 11)
        torch.testing.assert_close(histogram[label] / exists[label].sum(), torch.stack(slow))


class Stored:
    """Hands out stored pairs."""

    bytes_per_anchor = 1

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs

    def __call__(self, anchors: slice) -> Pairs:
        return Pairs(*(part[:, anchors] for part in self.pairs))


@pytest.mark.parametrize("name", ["relative", "absolute", "distribution"])
@pytest.mark.parametrize("size", [1, 7, 30, 31])
def test_no_anchor_is_lost_between_chunks(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """31 anchors, also as 30 and a last one alone."""
    g = torch.Generator().manual_seed(0)
    near = torch.rand(2, 31, 4, generator=g, dtype=torch.float64)
    far = torch.rand(2, 31, 5, generator=g, dtype=torch.float64).sort(-1).values
    pairs = Pairs(near, torch.ones_like(near, dtype=torch.bool), far, torch.ones_like(far, dtype=torch.bool))
    comparing = Comparison(name, torch.full((2,), 0.5, dtype=torch.float64), 20, signed=False)
    expected = chunks.compare(Stored(pairs), 31, comparing)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
    for got, want in zip(chunks.compare(Stored(pairs), 31, comparing), expected, strict=True):
        torch.testing.assert_close(got, want)
