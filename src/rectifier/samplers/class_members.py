"""The classes that have samples, and the samples of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import class_counts

Targets = Tensor | np.ndarray[Any, Any] | Sequence[Any]
"""The class of each sample: ``(N,)`` of one label or ``(N, A)``, negative where missing."""


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


def present_classes(targets: Targets, sizes: Sizes | None) -> PresentClasses:
    known, by_label = checked_targets(targets, sizes)
    resolved = tuple(map(len, by_label))
    counts = torch.cat(by_label)
    present = counts > 0
    own = columns.own_columns(known, resolved)
    numbered = torch.where(own >= 0, (present.cumsum(0) - 1)[own], present.sum())
    label = columns.label_of_column(resolved, counts.device)
    return PresentClasses(numbered, counts[present], label[present], resolved)


def checked_targets(targets: Targets, sizes: Sizes | None) -> tuple[Tensor, list[Tensor]]:
    """Return targets in any form as a tensor ``(N, A)`` on the CPU, and the counts of each label's classes."""
    on_cpu = check.as_tensor("targets", targets).cpu()
    by_label = class_counts(on_cpu, sizes)
    if not torch.cat(by_label).any():
        check.fail("targets", "of at least one sample with a label", f"{len(on_cpu)} samples without")
    return check.targets(on_cpu, len(by_label)), by_label
