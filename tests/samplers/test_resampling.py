"""Over- and down-sampling, compared with loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.cases import Batch, batches
from helpers.samplers import SIZES, TARGETS, shuffled_classes, slow_counts
from rectifier.samplers import (
    DownSampler,
    OverSampler,
)


def slow_ratio(row: list[int], counts: list[Counter[int]], goal: Callable[..., int]) -> tuple[Fraction, int] | None:
    """The largest goal / n over the labels of a sample, and the first label that has it; None without any label."""
    found = [(Fraction(goal(counts[a].values()), counts[a][c]), -a) for a, c in enumerate(row) if c >= 0]
    return (max(found)[0], -max(found)[1]) if found else None


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), epoch=st.integers(0, 50))
def test_one_label_is_balanced_exactly(sizes: list[int], epoch: int) -> None:
    targets = shuffled_classes(sizes)
    cases = [(OverSampler, max(sizes)), (DownSampler, min(filter(None, sizes)))]
    for (make, goal), combine in product(cases, ("largest", "mean")):
        sampler = make(targets, [len(sizes)], combine=combine)
        sampler.set_epoch(epoch)
        drawn = sampler.plan().bincount(minlength=len(targets))
        for c, n in enumerate(sizes):
            copies = drawn[targets == c]
            assert copies.sum() == (goal if n else 0)
            assert all(goal // n <= k <= -(-goal // n) for k in copies.tolist())


@settings(max_examples=200)
@given(batch=batches(), epoch=st.integers(0, 5))
def test_several_labels_equal_the_loop_version(batch: Batch, epoch: int) -> None:
    """The samples driven by one class have ceil(g * ratio) copies together, each floor(ratio) or ceil(ratio)."""
    counts = slow_counts(batch.targets)
    if not any(counts):
        return
    for make, goal, unlabelled in ((OverSampler, max, 1), (DownSampler, min, 0)):
        sampler = make(batch.targets, batch.sizes, combine="largest")
        sampler.set_epoch(epoch)
        copies = sampler.plan().bincount(minlength=len(batch.targets)).tolist()
        driven: dict[Any, list[int]] = {}
        ratios: dict[Any, Fraction] = {}
        for row, times in zip(batch.targets.tolist(), copies, strict=True):
            found = slow_ratio(row, counts, goal)
            if found is None:
                assert times == unlabelled
                continue
            ratio, label = found
            assert floor(ratio) <= times <= ceil(ratio)
            driven.setdefault((label, row[label]), []).append(times)
            ratios[label, row[label]] = ratio
        assert {k: sum(times) for k, times in driven.items()} == {
            k: ceil(len(driven[k]) * r) for k, r in ratios.items()
        }


def test_several_labels_by_hand() -> None:
    """Label 0 counts 4, 1 and label 1 counts 1, 3; the last sample has no label."""
    targets = torch.tensor([[0, 0], [0, 1], [0, 1], [0, -1], [1, 1], [-1, -1]])
    assert OverSampler(targets, [2, 2], combine="largest").plan().bincount(minlength=6).tolist() == [3, 1, 1, 1, 4, 1]
    down = DownSampler(targets, [2, 2], combine="largest")
    kept = torch.stack([down.plan().bincount(minlength=6) for epoch in range(40) if not down.set_epoch(epoch)])
    assert (kept[:, [0, 4]] == 1).all()  # the rarest of a label
    assert (kept[:, 1] + kept[:, 2] == 1).all()  # two of three are driven by a class with n_min / n = 1/3
    assert (kept[:, 3] == 1).all()  # alone driven by the largest class: a part of a copy is a whole one
    assert (kept[:, 5] == 0).all()
    assert 0 < kept[:, 1].sum() < 40


@settings(max_examples=100)
@given(batch=batches(), epoch=st.integers(0, 5))
def test_the_mean_over_labels_equals_the_loop_version(batch: Batch, epoch: int) -> None:
    counts = slow_counts(batch.targets)
    if not any(counts):
        return
    for make, goal, unlabelled in ((OverSampler, max, 1), (DownSampler, min, 0)):
        sampler = make(batch.targets, batch.sizes)
        sampler.set_epoch(epoch)
        copies = sampler.plan().bincount(minlength=len(batch.targets)).tolist()
        driven: dict[Any, Fraction] = {}
        for row, times in zip(batch.targets.tolist(), copies, strict=True):
            ratios = [Fraction(goal(counts[a].values()), counts[a][c]) for a, c in enumerate(row) if c >= 0]
            factor = sum(ratios) / len(ratios) if ratios else Fraction(unlabelled)
            assert floor(factor) <= times <= ceil(factor)
            found = slow_ratio(row, counts, goal)
            key = found and (found[1], row[found[1]])
            driven[key] = driven.get(key, Fraction(0)) + factor
        assert sum(copies) == sum(map(ceil, driven.values()))


def test_samples_come_in_no_order_of_theirs() -> None:
    """Copies of one sample and samples of one class are scattered over the epoch."""
    plan = OverSampler(torch.tensor([0] * 300 + [1] * 3)).plan()
    for half in plan.split(300):
        assert 100 < (half < 300).sum() < 200
        assert set(half[half >= 300].tolist()) == {300, 301, 302}
    assert not torch.equal(plan, plan.sort().values)


def test_combine_is_one_of_two() -> None:
    with pytest.raises(ValueError, match=r"combine to be one of 'largest', 'mean', but got 'largets'\. Did you mean"):
        OverSampler(TARGETS, SIZES, combine="largets")


@pytest.mark.parametrize(("make", "goal"), [(OverSampler, max), (DownSampler, min)])
def test_extra_copies_go_round(make: Any, goal: Callable[..., int]) -> None:
    """Over many epochs every sample has its share of copies, and no class of any label stays below the goal."""
    epochs = 400
    sampler, counts = make(TARGETS, SIZES, combine="largest"), slow_counts(TARGETS)
    total = torch.zeros(len(TARGETS))
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total += sampler.plan().bincount(minlength=len(TARGETS))
    mean = total / epochs
    for i, row in enumerate(TARGETS.tolist()):
        found = slow_ratio(row, counts, goal)
        if found is not None:  # a copy more or less has a standard deviation of at most 1/2, in the mean 1/40
            assert mean[i] > float(found[0]) - 5 / 40
    for a, label in enumerate(counts):
        for c in label:
            assert mean[TARGETS[:, a] == c].sum() > goal(label.values()) - 1
