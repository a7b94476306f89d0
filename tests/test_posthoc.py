"""Decision rules against their definitions, spelt out in loops."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import oracles
from cases import Batch, batches, make_batch
from rectifier import class_balanced_accuracy, class_counts
from rectifier.columns import softmax
from rectifier.losses.adjusted import LogitAdjusted
from rectifier.losses.entropy import CrossEntropy
from rectifier.metrics.score import calibration_error
from rectifier.posthoc import (
    STRENGTHS,
    TAUS,
    TEMPERATURES,
    LogitAdjustment,
    TemperatureScaling,
    ThresholdAdjustment,
    VectorScaling,
    adjustment_offsets,
    prior_offsets,
    tuned_offsets,
)


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
    counts = torch.tensor([30, 30, 30])
    assert not adjustment_offsets(torch.tensor([90, 10]), 0).any()
    for offsets in (adjustment_offsets(counts, 2), prior_offsets(counts)):
        assert offsets.unique().numel() == 1


def test_prior_offsets_are_logit_adjustment() -> None:
    counts = [torch.tensor([90, 10]), torch.tensor([5, 0, 5])]
    expected = [-math.log(0.9), -math.log(0.1), -math.log(5 / 10.5), -math.log(0.5 / 10.5), -math.log(5 / 10.5)]
    torch.testing.assert_close(prior_offsets(counts), torch.tensor(expected))
    torch.testing.assert_close(prior_offsets(counts, tau=2.0), 2 * torch.tensor(expected))


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


def slow_best_of_two(logits: Tensor, targets: Tensor) -> float:
    """Try every threshold between two different scores of a binary label."""
    labelled = targets >= 0
    score, own = (logits[:, 1] - logits[:, 0])[labelled].tolist(), targets[labelled].tolist()
    values = sorted(set(score))
    thresholds = [values[0] - 1, *((a + b) / 2 for a, b in pairwise(values)), values[-1] + 1]
    best = 0.0
    for threshold in thresholds:
        hits = {c: [(s > threshold) == bool(c) for s, o in zip(score, own, strict=True) if o == c] for c in set(own)}
        best = max(best, sum(sum(h) / len(h) for h in hits.values()) / len(hits))
    return best


@given(batches(most_labels=4, most_classes=2, most_samples=40))
def test_two_classes_are_tuned_exactly(batch: Batch) -> None:
    sizes = [2] * len(batch.sizes)
    targets, logits = batch.targets.clamp(max=1), batch.logits[:, : 2 * len(sizes)]
    tuned = logits + tuned_offsets(logits, targets, sizes)
    for a in range(len(sizes)):
        if (targets[:, a] >= 0).any():
            own = tuned[:, 2 * a : 2 * a + 2]
            found = class_balanced_accuracy(own, targets[:, a]).item()
            assert found == pytest.approx(slow_best_of_two(logits[:, 2 * a : 2 * a + 2], targets[:, a]), abs=1e-6)


@given(batches(most_labels=3, most_classes=9, most_samples=60))
def test_tuning_never_loses(batch: Batch) -> None:
    counts = class_counts(batch.targets, batch.sizes)
    if not any(label.any() for label in counts):
        return
    for start in (None, prior_offsets(counts)):
        shifted = batch.logits if start is None else batch.logits + start
        tuned = batch.logits + tuned_offsets(batch.logits, batch.targets, batch.sizes, start)
        before, after = (class_balanced_accuracy(z, batch.targets, batch.sizes) for z in (shifted, tuned))
        assert after >= before - 1e-6


def test_three_classes_come_near_the_best_of_a_grid() -> None:
    batch = make_batch([3], 80, seed=1, skew=2.0)
    grid = torch.linspace(-6, 6, 61)
    best = max(
        class_balanced_accuracy(batch.logits + torch.tensor([0.0, a, b]), batch.targets).item()
        for a in grid.tolist()
        for b in grid.tolist()
    )
    tuned = batch.logits + tuned_offsets(batch.logits, batch.targets)
    assert class_balanced_accuracy(tuned, batch.targets) >= best - 0.03
    assert class_balanced_accuracy(tuned, batch.targets) > class_balanced_accuracy(batch.logits, batch.targets)


def test_an_absent_class_keeps_its_offset() -> None:
    logits, targets = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
    assert tuned_offsets(logits, targets)[3] == 0
    assert tuned_offsets(logits, targets, start=torch.tensor([0.0, 0.0, 0.0, 2.0]))[3] == 2


def test_a_label_that_nobody_has() -> None:
    logits, targets = torch.zeros(3, 4), torch.tensor([[0, -1], [1, -1], [1, -1]])
    assert not tuned_offsets(logits, targets, [2, 2])[2:].any()


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
    plain = CrossEntropy()(batch.logits, batch.targets, (2, 5))
    adjusted = LogitAdjustment(1.0, prior_offsets(counts))(batch.logits)
    torch.testing.assert_close(LogitAdjusted(counts)(adjusted, batch.targets, (2, 5)), plain, atol=1e-6, rtol=0)


def calibrated(sizes: list[int], samples: int, seed: int = 0, missing: float = 0.0) -> Batch:
    """Targets drawn from the softmax of the logits themselves."""
    batch = make_batch(sizes, samples, seed, scale=1.5, missing=missing)
    g = torch.Generator().manual_seed(seed)
    drawn = [torch.multinomial(p, 1, generator=g) for p in oracles.softmax_per_label(batch.logits, sizes)]
    return batch._replace(targets=torch.where(batch.targets >= 0, torch.cat(drawn, 1), -1))


SCALINGS = [TemperatureScaling, VectorScaling]


@pytest.mark.parametrize("scaling", SCALINGS)
@given(batch=batches(most_labels=4, most_classes=9, most_samples=40))
def test_what_it_was_fitted_on_is_never_less_likely_than_before(scaling: Any, batch: Batch) -> None:
    fitted = scaling.fit(batch.logits, batch.targets, batch.sizes)
    before = oracles.negative_log_likelihood(batch.logits, batch.targets, batch.sizes)
    after = oracles.negative_log_likelihood(fitted(batch.logits), batch.targets, batch.sizes)
    assert all(b <= a + 1e-9 * (1 + a) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_calibrated_logits_are_left_alone(scaling: Any) -> None:
    batch = calibrated([2, 5], 20_000, missing=0.1)
    fitted = scaling.fit(batch.logits, batch.targets, batch.sizes)
    scales = fitted.temperatures if scaling is TemperatureScaling else fitted.scales
    torch.testing.assert_close(scales, torch.ones(len(scales)), atol=0.06, rtol=0)
    if scaling is VectorScaling:
        torch.testing.assert_close(fitted.offsets, torch.zeros(7), atol=0.1, rtol=0)


def test_a_temperature_is_found_again_label_by_label() -> None:
    batch = calibrated([2, 5, 3], 20_000, seed=1)
    hot = torch.cat([batch.logits[:, :2] * 4, batch.logits[:, 2:7] * 0.5, batch.logits[:, 7:]], 1)
    found = TemperatureScaling.fit(hot, batch.targets, batch.sizes).temperatures
    torch.testing.assert_close(found, torch.tensor([4.0, 0.5, 1.0]), atol=0, rtol=0.06)


def test_no_other_temperature_is_more_likely() -> None:
    batch = calibrated([3, 4], 60, seed=5, missing=0.2)
    fitted = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)
    best = oracles.negative_log_likelihood(fitted(batch.logits), batch.targets, batch.sizes)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        other = oracles.negative_log_likelihood(factor * fitted(batch.logits), batch.targets, batch.sizes)
        assert all(o > b for o, b in zip(other, best, strict=True))


def test_where_no_temperature_is_best_the_search_ends_within_its_bounds() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    coldest, hottest = TEMPERATURES
    # All right: the colder, the better, until the last digit of the probability is reached.
    assert coldest <= TemperatureScaling.fit(logits, torch.tensor([0, 1])).temperatures.item() < 0.1
    assert TemperatureScaling.fit(logits, torch.tensor([1, 0])).temperatures.item() == pytest.approx(hottest)


@given(batches(most_labels=4, most_classes=9, most_samples=40))
def test_a_temperature_changes_no_decision(batch: Batch) -> None:
    fitted = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)
    assert torch.equal(decide(fitted(batch.logits), batch.sizes), decide(batch.logits, batch.sizes))


@pytest.mark.parametrize("penalty", [0.1, 1.0, 30.0])
def test_vector_scaling_ends_where_its_cost_is_flat(penalty: float) -> None:
    """The cost is strictly convex, so a slope of 0 is the one best place."""
    batch = make_batch([2, 5], 80, seed=6, missing=0.2)
    fitted = VectorScaling.fit(batch.logits, batch.targets, batch.sizes, penalty=penalty)
    scales, offsets = (x.double().requires_grad_() for x in (fitted.scales, fitted.offsets))
    losses = CrossEntropy()(scales * batch.logits + offsets, batch.targets, (2, 5))
    cost = losses.sum() + penalty / 2 * ((scales - 1).square().sum() + offsets.square().sum())
    for slope in torch.autograd.grad(cost, [scales, offsets]):
        assert slope.abs().max() < 1e-3
    assert not torch.allclose(fitted.scales, torch.ones(7))


def test_labels_are_scaled_independently() -> None:
    batch = make_batch([2, 5], 80, seed=7, missing=0.2)
    for scaling in (TemperatureScaling, VectorScaling):
        both = scaling.fit(batch.logits, batch.targets, batch.sizes)(batch.logits)
        first = scaling.fit(batch.logits[:, :2], batch.targets[:, :1])(batch.logits[:, :2])
        torch.testing.assert_close(both[:, :2], first, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_overconfident_probabilities_become_calibrated(scaling: Any) -> None:
    """Fitted on one half, measured on the other."""
    batch = calibrated([4], 8000, seed=8)
    logits = 5 * batch.logits
    fitted = scaling.fit(logits[:4000], batch.targets[:4000])
    before, after = (float(calibration_error(z[4000:], batch.targets[4000:], (4,))) for z in (logits, fitted(logits)))
    assert before > 0.15
    assert after < 0.04


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_label_that_nobody_has_is_not_scaled(scaling: Any) -> None:
    batch = make_batch([2, 3], 30, seed=9)
    batch.targets[:, 1] = -1
    fitted = scaling.fit(batch.logits, batch.targets, [2, 3])
    torch.testing.assert_close(fitted(batch.logits)[:, 2:], batch.logits[:, 2:])
    assert not torch.allclose(fitted(batch.logits)[:, :2], batch.logits[:, :2])


def test_fitted_changes_can_be_written_down_and_read_again() -> None:
    batch = make_batch([2, 5], 60, seed=10)
    counts = class_counts(batch.targets, batch.sizes)
    for fitted in (
        LogitAdjustment.fit(batch.logits, batch.targets, batch.sizes, counts=counts),
        TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes),
        VectorScaling.fit(batch.logits, batch.targets, batch.sizes),
    ):
        written = json.loads(json.dumps(fitted.as_dict()))
        read = type(fitted).from_dict(written)  # type: ignore[attr-defined]
        assert torch.equal(read(batch.logits), fitted(batch.logits))
        assert read.as_dict() == fitted.as_dict()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_fitting_inside_no_grad_and_on_float32(scaling: Any) -> None:
    batch = make_batch([2, 5], 60, seed=11)
    expected = scaling.fit(batch.logits, batch.targets, batch.sizes)(batch.logits)
    with torch.no_grad():
        fitted = scaling.fit(batch.logits.float(), batch.targets, batch.sizes)
    assert fitted(batch.logits.float()).dtype == torch.float32
    torch.testing.assert_close(fitted(batch.logits), expected, atol=1e-3, rtol=1e-3)


def test_wrong_scalings() -> None:
    logits, targets = torch.zeros(2, 2), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="penalty to be a positive number, but got 0"):
        VectorScaling.fit(logits, targets, penalty=0)
    with pytest.raises(ValueError, match="taus to be a list of at least one number"):
        LogitAdjustment.fit(logits, targets, counts=torch.tensor([1, 1]), taus=())
    with pytest.raises(ValueError, match=r"targets to be as long as logits \(2 samples\), but got 3"):
        TemperatureScaling.fit(logits, torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 2\) for sizes \[2\]"):
        TemperatureScaling.fit(logits, targets)(torch.zeros(2, 3))
