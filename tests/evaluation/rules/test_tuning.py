"""Tuned offsets against their definition, spelt out in loops."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from torch import Tensor

from helpers.cases import Batch, batches, make_batch
from rectifier import class_balanced_accuracy, class_counts
from rectifier.evaluation.rules import prior_offsets
from rectifier.evaluation.rules.tuning import tuned_offsets


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


def test_a_label_without_samples() -> None:
    logits, targets = torch.zeros(3, 4), torch.tensor([[0, -1], [1, -1], [1, -1]])
    assert not tuned_offsets(logits, targets, [2, 2])[2:].any()


# Ties


@pytest.mark.parametrize(("start", "expected"), [(0.0, 1.5), (5.0, 3.5), (2.4, 1.5), (2.6, 3.5)])
def test_of_equally_good_thresholds_the_nearest_to_the_start_is_chosen(start: float, expected: float) -> None:
    """Class 1 wins by more than 1, 2, 3 or 4; a threshold at 1.5 and one at 3.5 are right three times of four."""
    logits = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]])
    targets = torch.tensor([1, 0, 1, 0])
    offsets = tuned_offsets(logits, targets, start=torch.tensor([0.0, start]))
    assert offsets.tolist() == [0.0, expected]


@pytest.mark.parametrize("classes", [2, 4])
def test_where_nothing_is_gained_the_start_is_kept(classes: int) -> None:
    logits, targets = 9 * torch.eye(classes), torch.arange(classes)
    assert not tuned_offsets(logits, targets).any()
    start = torch.linspace(-1, 1, classes)
    assert torch.equal(tuned_offsets(logits, targets, start=start), start)


def test_equal_scores_are_no_hit_of_the_later_class() -> None:
    """Both samples tie, so argmax takes class 0 for both; any gain of class 1 loses class 0 as well."""
    logits, targets = torch.zeros(2, 2), torch.tensor([0, 1])
    assert not tuned_offsets(logits, targets).any()
