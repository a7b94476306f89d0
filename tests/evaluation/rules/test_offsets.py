"""Decision rules against their definitions, spelt out in loops."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from torch import Tensor

from helpers.cases import Batch, batches, make_batch
from rectifier import class_balanced_accuracy, class_counts
from rectifier.evaluation.rules.offsets import (
    STRENGTHS,
    TAUS,
    LogitAdjustment,
    ThresholdAdjustment,
    adjustment_offsets,
    prior_offsets,
    tuned_offsets,
)
from rectifier.labels.columns import softmax
from rectifier.losses.cross_entropy import CrossEntropy
from rectifier.losses.logit_adjusted import LogitAdjusted


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
        if {0, 1} <= set(targets[:, a].tolist()):
            own = tuned[:, 2 * a : 2 * a + 2]
            found = class_balanced_accuracy(own, targets[:, a]).item()
            assert found == pytest.approx(slow_best_of_two(logits[:, 2 * a : 2 * a + 2], targets[:, a]), abs=1e-6)


@pytest.mark.parametrize("start", [None, torch.tensor([-1.0, 1.0, 0.5])])
def test_a_label_with_one_class_alone_is_left_as_it_is(start: Tensor | None) -> None:
    logits, targets = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(50, dtype=torch.long)
    offsets = tuned_offsets(logits, targets, [3], start)
    assert offsets.tolist() == ([0, 0, 0] if start is None else start.tolist())


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


def slow_climb(logits: Tensor, targets: Tensor) -> Tensor:
    """Move one class after the other: to the middle between two samples where most is right, as near as possible."""
    offsets = torch.zeros(logits.shape[1], dtype=torch.float64)

    def right(moved: Tensor) -> float:
        return class_balanced_accuracy(logits + moved, targets).item()

    def moved_to(k: int, place: float) -> Tensor:
        changed = offsets.clone()
        changed[k] = place
        return changed

    for _ in range(10):
        before = offsets.clone()
        for k in sorted(set(targets.tolist())):
            others = (logits + offsets).clone()
            others[:, k] = -math.inf
            needed = sorted({float(v) for v in others.amax(1) - logits[:, k]})
            places = [needed[0] - 1, *((a + b) / 2 for a, b in pairwise(needed)), needed[-1] + 1]
            scores = [right(moved_to(k, place)) for place in places]
            if max(scores) > right(offsets) + 1e-9:
                best = [place for place, score in zip(places, scores, strict=True) if score > max(scores) - 1e-9]
                offsets = moved_to(k, min(best, key=lambda place: abs(place - float(before[k]))))
        if torch.equal(before, offsets):
            break
    return offsets


@pytest.mark.parametrize(("classes", "samples"), [(3, 20), (4, 40), (7, 60)])
def test_tuning_climbs_class_by_class(classes: int, samples: int) -> None:
    generator = torch.Generator().manual_seed(classes)
    logits = torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, classes, (samples,), generator=generator)
    expected = slow_climb(logits, targets)
    assert expected.count_nonzero() > 1
    torch.testing.assert_close(tuned_offsets(logits, targets), expected.float())


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


def test_what_is_fitted_can_be_written_down_and_read_again() -> None:
    batch = make_batch([2, 5], 60, seed=10)
    counts = class_counts(batch.targets, batch.sizes)
    fitted = LogitAdjustment.fit(batch.logits, batch.targets, batch.sizes, counts=counts)
    read = LogitAdjustment.from_dict(json.loads(json.dumps(fitted.as_dict())))
    assert torch.equal(read(batch.logits), fitted(batch.logits))
    assert read.as_dict() == fitted.as_dict()


def test_no_tau_to_choose() -> None:
    with pytest.raises(ValueError, match="taus to be a list of at least one number"):
        LogitAdjustment.fit(torch.zeros(2, 2), torch.tensor([0, 1]), counts=torch.tensor([1, 1]), taus=())
