"""Batches with several samples of each of several classes."""

from __future__ import annotations

from functools import partial
from math import gcd
from typing import Unpack

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.samplers.base import Common
from rectifier.samplers.batches import EpochBatchSampler
from rectifier.samplers.class_members import Targets, present_classes


class ClassBatchSampler(EpochBatchSampler):
    """Batches that each hold at least ``samples`` samples of each of ``classes`` different classes.

    For ``DataLoader(batch_sampler=...)``. With several labels a class is a (label, class) pair, and one sample may
    count for two of its classes. All classes that have samples take turns: over the batches of all ranks, no class
    comes again before every other has come as often. Within a class the samples follow a cycle, shuffled for the epoch:
    no sample comes again before all have come. So the samples of a batch are different wherever the class has enough.

    ``plan()`` is ``(batches, batch_size)``; its first ``classes * samples`` columns go class by class. A larger
    ``batch_size`` fills the batch with samples of all classes. ``batches`` is by default as many as the samples fill,
    and at least one for each rank.

    >>> targets = torch.tensor([0] * 90 + [1] * 6 + [2] * 4)
    >>> sampler = ClassBatchSampler(targets, classes=2, samples=3)
    >>> len(sampler), [len(targets[batch].unique()) for batch in sampler] == [2] * 16
    (16, True)
    """

    def __init__(
        self,
        targets: Targets,
        sizes: Sizes | None = None,
        *,
        classes: int,
        samples: int,
        batch_size: int | None = None,
        batches: int | None = None,
        **common: Unpack[Common],
    ) -> None:
        self._present = present_classes(targets, sizes)
        self._members = self._present.members()
        self.classes, self.samples, self.batches = classes, samples, batches
        # 1 if classes or samples are wrong themselves: one complaint is enough.
        self._promised = classes * samples if check.is_count(classes) and check.is_count(samples) else 1
        self.batch_size = self._promised if batch_size is None else batch_size
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        most = len(self._present.counts)
        wanted = f"from 1 to {most}, the number of classes that have samples"
        enough = check.is_count(self.batch_size) and self.batch_size >= self._promised
        return [
            check.that("classes", self.classes, wanted, check.is_count(self.classes) and self.classes <= most),
            check.count("samples", self.samples),
            check.that("batch_size", self.batch_size, f"at least classes * samples = {self._promised}", enough),
            None if self.batches is None else check.count("batches", self.batches),
        ]

    def length(self) -> int:
        by_default = max(len(self._present.own) // self.batch_size, self.num_replicas)
        return int(by_default if self.batches is None else self.batches)

    def draw(self, generator: Generator) -> Tensor:
        turns = _turns(self.total, self.classes, len(self._present.counts), generator).flatten()
        shuffled = torch.randperm(len(self._members), generator=generator)
        cycle = self._members[shuffled[self._present.class_of_member[shuffled].argsort(stable=True)]]
        place = _places(turns)[:, None] * self.samples + torch.arange(self.samples)
        start, count = self._present.starts[turns, None], self._present.counts[turns, None]
        promised = cycle[start + place % count].view(self.total, self._promised)
        everyone = torch.randperm(len(self._present.own), generator=generator)
        rest = torch.arange(self.total * (self.batch_size - self._promised)) % len(everyone)
        return torch.cat([promised, everyone[rest].view(self.total, self.batch_size - self._promised)], 1)


def _turns(batches: int, classes: int, present: int, generator: Generator) -> Tensor:
    """Choose the classes of each batch: ``(batches, classes)``, all different within a row.

    Row after row they are shuffled rounds of all ``present`` classes. A batch that is incomplete when a round ends must
    not get a class twice, so the next round starts with other classes. Every such round is equally likely. Rounds and
    batches end together every lcm(present, classes) turns. Blocks of that length are independent and drawn in parallel.
    The loop over the rounds of a block has at most ``classes`` steps.
    """
    rand = partial(torch.rand, dtype=torch.float64, generator=generator)
    common = gcd(present, classes)
    blocks = -(-batches * common // present)
    rounds = [torch.empty(blocks, 0, dtype=torch.int64)]
    for number in range(classes // common):
        filled = number * present % classes
        barred = rounds[-1][:, rounds[-1].shape[1] - filled :]
        allowed_first = rand((blocks, present)).scatter(1, barred, 1.0).argsort(1)
        head, others = allowed_first.tensor_split([-filled % classes], 1)
        rounds.append(torch.cat([head, others.gather(1, rand(others.shape).argsort(1))], 1))
    return torch.cat(rounds, 1).flatten()[: batches * classes].view(batches, classes)


def _places(group: Tensor) -> Tensor:
    """Number the members of each group 0, 1, 2 in their order.

    >>> _places(torch.tensor([7, 2, 7, 7, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = group.argsort(stable=True)
    counts = group.bincount()
    by_group = torch.arange(len(group)) - (counts.cumsum(0) - counts)[group[order]]
    return torch.empty_like(group).scatter(0, order, by_group)
