"""Batches of a few classes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.cases import Batch, batches
from helpers.samplers import SIZES, TARGETS, shuffled_classes, slow_counts
from rectifier.samplers import (
    ClassBatchSampler,
    class_batches,
)


def kept_promises(batch: list[int], targets: Tensor, samples: int) -> int:
    """How many classes have ``samples`` entries in the batch, different ones as far as the class has them."""
    kept = 0
    for a, label in enumerate(slow_counts(targets)):
        for c, n in label.items():
            own = [i for i in batch if targets[i, a] == c]
            kept += len(own) >= samples and len(set(own)) >= min(samples, n)
    return kept


@settings(max_examples=150)
@given(batch=batches(most_labels=4), data=st.data())
def test_every_batch_keeps_its_promise(batch: Batch, data: Any) -> None:
    present = sum(map(len, slow_counts(batch.targets)))
    if not present:
        return
    classes, samples = data.draw(st.integers(1, min(present, 7))), data.draw(st.integers(1, 4))
    batch_size = classes * samples + data.draw(st.integers(0, 3))
    options = {"batch_size": batch_size, "batches": data.draw(st.integers(1, 12))}
    sampler = ClassBatchSampler(batch.targets, batch.sizes, classes=classes, samples=samples, **options)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert sampler.plan().shape == (options["batches"], batch_size)
        for drawn in sampler:
            assert kept_promises(drawn[: classes * samples], batch.targets, samples) >= classes


@given(present=st.integers(1, 12), data=st.data(), batches=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_classes_take_turns(present: int, data: Any, batches: int, seed: int) -> None:
    classes = data.draw(st.integers(1, present))
    turns = class_batches._turns(batches, classes, present, torch.Generator().manual_seed(seed)).tolist()
    assert len(turns) == batches
    seen = [0] * present
    for row in turns:
        assert len(set(row)) == classes
        for c in row:
            assert seen[c] == min(seen)  # no class has a turn before all others had as many
            seen[c] += 1


def test_all_allowed_turns_are_equally_likely() -> None:
    """Two of three classes a batch: the first two are a free choice of 6 and the third the one left over, who then
    meets either of the first two, before the others come in either free order."""
    found = Counter(str(class_batches._turns(3, 2, 3, torch.Generator().manual_seed(s)).tolist()) for s in range(2400))
    assert len(found) == 6 * 2 * 2
    assert all(abs(n - 100) < 50 for n in found.values())


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_samples_of_a_class_go_round(ranks: int) -> None:
    """One label of classes with 1, 2, 7 and 30 samples, 3 at a time: none is used twice before all are used once."""
    targets = shuffled_classes([1, 2, 7, 30])
    sampler = ClassBatchSampler(targets, classes=3, samples=3, batches=31, num_replicas=ranks, rank=0)
    used = [0] * len(targets)
    for batch in sampler.plan().tolist():
        for start in (0, 3, 6):
            own = batch[start : start + 3]
            classes = targets[own].unique()
            assert len(classes) == 1
            members = (targets == classes).nonzero().flatten().tolist()
            assert len(set(own)) == min(3, len(members))
            for i in own:
                assert used[i] == min(used[j] for j in members)
                used[i] += 1


def test_the_cycle_of_a_class_is_shuffled() -> None:
    """Each of 6 samples is as often the first of its class as any other."""
    targets = torch.tensor([0] * 6 + [1] * 3)
    sampler = ClassBatchSampler(targets, [2], classes=2, samples=2, batches=1)
    first: Counter[int] = Counter()
    for epoch in range(600):
        sampler.set_epoch(epoch)
        first[min(i for i in sampler.plan()[0].tolist() if i < 6)] += 1
    assert [first[i] for i in range(6)] == pytest.approx([200, 160, 120, 80, 40, 0], abs=60)


def test_larger_batches_are_filled_with_everybody() -> None:
    targets = torch.tensor([0] * 17 + [1] * 2 + [-1])
    sampler = ClassBatchSampler(targets, [2], classes=2, samples=1, batch_size=7, batches=8)
    assert sampler.plan()[:, 2:].flatten().bincount(minlength=20).tolist() == [2] * 20


def test_the_number_of_batches() -> None:
    options: dict[str, Any] = {"classes": 2, "samples": 3}
    assert len(ClassBatchSampler(TARGETS, SIZES, **options)) == 15
    assert len(ClassBatchSampler(TARGETS, SIZES, **options, batch_size=20)) == 4
    assert len(ClassBatchSampler(TARGETS, SIZES, **options, num_replicas=4, rank=0)) == 3
    assert len(ClassBatchSampler(TARGETS[:7], SIZES, **options, num_replicas=4, rank=0)) == 1
    assert ClassBatchSampler(TARGETS, SIZES, classes=np.int64(2), samples=np.int64(3)).plan().shape == (15, 6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"classes": 3}, "classes to be from 1 to 2, the number of classes that have samples, but got 3"),
        ({"classes": 0}, "classes to be from 1 to 2, .* but got 0"),
        ({"samples": 0}, "samples to be a positive integer, but got 0"),
        ({"batch_size": 5}, r"batch_size to be at least classes \* samples = 6, but got 5"),
        ({"batches": 0}, "batches to be a positive integer, but got 0"),
        ({"batches": 1, "num_replicas": 2, "rank": 0}, "epoch to be of at least one entry for each of the 2 ranks"),
        ({"classes": "a", "samples": -1, "seed": -1}, "(?s)classes to be.*samples to be.*seed to be"),
    ],
)
def test_wrong_class_batches(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        ClassBatchSampler(torch.tensor([0, 2, 2, 0, -1]), [4], **{"classes": 2, "samples": 3, **options})


def test_one_complaint_for_one_mistake() -> None:
    with pytest.raises(ValueError, match=r"^Expected samples to be a positive integer, but got 'a'\.$"):
        ClassBatchSampler(torch.tensor([0, 1]), classes=2, samples="a")  # type: ignore[arg-type]
