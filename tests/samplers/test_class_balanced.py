"""Samples drawn by class weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.samplers import SIZES, TARGETS, slow_counts
from rectifier.samplers import (
    ClassBalancedSampler,
    CurriculumSampler,
    ProgressiveSampler,
    SquareRootSampler,
)


def slow_probabilities(targets: Tensor, weight: Callable[[int, list[int]], float]) -> Tensor:
    """Each sample's probability: over its labels, that of the label, of its class there, and of it in the class."""
    counts = [label for label in slow_counts(targets) if label]
    labelled = [a for a, label in enumerate(slow_counts(targets)) if label]
    probability = [0.0] * len(targets)
    for a, label in zip(labelled, counts, strict=True):
        sizes = list(label.values())
        whole = sum(weight(n, sizes) for n in sizes)
        for i, c in enumerate(targets[:, a].tolist()):
            if c >= 0:
                probability[i] += weight(label[c], sizes) / whole / label[c] / len(labelled)
    return torch.tensor(probability, dtype=torch.float64)


def natural(n: int, sizes: list[int]) -> float:
    return n / sum(sizes)


def balanced(n: int, sizes: list[int]) -> float:
    return 1 / len(sizes)


WEIGHTED = {
    "class-balanced": (ClassBalancedSampler, {}, 0, balanced),
    "square-root": (SquareRootSampler, {}, 0, lambda n, sizes: n**0.5),
    "progressive, first": (ProgressiveSampler, {"epochs": 5}, 0, natural),
    "progressive, second": (
        ProgressiveSampler,
        {"epochs": 5},
        1,
        lambda n, sizes: 0.75 * natural(n, sizes) + 0.25 * balanced(n, sizes),
    ),
    "progressive, last": (ProgressiveSampler, {"epochs": 5}, 4, balanced),
    "progressive, later": (ProgressiveSampler, {"epochs": 5}, 9, balanced),
    "progressive, only": (ProgressiveSampler, {"epochs": 1}, 0, natural),
    "curriculum, third of four": (CurriculumSampler, {"epochs": 4}, 2, lambda n, sizes: n**0.5),
}


@pytest.mark.parametrize(("make", "options", "epoch", "weight"), WEIGHTED.values(), ids=WEIGHTED)
@pytest.mark.parametrize("case", ["one label", "several", "a label never given"])
def test_samples_are_drawn_with_their_probability(make: Any, options: Any, epoch: int, weight: Any, case: str) -> None:
    targets, sizes = {
        "one label": (TARGETS[:, 2:], [9]),
        "several": (TARGETS, SIZES),
        "a label never given": (torch.cat([torch.full((90, 1), -1), TARGETS], 1), [4, *SIZES]),
    }[case]
    draws = 200_000
    sampler = make(targets, sizes, samples=draws, **options)
    sampler.set_epoch(epoch)
    drawn = sampler.plan().bincount(minlength=len(targets))
    expected = draws * slow_probabilities(targets, weight)
    assert drawn.sum() == draws
    assert (drawn[expected == 0] == 0).all()
    assert ((drawn - expected).abs() <= 5 * expected.sqrt()).all()


def test_the_tolerance_separates_the_three() -> None:
    """The tolerance above would find one in place of another: their probabilities differ by far more."""
    first, *others = (slow_probabilities(TARGETS, weight) for weight in (balanced, natural, lambda n, _: n**0.5))
    for other in others:
        assert ((first - other).abs() * 200_000 > 10 * (first * 200_000).sqrt()).any()


def test_an_epoch_is_as_long_as_asked() -> None:
    assert len(ClassBalancedSampler(TARGETS, SIZES)) == 90
    assert len(SquareRootSampler(TARGETS, SIZES, samples=np.int64(1000))) == 1000  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"(?s)epochs to be a positive.*samples to be a positive .* 0.*seed"):
        ProgressiveSampler(TARGETS, SIZES, epochs=0, samples=0, seed=-1)
