"""Every sample as often as its classes ask for: over-sampling by replication, down-sampling by removal."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.samplers.epoch import Common, EpochSampler
from rectifier.samplers.present import present_classes


class _Replicator(EpochSampler[int]):
    """Repeat each sample by its factor: goal / n of its class where it has one label, combined where it has several.

    Whole copies are shared out among the samples driven by one class, the one with the largest goal / n: together they
    have the sum of their factors, rounded up. Who has one copy more changes with the epoch, the number never does.
    """

    _goal: str
    _unlabelled: float

    def __init__(
        self, targets: Tensor, sizes: Sizes | None = None, *, combine: str = "mean", **common: Unpack[Common]
    ) -> None:
        self.combine = combine
        present = present_classes(targets, sizes)
        goal = present.counts.new_zeros(len(present.sizes)).scatter_reduce(
            0, present.label, present.counts, self._goal, include_self=False
        )
        ratio = pad(goal[present.label].double() / present.counts, (0, 1))[present.own]  # 0 where a label is missing
        largest, driver = ratio.max(1, keepdim=True)
        labels = (ratio > 0).sum(1)
        factor = largest.squeeze(1) if combine == "largest" else ratio.sum(1) / labels
        factor = torch.where(labels > 0, factor, self._unlabelled)
        # In integers sums do not depend on the order, so every epoch has the same length.
        self._parts = (factor * _COPY).round().long()
        self._driver = present.own.gather(1, driver).squeeze(1)
        self._driven = self._parts.new_zeros(len(present.counts) + 1).index_add(0, self._driver, self._parts)
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        return [check.choice("combine", self.combine, ("largest", "mean"))]

    def length(self) -> int:
        return int(self._copies(self._driven).sum())

    def draw(self, generator: Generator) -> Tensor:
        order = torch.randperm(len(self._driver), generator=generator)
        order = order[self._driver[order].argsort(stable=True)]
        parts, before = self._parts[order], (self._driven.cumsum(0) - self._driven)[self._driver[order]]
        running = parts.cumsum(0) - before
        drawn = order.repeat_interleave(self._copies(running) - self._copies(running - parts))
        return drawn[torch.randperm(len(drawn), generator=generator)]

    def _copies(self, parts: Tensor) -> Tensor:
        """Round up to whole copies, unless only the rounding of each sample's parts is above the last."""
        return -((len(self._parts) - parts) // _COPY)


_COPY = 2**32  # parts of one copy


class OverSampler(_Replicator):
    """Over-sampling by replication: every sample at least once, those of small classes several times.

    With one label each class comes exactly n_max times, n_max the size of the largest; its samples are repeated equally
    often, give or take one copy, and which have the extra copy changes with the epoch.

    With several labels one replication serves them all. A sample's factor is the mean over its labels of n_max / n, n
    the size of its own class. ``combine="largest"`` takes the largest instead: every class is then expected at least
    n_max times, but with many labels nearly every sample has a rare class, and the epoch is many times as long. Samples
    without any label come once.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    >>> targets[OverSampler(targets).plan()].bincount().tolist()
    [5, 5]
    """

    _goal, _unlabelled = "amax", 1.0


class DownSampler(_Replicator):
    """Down-sampling by removal: no sample more than once, those of large classes seldom.

    With one label each class is cut to exactly n_min samples, n_min the size of the smallest class that has any; which
    ones stay changes with the epoch.

    With several labels a sample stays with the mean over its labels of n_min / n, n the size of its own class.
    ``combine="largest"`` takes the largest instead, so that a sample of the rarest class of any label always stays;
    with many labels that is nearly every sample, and nothing is removed. Samples without any label have nothing to
    balance and are left out.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    >>> targets[DownSampler(targets).plan()].bincount().tolist()
    [2, 2]
    """

    _goal, _unlabelled = "amin", 0.0
