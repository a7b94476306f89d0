"""Over-sampling by repetition and down-sampling by removal."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.samplers.base import Common, EpochSampler
from rectifier.samplers.class_members import Targets, present_classes


class _Replicator(EpochSampler[int]):
    """Repeat each sample by its factor: goal / n of its class with one label, a combination with several labels.

    The samples with the same driving class, the one with the largest goal / n, share whole copies: together they get
    the sum of their factors, rounded up. Which samples get one copy more changes with the epoch. The total never does.
    """

    _goal: str
    _unlabelled: float

    def __init__(
        self, targets: Targets, sizes: Sizes | None = None, *, combine: str = "mean", **common: Unpack[Common]
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
        # Integer sums do not depend on the order, so every epoch has the same length.
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
        """Round up to whole copies, but ignore an excess that comes only from rounding each sample's parts."""
        return -((len(self._parts) - parts) // _COPY)


_COPY = 2**32  # parts of one copy


class OverSampler(_Replicator):
    """Over-sampling by repetition: every sample at least once, samples of small classes several times.

    With one label each class comes exactly n_max times, n_max the size of the largest. With several labels a sample's
    factor is the mean over its labels of n_max / n, n the size of its own class. ``combine="largest"`` takes the
    largest instead: then every class is expected at least n_max times. But with many labels nearly every sample has a
    rare class, and the epoch is many times as long. Samples without any label come once.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    >>> targets[OverSampler(targets).plan()].bincount().tolist()
    [5, 5]
    """

    _goal, _unlabelled = "amax", 1.0


class DownSampler(_Replicator):
    """Down-sampling by removal: no sample more than once, samples of large classes rarely.

    With one label each class is cut to exactly n_min samples, n_min the size of the smallest class with samples. Which
    samples stay changes with the epoch. With several labels a sample stays with the mean probability over its labels of
    n_min / n, n the size of its own class. ``combine="largest"`` takes the largest instead, so a sample of the rarest
    class of any label always stays. With many labels that is nearly every sample. Samples without any label are
    dropped.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    >>> targets[DownSampler(targets).plan()].bincount().tolist()
    [2, 2]
    """

    _goal, _unlabelled = "amin", 0.0
