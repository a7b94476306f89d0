"""The classes that have samples, and the samples of each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import class_counts


class PresentClasses(NamedTuple):
    """The C classes of all labels that have samples, and the samples of each."""

    own: Tensor  # (N, A): each sample's class, or C where its label is missing
    counts: Tensor  # (C,)
    label: Tensor  # (C,)
    sizes: tuple[int, ...]

    @property
    def starts(self) -> Tensor:
        """``(C,)``: the first place of each class among the members."""
        return self.counts.cumsum(0) - self.counts

    @property
    def class_of_member(self) -> Tensor:
        return torch.arange(len(self.counts)).repeat_interleave(self.counts)

    def members(self) -> Tensor:
        """Return the samples of the first class, then those of the second, and so on: ``(counts.sum(),)``."""
        order = self.own.flatten().argsort(stable=True)[: int(self.counts.sum())]
        return order // self.own.shape[1]

    def shares(self, weights: Tensor) -> Tensor:
        """Scale the weights ``(C,)`` of the classes to sum 1 within each label."""
        return weights / columns.sum_by_label(weights, self.sizes, self.label)[self.label]


def present_classes(targets: Tensor, sizes: Sizes | None) -> PresentClasses:
    on_cpu = targets.cpu() if isinstance(targets, Tensor) else targets
    by_label = class_counts(on_cpu, sizes)
    resolved = tuple(map(len, by_label))
    counts = torch.cat(by_label)
    present = counts > 0
    if not present.any():
        check.fail("targets", "of at least one sample with a label", f"{len(targets)} samples without")
    own = columns.own_columns(check.targets(on_cpu, len(resolved)), resolved)
    numbered = torch.where(own >= 0, (present.cumsum(0) - 1)[own], present.sum())
    label = columns.label_of_column(resolved, counts.device)
    return PresentClasses(numbered, counts[present], label[present], resolved)
