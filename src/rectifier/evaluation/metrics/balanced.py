"""Recall of each class from counts, and its class-balanced mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import column_counts


def class_balanced_accuracy(logits: Tensor, targets: Tensor, sizes: Sizes | None = None) -> Tensor:
    """Return the mean over labels of the mean recall of their classes, the paper's metric.

    Classes without a sample and missing labels (negative targets) do not count. NaN if there is no sample at all.

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> class_balanced_accuracy(logits, torch.tensor([0, 0, 1, 1]))
    tensor(0.7500)
    """
    resolved = columns.as_sizes(sizes, check.logits(logits).shape[1])
    correct, total = count_correct(logits, targets, resolved, columns.label_names(sizes))
    return balanced_mean(correct, total, resolved)


def count_correct(
    logits: Tensor, targets: Tensor, sizes: tuple[int, ...], names: tuple[str, ...] | None = None
) -> tuple[Tensor, Tensor]:
    """Count the correct samples and all samples of each class, both int64 ``(K,)``."""
    canonical = columns.targets_beside(check.logits(logits), targets, sizes, names)
    own = columns.own_columns(canonical, sizes)
    hit = columns.argmax(logits, sizes) == canonical
    return column_counts(torch.where(hit, own, -1), sum(sizes)).long(), column_counts(own, sum(sizes)).long()


def balanced_mean(correct: Tensor, total: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Average recall over the present classes of each label, then over the labels that have any."""
    present = total > 0
    shares = torch.where(present, correct / total, 0)
    classes = columns.sum_by_label(present.to(shares.dtype), sizes)
    means = columns.sum_by_label(shares, sizes) / classes.clamp(min=1)
    return means.sum() / (classes > 0).sum()


class ClassBalancedAccuracy(Metric):
    """Class-balanced accuracy over batches and ranks.

    ``compute()`` returns the mean; ``sensitivity`` the recall of each class ``(K,)``, NaN for classes without a sample;
    ``absent`` the number of these classes. All three are over all ranks, so every rank must call them. ``sizes`` are
    those of the losses; None is one label, sized by the first batch (give it if a rank may get no batch).

    >>> metric = ClassBalancedAccuracy([2])
    >>> metric.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> metric.compute(), metric.sensitivity, metric.absent
    (tensor(0.5000), tensor([1., 0.]), tensor(0))
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = True  # states sized by the first batch cannot be merged
    correct: Tensor
    total: Tensor

    def __init__(self, sizes: Sizes | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.names = columns.label_names(sizes)
        self.given = self.sizes = columns.as_sizes(sizes)
        for state in ("correct", "total"):
            self.add_state(state, torch.zeros(sum(self.sizes), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Count one batch."""
        first = not self.sizes
        if first:
            self.sizes = (check.logits(logits).shape[1],)
        correct, total = count_correct(logits, targets, self.sizes, self.names)
        self.correct = correct if first else self.correct + correct
        self.total = total if first else self.total + total

    def compute(self) -> Tensor:
        """Return the class-balanced accuracy."""
        return balanced_mean(self.correct, self.total, self.sizes)

    def reset(self) -> None:
        """Forget everything counted."""
        super().reset()
        self.sizes = self.given

    @property
    def sensitivity(self) -> Tensor:
        """Recall of each class, NaN without a sample."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            return self.correct / self.total

    @property
    def absent(self) -> Tensor:
        """Number of classes without a sample."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn):
            return (self.total == 0).sum()
