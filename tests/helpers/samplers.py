"""Targets and slow references that the tests of several samplers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from helpers.cases import make_batch
from rectifier.samplers import (
    ClassBalancedSampler,
    ClassBatchSampler,
    CurriculumSampler,
    DownSampler,
    EpochBatchSampler,
    EpochSampler,
    OverSampler,
    ProgressiveSampler,
    QuintupletSampler,
    SquareRootSampler,
    UniformSampler,
)

SIZES = [3, 2, 9]
TARGETS = make_batch(SIZES, 90, seed=3, missing=0.3).targets


def shuffled_classes(counts: list[int]) -> Tensor:
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))[order]


def slow_counts(targets: Tensor) -> list[Counter[int]]:
    return [Counter(c for c in column if c >= 0) for column in targets.T.tolist()]


def mined(sampler: QuintupletSampler) -> QuintupletSampler:
    sampler.mine(torch.randn(90, 4, generator=torch.Generator().manual_seed(0), device="cpu"))
    return sampler


# A row here puts a new sampler under every contract below.
REGISTRY: dict[str, Callable[..., EpochSampler[Any]]] = {
    "uniform": UniformSampler,
    "over": OverSampler,
    "over, largest": lambda *args, **options: OverSampler(*args, combine="largest", **options),
    "down": DownSampler,
    "down, largest": lambda *args, **options: DownSampler(*args, combine="largest", **options),
    "class-balanced": ClassBalancedSampler,
    "square-root": SquareRootSampler,
    "progressive": lambda *args, **options: ProgressiveSampler(*args, epochs=5, **options),
    "curriculum": lambda *args, **options: CurriculumSampler(*args, epochs=5, **options),
    "class-batch": lambda *args, **options: ClassBatchSampler(
        *args, classes=3, samples=2, batch_size=7, batches=20, **options
    ),
    "quintuplets": lambda *args, **options: QuintupletSampler(*args, quintuplets=4, batches=20, **options),
    "quintuplets, mined": lambda *args, **options: mined(
        QuintupletSampler(*args, quintuplets=4, batches=20, size=10, **options)
    ),
}

every_sampler = pytest.mark.parametrize("make", REGISTRY.values(), ids=REGISTRY)


# Under frameworks

EPOCHS = 3
CLASSES = shuffled_classes([50, 9, 4])
SAMPLERS: dict[str, Callable[..., EpochSampler[Any]]] = {
    "over": lambda **options: OverSampler(CLASSES, **options),
    "down": lambda **options: DownSampler(CLASSES, **options),
    "progressive": lambda **options: ProgressiveSampler(CLASSES, epochs=EPOCHS, samples=41, **options),
    "7 class batches": lambda **options: ClassBatchSampler(CLASSES, classes=2, samples=3, batches=7, **options),
    "8 class batches": lambda **options: ClassBatchSampler(CLASSES, classes=2, samples=3, batches=8, **options),
    "quintuplets": lambda **options: QuintupletSampler(CLASSES, quintuplets=2, **options),
}


def loader_of(sampler: EpochSampler[Any], data: Any = range(63), **options: Any) -> DataLoader[Any]:
    if isinstance(sampler, EpochBatchSampler):
        return DataLoader(data, batch_sampler=sampler, **options)
    return DataLoader(data, sampler=sampler, batch_size=7, **options)


def drawn_from(loader: Any) -> list[list[list[int]]]:
    """The batches of each epoch."""
    return [[batch.tolist() for batch in loader] for _ in range(EPOCHS)]


def plans_of(sampler: EpochSampler[Any]) -> list[list[Any]]:
    """The plan of each epoch, each asked for by its number."""
    plans = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        plans.append(sampler.plan().tolist())
    assert plans[0] != plans[1] != plans[2]
    return plans


def padding(ranks: Sequence[list[list[list[int]]]], plans: list[list[Any]]) -> list[list[Any]]:
    """What the ranks drew in addition to each epoch's plan. All draw equally much, and together the whole plan."""
    extra = []
    for *shards, plan in zip(*ranks, plans, strict=True):
        if isinstance(plan[0], list):  # batches stay whole and come in turn
            drawn = list(chain.from_iterable(zip(*shards, strict=True)))
            assert drawn[: len(plan)] == plan
            extra.append(drawn[len(plan) :])
        else:
            samples = [list(chain.from_iterable(shard)) for shard in shards]
            assert len({*map(len, samples)}) == 1
            drawn = Counter(chain.from_iterable(samples))
            assert not Counter(plan) - drawn
            extra.append(sorted((drawn - Counter(plan)).elements()))
    return extra
