"""Logit adjustment takes the log prior off; threshold adjustment follows the paper's formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.cases import make_batch
from rectifier import class_balanced_accuracy, class_counts
from rectifier.evaluation.rules import PriorRule, ThresholdAdjustment, adjustment_offsets, adjusts_prior, prior_offsets
from rectifier.evaluation.rules.prior import TAUS
from rectifier.evaluation.rules.thresholds import PAPER_STRENGTHS, STRENGTHS
from rectifier.labels.columns import softmax
from rectifier.losses import (
    BalancedSoftmaxLoss,
    CrossEntropyLoss,
    Design,
    FocalLoss,
    LogitAdjustedLoss,
    RectifiedCrossEntropy,
)
from rectifier.losses.objective import Objective


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
    fitted = PriorRule(counts).fit(batch.logits, batch.targets)
    scores = {
        tau: class_balanced_accuracy(batch.logits + prior_offsets(counts, tau), batch.targets, batch.sizes).item()
        for tau in TAUS
    }
    assert len(set(scores.values())) > 1
    assert fitted.tau == max(TAUS, key=lambda tau: scores[tau])
    torch.testing.assert_close(fitted(batch.logits), batch.logits + prior_offsets(counts, float(fitted.tau)))
    only = PriorRule(counts, taus=(1.0,)).fit(batch.logits, batch.targets)
    torch.testing.assert_close(only.offsets, prior_offsets(counts))


def test_adjustment_after_training_undoes_the_adjustment_in_training() -> None:
    """What a network trained with z + log prior gives is what adjusting plain logits gives."""
    batch = make_batch([2, 5], 50, seed=4)
    counts = [torch.tensor([90, 10]), torch.tensor([50, 20, 9, 1, 0])]
    plain = CrossEntropyLoss([2, 5], reduction="none")(batch.logits, batch.targets)
    adjusted = PriorRule(counts)(batch.logits)
    torch.testing.assert_close(
        LogitAdjustedLoss(counts, reduction="none")(adjusted, batch.targets), plain, atol=1e-6, rtol=0
    )


def test_no_tau_to_choose() -> None:
    with pytest.raises(ValueError, match="taus to be a list of at least one number"):
        PriorRule([1, 1], taus=())


@pytest.mark.parametrize(("taus", "expected"), [(TAUS, 0.0), ((1.0, 0.5, 2.0), 1.0)])
def test_the_first_of_equally_good_taus_is_chosen(taus: tuple[float, ...], expected: float) -> None:
    logits, targets, counts = 99 * torch.eye(2), torch.tensor([0, 1]), torch.tensor([90, 10])
    assert PriorRule(counts, taus=taus).fit(logits, targets).tau == expected


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
    fitted = ThresholdAdjustment(counts).fit(batch.logits, batch.targets)
    scores = {
        t: class_balanced_accuracy(batch.logits + adjustment_offsets(counts, t), batch.targets, batch.sizes).item()
        for t in STRENGTHS
    }
    assert scores[int(fitted.strength)] == max(scores.values())
    torch.testing.assert_close(fitted(batch.logits), batch.logits + adjustment_offsets(counts, float(fitted.strength)))


def test_no_strength_to_choose() -> None:
    with pytest.raises(ValueError, match="strengths to be a list of at least one number"):
        ThresholdAdjustment([1, 1], strengths=())


@pytest.mark.parametrize(("strengths", "expected"), [(STRENGTHS, 0), (PAPER_STRENGTHS, 1), ((3, 1, 2), 3)])
def test_the_first_of_equally_good_strengths_is_chosen(strengths: tuple[float, ...], expected: float) -> None:
    logits, targets, counts = 99 * torch.eye(2), torch.tensor([0, 1]), torch.tensor([90, 10])
    assert ThresholdAdjustment(counts, strengths=strengths).fit(logits, targets).strength == expected


# Losses that already correct for the prior.


class Adjusted(torch.nn.Module):
    adjusts_prior = True


CORRECTING = {
    "an attribute": Adjusted(),
    "of a part": torch.nn.Sequential(torch.nn.Identity(), Adjusted()),
    "no module": SimpleNamespace(adjusts_prior=True),
    "PyTorch's weights": torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 9.0])),
    "logit adjustment": LogitAdjustedLoss([90, 10]),
    "balanced softmax": BalancedSoftmaxLoss([90, 10]),
    "class weights": FocalLoss(weight=[1.0, 9.0]),
    "inside an objective": Objective(BalancedSoftmaxLoss([90, 10]), [2], rectification=Design(), alpha=0.1),
}


@pytest.mark.parametrize("loss", CORRECTING.values(), ids=CORRECTING)
def test_a_prior_is_never_subtracted_twice(loss: object) -> None:
    assert adjusts_prior(loss)
    wanted = f"not correct for the class prior: .* a second time, but got {type(loss).__name__}"
    with pytest.raises(ValueError, match=wanted):
        PriorRule([90, 10], loss=loss)


@pytest.mark.parametrize(
    "loss",
    [
        *(None, torch.nn.CrossEntropyLoss(), torch.nn.functional.cross_entropy, CrossEntropyLoss(), FocalLoss()),
        *(LogitAdjustedLoss([90, 10], tau=0), RectifiedCrossEntropy([90, 10])),
    ],
)
def test_a_loss_that_leaves_the_prior_to_the_rule(loss: object) -> None:
    assert not adjusts_prior(loss)
    assert torch.equal(PriorRule([90, 10], loss=loss).offsets, prior_offsets([90, 10]))


# Counts


@pytest.mark.parametrize("counts", [[90, 10], (90, 10), torch.tensor([90, 10]), np.array([90, 10]), [[90, 10]]])
def test_counts_come_in_many_forms(counts: Any) -> None:
    assert torch.equal(PriorRule(counts).offsets, prior_offsets(torch.tensor([90, 10])))


@pytest.mark.parametrize("use", [prior_offsets, PriorRule, ThresholdAdjustment, lambda c: adjustment_offsets(c, 1)])
@pytest.mark.parametrize("shares", [[0.9, 0.09, 0.01], [[0.9, 0.1], [0.5, 0.5]]])
def test_shares_are_no_counts(use: Callable[[Any], Any], shares: Any) -> None:
    with pytest.raises(ValueError, match="whole numbers"):
        use(shares)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, "1", None, True])
def test_wrong_numbers(wrong: Any) -> None:
    with pytest.raises(ValueError, match="tau to be a number"):
        PriorRule([90, 10], tau=wrong)
    with pytest.raises(ValueError, match="taus to be a list of at least one number"):
        PriorRule([90, 10], taus=[0.0, wrong])
    with pytest.raises(ValueError, match="strength to be a number"):
        ThresholdAdjustment([90, 10], strength=wrong)
