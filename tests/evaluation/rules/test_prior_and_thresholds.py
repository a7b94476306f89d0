"""Logit adjustment takes the log prior off; threshold adjustment follows the paper's formula."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from helpers.cases import make_batch
from rectifier import class_balanced_accuracy, class_counts
from rectifier.evaluation.rules import LogitAdjustment, ThresholdAdjustment, prior_offsets
from rectifier.evaluation.rules.prior import TAUS
from rectifier.evaluation.rules.thresholds import STRENGTHS, adjustment_offsets
from rectifier.labels.columns import softmax
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.logit_adjusted import LogitAdjustedLoss


def test_prior_offsets_are_logit_adjustment() -> None:
    counts = [torch.tensor([90, 10]), torch.tensor([5, 0, 5])]
    expected = [-math.log(0.9), -math.log(0.1), -math.log(5 / 10.5), -math.log(0.5 / 10.5), -math.log(5 / 10.5)]
    torch.testing.assert_close(prior_offsets(counts), torch.tensor(expected))
    torch.testing.assert_close(prior_offsets(counts, tau=2.0), 2 * torch.tensor(expected))


def test_uniform_counts_change_nothing() -> None:
    assert prior_offsets(torch.tensor([30, 30, 30])).unique().numel() == 1


def test_the_tau_is_the_best_on_validation() -> None:
    batch = make_batch([2, 2, 5], 200, seed=3, skew=4.0)
    counts = class_counts(batch.targets, batch.sizes)
    fitted = LogitAdjustment.fit(batch.logits, batch.targets, batch.sizes, counts=counts)
    scores = {
        tau: class_balanced_accuracy(batch.logits + prior_offsets(counts, tau), batch.targets, batch.sizes).item()
        for tau in TAUS
    }
    assert len(set(scores.values())) > 1
    assert fitted.tau == max(TAUS, key=lambda tau: scores[tau])
    torch.testing.assert_close(fitted(batch.logits), batch.logits + prior_offsets(counts, fitted.tau))
    only = LogitAdjustment.fit(batch.logits, batch.targets, batch.sizes, counts=counts, taus=(1.0,))
    torch.testing.assert_close(only.offsets, prior_offsets(counts))


def test_adjustment_after_training_undoes_the_adjustment_in_training() -> None:
    """What a network trained with z + log prior gives is what adjusting plain logits gives."""
    batch = make_batch([2, 5], 50, seed=4)
    counts = [torch.tensor([90, 10]), torch.tensor([50, 20, 9, 1, 0])]
    plain = CrossEntropyLoss()(batch.logits, batch.targets, (2, 5))
    adjusted = LogitAdjustment(1.0, prior_offsets(counts))(batch.logits)
    torch.testing.assert_close(LogitAdjustedLoss(counts)(adjusted, batch.targets, (2, 5)), plain, atol=1e-6, rtol=0)


def test_no_tau_to_choose() -> None:
    with pytest.raises(ValueError, match="taus to be a list of at least one number"):
        LogitAdjustment.fit(torch.zeros(2, 2), torch.tensor([0, 1]), counts=torch.tensor([1, 1]), taus=())


@pytest.mark.parametrize(("taus", "expected"), [(TAUS, 0.0), ((1.0, 0.5, 2.0), 1.0)])
def test_the_first_of_equally_good_taus_is_chosen(taus: tuple[float, ...], expected: float) -> None:
    logits, targets, counts = 99 * torch.eye(2), torch.tensor([0, 1]), torch.tensor([90, 10])
    assert LogitAdjustment.fit(logits, targets, counts=counts, taus=taus).tau == expected


# Threshold adjustment.


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
