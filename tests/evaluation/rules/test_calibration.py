"""Calibration: likelihoods against loops, optima against their neighbours, and what scaling may not change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier.evaluation.metrics.ranking import calibration_error
from rectifier.evaluation.rules import TemperatureScaling, VectorScaling
from rectifier.evaluation.rules.calibration import TEMPERATURES
from rectifier.losses.cross_entropy import cross_entropy

SCALINGS = [TemperatureScaling, VectorScaling]


def decide(scores: Tensor, sizes: list[int]) -> Tensor:
    return torch.stack([block.argmax(1) for block in scores.split(sizes, 1)], 1)


def calibrated(sizes: list[int], samples: int, seed: int = 0, missing: float = 0.0) -> Batch:
    """Targets drawn from the softmax of the logits themselves."""
    batch = make_batch(sizes, samples, seed, scale=1.5, missing=missing)
    g = torch.Generator().manual_seed(seed)
    drawn = [torch.multinomial(p, 1, generator=g) for p in oracles.softmax_per_label(batch.logits, sizes)]
    return batch._replace(targets=torch.where(batch.targets >= 0, torch.cat(drawn, 1), -1))


@pytest.mark.parametrize("scaling", SCALINGS)
@settings(max_examples=50)
@given(batch=batches(most_labels=4, most_classes=9, most_samples=40))
def test_what_it_was_fitted_on_is_never_less_likely_than_before(scaling: Any, batch: Batch) -> None:
    if not (batch.targets >= 0).any():
        return
    fitted = scaling(batch.sizes).fit(batch.logits, batch.targets)
    before = oracles.negative_log_likelihood(batch.logits, batch.targets, batch.sizes)
    after = oracles.negative_log_likelihood(fitted(batch.logits), batch.targets, batch.sizes)
    assert all(b <= a + 1e-9 * (1 + a) for a, b in zip(before, after, strict=True))


def test_calibrated_logits_are_left_alone() -> None:
    batch = calibrated([2, 5], 20_000, missing=0.1)
    fitted = TemperatureScaling(batch.sizes).fit(batch.logits, batch.targets)
    torch.testing.assert_close(fitted.temperatures, torch.ones(2), atol=0.06, rtol=0)


def test_a_temperature_is_found_again_label_by_label() -> None:
    batch = calibrated([2, 5, 3], 20_000, seed=1)
    hot = torch.cat([batch.logits[:, :2] * 4, batch.logits[:, 2:7] * 0.5, batch.logits[:, 7:]], 1)
    found = TemperatureScaling(batch.sizes).fit(hot, batch.targets).temperatures
    torch.testing.assert_close(found, torch.tensor([4.0, 0.5, 1.0]), atol=0, rtol=0.06)


def test_no_other_temperature_is_more_likely() -> None:
    batch = calibrated([3, 4], 60, seed=5, missing=0.2)
    fitted = TemperatureScaling(batch.sizes).fit(batch.logits, batch.targets)
    best = oracles.negative_log_likelihood(fitted(batch.logits), batch.targets, batch.sizes)
    for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        other = oracles.negative_log_likelihood(factor * fitted(batch.logits), batch.targets, batch.sizes)
        assert all(o > b for o, b in zip(other, best, strict=True))


def test_where_no_temperature_is_best_the_search_ends_within_its_bounds() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
    coldest, hottest = TEMPERATURES
    # All right: the colder, the better, until the last digit of the probability is reached.
    assert coldest <= TemperatureScaling().fit(logits, torch.tensor([0, 1])).temperatures.item() < 0.1
    assert TemperatureScaling().fit(logits, torch.tensor([1, 0])).temperatures.item() == pytest.approx(hottest)


@given(batches(most_labels=4, most_classes=9, most_samples=40))
def test_a_temperature_changes_no_decision(batch: Batch) -> None:
    if not (batch.targets >= 0).any():
        return
    fitted = TemperatureScaling(batch.sizes).fit(batch.logits, batch.targets)
    assert torch.equal(decide(fitted(batch.logits), batch.sizes), decide(batch.logits, batch.sizes))


@pytest.mark.parametrize("penalty", [0.01, 1.0, 100.0])
def test_vector_scaling_ends_where_its_cost_is_flat(penalty: float) -> None:
    """The cost is strictly convex, so a slope of 0 is the one best place."""
    batch = make_batch([2, 5], 80, seed=6, missing=0.2)
    fitted = VectorScaling(batch.sizes, penalty=penalty).fit(batch.logits, batch.targets)
    scales, offsets = (x.double().requires_grad_() for x in (fitted.scales, fitted.offsets))
    losses = cross_entropy(scales * batch.logits + offsets, batch.targets, sizes=[2, 5], reduction="none")
    cost = losses.sum() + penalty / 2 * ((scales - 1).square().sum() + offsets.square().sum())
    for slope in torch.autograd.grad(cost, [scales, offsets]):
        assert slope.abs().max() < 1e-3
    assert not torch.allclose(fitted.scales, torch.ones(7))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_labels_are_scaled_independently(scaling: Any) -> None:
    batch = make_batch([2, 5], 80, seed=7, missing=0.2)
    both = scaling(batch.sizes).fit(batch.logits, batch.targets)(batch.logits)
    first = scaling().fit(batch.logits[:, :2], batch.targets[:, :1])(batch.logits[:, :2])
    torch.testing.assert_close(both[:, :2], first, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_overconfident_probabilities_become_calibrated(scaling: Any) -> None:
    """Fitted on one half, measured on the other."""
    batch = calibrated([4], 8000, seed=8)
    logits = 5 * batch.logits
    fitted = scaling().fit(logits[:4000], batch.targets[:4000])
    before, after = (float(calibration_error(z[4000:], batch.targets[4000:], (4,))) for z in (logits, fitted(logits)))
    assert before > 0.15
    assert after < 0.04


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_label_without_samples_is_not_scaled(scaling: Any) -> None:
    batch = make_batch([2, 3], 30, seed=9)
    batch.targets[:, 1] = -1
    fitted = scaling([2, 3]).fit(batch.logits, batch.targets)
    torch.testing.assert_close(fitted(batch.logits)[:, 2:], batch.logits[:, 2:])
    assert not torch.allclose(fitted(batch.logits)[:, :2], batch.logits[:, :2])


def test_a_temperature_can_be_given() -> None:
    batch = make_batch([2, 5], 60, seed=10)
    fitted = TemperatureScaling(batch.sizes).fit(batch.logits, batch.targets)
    given = TemperatureScaling([2, 5], temperatures=fitted.temperatures.tolist())
    assert torch.equal(given(batch.logits), fitted(batch.logits))
    by_column = fitted.temperatures.double()[[0, 0, 1, 1, 1, 1, 1]]
    assert torch.equal(given(batch.logits), batch.logits / by_column)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_fitting_inside_inference_mode_and_on_float32(scaling: Any) -> None:
    batch = make_batch([2, 5], 60, seed=11)
    expected = scaling(batch.sizes).fit(batch.logits, batch.targets)(batch.logits)
    with torch.inference_mode():
        fitted = scaling(batch.sizes).fit(batch.logits.float(), batch.targets)
    assert fitted(batch.logits.float()).dtype == torch.float32
    torch.testing.assert_close(fitted(batch.logits), expected, atol=1e-3, rtol=1e-3)
    fitted(batch.logits.requires_grad_()).sum().backward()  # what was fitted there is no tensor of that mode
    assert batch.logits.grad.isfinite().all()


def test_wrong_scalings() -> None:
    logits, targets = torch.zeros(2, 2), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"targets to be as long as logits \(2 samples\), but got 3"):
        TemperatureScaling().fit(logits, torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 2\) for sizes \[2\]"):
        TemperatureScaling().fit(logits, targets)(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="penalty to be a positive number, but got 0"):
        VectorScaling(penalty=0)
    for wrong in ([1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match=r"temperatures to be 2 positive numbers, one for each of sizes \[2, 2\]"):
            TemperatureScaling([2, 2], temperatures=wrong)
