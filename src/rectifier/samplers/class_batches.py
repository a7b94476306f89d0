"""Batches with several samples of each of several classes."""

from __future__ import annotations

from functools import partial
from math import gcd
from typing import Unpack

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.samplers.epoch import Common, EpochSampler
from rectifier.samplers.present import present_classes


class ClassBatchSampler(EpochSampler[list[int]]):
    """Batches that each hold at least ``samples`` samples of each of ``classes`` different classes.

    For ``DataLoader(batch_sampler=...)``. With several labels a class is a (label, class) pair, and one sample may
    stand in a batch for two of its classes. All classes that have samples take turns: none comes again, over the
    batches of all ranks, before every other has come as often. Within a class the samples follow a cycle, shuffled for
    the epoch: none comes again before all have come, so those in a batch are different wherever the class has enough.

    ``plan()`` is ``(batches, batch_size)``; its first ``classes * samples`` columns go class by class. A larger
    ``batch_size`` fills the batch up with samples from all there are. ``batches`` is by default as many as the
    samples would fill, and at least one for each rank.

    >>> targets = torch.tensor([0] * 90 + [1] * 6 + [2] * 4)
    >>> sampler = ClassBatchSampler(targets, classes=2, samples=3)
    >>> len(sampler), [len(targets[batch].unique()) for batch in sampler] == [2] * 16
    (16, True)
    """

    def __init__(
        self,
        targets: Tensor,
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
        # 1 where the two are wrong themselves: one complaint is enough.
        self._promised = classes * samples if check.is_count(classes) and check.is_count(samples) else 1
        self.batch_size = self._promised if batch_size is None else batch_size
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        most = len(self._present.counts)
        enough = check.is_count(self.batch_size) and self.batch_size >= self._promised
        return [
            check.that(
                "classes",
                self.classes,
                f"from 1 to {most}, the number of classes that have samples",
                check.is_count(self.classes) and self.classes <= most,
            ),
            check.that("samples", self.samples, "a positive integer", check.is_count(self.samples)),
            check.that("batch_size", self.batch_size, f"at least classes * samples = {self._promised}", enough),
            check.that(
                "batches", self.batches, "a positive integer", self.batches is None or check.is_count(self.batches)
            ),
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

    Row after row they are shuffled rounds of all ``present`` classes. A batch that is open when a round ends must not
    see one of its classes again, so the next round begins with others; every round this allows is equally likely.
    Rounds and batches end together every lcm(present, classes) turns. Blocks of that length do not depend on each
    other and are drawn side by side; the loop over the rounds of a block has at most ``classes`` steps.
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
    """Number the members of each group 0, 1, 2 in the order they come.

    >>> _places(torch.tensor([7, 2, 7, 7, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = group.argsort(stable=True)
    counts = group.bincount()
    by_group = torch.arange(len(group)) - (counts.cumsum(0) - counts)[group[order]]
    return torch.empty_like(group).scatter(0, order, by_group)
