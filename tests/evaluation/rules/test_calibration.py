"""Calibration: likelihoods against loops, optima against their neighbours, and what scaling may not change."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from torch import Tensor

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier.evaluation.metrics.ranking import calibration_error
from rectifier.evaluation.rules.calibration import TEMPERATURES, TemperatureScaling


def decide(scores: Tensor, sizes: list[int]) -> Tensor:
    return torch.stack([block.argmax(1) for block in scores.split(sizes, 1)], 1)


def calibrated(sizes: list[int], samples: int, seed: int = 0, missing: float = 0.0) -> Batch:
    """Targets drawn from the softmax of the logits themselves."""
    batch = make_batch(sizes, samples, seed, scale=1.5, missing=missing)
    g = torch.Generator().manual_seed(seed)
    drawn = [torch.multinomial(p, 1, generator=g) for p in oracles.softmax_per_label(batch.logits, sizes)]
    return batch._replace(targets=torch.where(batch.targets >= 0, torch.cat(drawn, 1), -1))


@given(batches(most_labels=4, most_classes=9, most_samples=40))
def test_what_it_was_fitted_on_is_never_less_likely_than_before(batch: Batch) -> None:
    fitted = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)
    before = oracles.negative_log_likelihood(batch.logits, batch.targets, batch.sizes)
    after = oracles.negative_log_likelihood(fitted(batch.logits), batch.targets, batch.sizes)
    assert all(b <= a + 1e-9 * (1 + a) for a, b in zip(before, after, strict=True))


def test_calibrated_logits_are_left_alone() -> None:
    batch = calibrated([2, 5], 20_000, missing=0.1)
    fitted = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)
    torch.testing.assert_close(fitted.temperatures, torch.ones(2), atol=0.06, rtol=0)


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


def test_labels_are_scaled_independently() -> None:
    batch = make_batch([2, 5], 80, seed=7, missing=0.2)
    both = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)(batch.logits)
    first = TemperatureScaling.fit(batch.logits[:, :2], batch.targets[:, :1])(batch.logits[:, :2])
    torch.testing.assert_close(both[:, :2], first, atol=1e-4, rtol=1e-4)


def test_overconfident_probabilities_become_calibrated() -> None:
    """Fitted on one half, measured on the other."""
    batch = calibrated([4], 8000, seed=8)
    logits = 5 * batch.logits
    fitted = TemperatureScaling.fit(logits[:4000], batch.targets[:4000])
    before, after = (float(calibration_error(z[4000:], batch.targets[4000:], (4,))) for z in (logits, fitted(logits)))
    assert before > 0.15
    assert after < 0.04


def test_a_label_without_samples_is_not_scaled() -> None:
    batch = make_batch([2, 3], 30, seed=9)
    batch.targets[:, 1] = -1
    fitted = TemperatureScaling.fit(batch.logits, batch.targets, [2, 3])
    torch.testing.assert_close(fitted(batch.logits)[:, 2:], batch.logits[:, 2:])
    assert not torch.allclose(fitted(batch.logits)[:, :2], batch.logits[:, :2])


def test_what_is_fitted_can_be_written_down_and_read_again() -> None:
    batch = make_batch([2, 5], 60, seed=10)
    fitted = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)
    read = TemperatureScaling.from_dict(json.loads(json.dumps(fitted.as_dict())))
    assert torch.equal(read(batch.logits), fitted(batch.logits))
    assert read.as_dict() == fitted.as_dict()


def test_fitting_inside_no_grad_and_on_float32() -> None:
    batch = make_batch([2, 5], 60, seed=11)
    expected = TemperatureScaling.fit(batch.logits, batch.targets, batch.sizes)(batch.logits)
    with torch.no_grad():
        fitted = TemperatureScaling.fit(batch.logits.float(), batch.targets, batch.sizes)
    assert fitted(batch.logits.float()).dtype == torch.float32
    torch.testing.assert_close(fitted(batch.logits), expected, atol=1e-3, rtol=1e-3)


def test_wrong_scalings() -> None:
    logits, targets = torch.zeros(2, 2), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"targets to be as long as logits \(2 samples\), but got 3"):
        TemperatureScaling.fit(logits, torch.tensor([0, 1, 1]))
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 2\) for sizes \[2\]"):
        TemperatureScaling.fit(logits, targets)(torch.zeros(2, 3))
