"""Threshold adjustment against the paper's formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from helpers.cases import make_batch
from rectifier import class_balanced_accuracy, class_counts
from rectifier.evaluation.rules.thresholds import STRENGTHS, ThresholdAdjustment, adjustment_offsets
from rectifier.labels.columns import softmax


def slow_adjustment(logits: Tensor, counts: list[Tensor], strength: float, sizes: list[int]) -> Tensor:
    """p_k * exp(-r_k)^T, class by class."""
    scores = softmax(logits, tuple(sizes)).clone()
    column = 0
    for label in counts:
        for n in label.tolist():
            share = n / max(int(label.sum()), 1)
            scores[:, column] *= math.exp(-share) ** strength
            column += 1
    return scores


def decide(scores: Tensor, sizes: list[int]) -> Tensor:
    return torch.stack([block.argmax(1) for block in scores.split(sizes, 1)], 1)


@pytest.mark.parametrize("strength", [0, 1, 3.5])
def test_threshold_adjustment_decides_as_the_paper_says(strength: float) -> None:
    batch = make_batch([2, 3, 7], 60, missing=0.2)
    counts = class_counts(batch.targets, batch.sizes)
    adjusted = batch.logits + adjustment_offsets(counts, strength)
    expected = slow_adjustment(batch.logits, counts, strength, batch.sizes)
    assert torch.equal(decide(adjusted, batch.sizes), decide(expected, batch.sizes))


def test_no_strength_and_uniform_counts_change_nothing() -> None:
    assert not adjustment_offsets(torch.tensor([90, 10]), 0).any()
    assert adjustment_offsets(torch.tensor([30, 30, 30]), 2).unique().numel() == 1


def test_the_strength_is_the_best_on_validation() -> None:
    batch = make_batch([2, 2, 5], 200, seed=3, skew=4.0)
    counts = class_counts(batch.targets, batch.sizes)
    fitted = ThresholdAdjustment.fit(batch.logits, batch.targets, batch.sizes, counts=counts)
    scores = {
        t: class_balanced_accuracy(batch.logits + adjustment_offsets(counts, t), batch.targets, batch.sizes).item()
        for t in STRENGTHS
    }
    assert scores[fitted.strength] == max(scores.values())
    torch.testing.assert_close(fitted(batch.logits), batch.logits + adjustment_offsets(counts, fitted.strength))


def test_no_strength_to_choose() -> None:
    with pytest.raises(ValueError, match="strengths to be a list of at least one number"):
        ThresholdAdjustment.fit(torch.zeros(2, 2), torch.tensor([0, 1]), counts=torch.tensor([1, 1]), strengths=())


@pytest.mark.parametrize(("strengths", "expected"), [(STRENGTHS, 1), ((3, 1, 2), 3)])
def test_the_first_of_equally_good_strengths_is_chosen(strengths: tuple[float, ...], expected: float) -> None:
    logits, targets, counts = 99 * torch.eye(2), torch.tensor([0, 1]), torch.tensor([90, 10])
    assert ThresholdAdjustment.fit(logits, targets, counts=counts, strengths=strengths).strength == expected
