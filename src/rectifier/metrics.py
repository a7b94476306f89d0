"""Metrics from counts: what share of each class is recognised, and the class-balanced mean of that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from rectifier import check, columns
from rectifier.columns import Sizes
from rectifier.imbalance import column_counts


def class_balanced_accuracy(logits: Tensor, targets: Tensor, sizes: Sizes | None = None) -> Tensor:
    """Return the mean over labels of the mean sensitivity of their classes, the paper's metric.

    Sensitivity is the share of a class's samples that are recognised. Classes without a sample are left out, and so are
    missing labels (negative targets). NaN when there is no sample at all.

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> class_balanced_accuracy(logits, torch.tensor([0, 0, 1, 1]))
    tensor(0.7500)
    """
    resolved = columns.as_sizes(sizes, logits.shape[-1])
    correct, total = count_correct(logits, targets, resolved, columns.label_names(sizes))
    return balanced_mean(correct, total, resolved)


def count_correct(
    logits: Tensor, targets: Tensor, sizes: tuple[int, ...], names: tuple[str, ...] | None = None
) -> tuple[Tensor, Tensor]:
    """Count the recognised samples and all samples of each class, both int64 ``(K,)``."""
    check.logits(logits, sizes)
    canonical = columns.as_targets(targets, sizes, names)
    check.same_length("targets", canonical, "logits", logits)
    own = columns.own_columns(canonical, sizes)
    hit = columns.argmax(logits, sizes) == canonical
    return column_counts(torch.where(hit, own, -1), sum(sizes)).long(), column_counts(own, sum(sizes)).long()


def sensitivity(correct: Tensor, total: Tensor) -> Tensor:
    """Return each class's recognised share ``(K,)``, NaN where it has no sample."""
    return correct.double() / total.double()


def balanced_mean(correct: Tensor, total: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Average sensitivities over the present classes of each label, then over the labels that have any."""
    present = total > 0
    shares = torch.where(present, correct / total.clamp(min=1), 0)
    classes = columns.sum_by_label(present.to(shares.dtype), sizes)
    means = columns.sum_by_label(shares, sizes) / classes.clamp(min=1)
    return means.sum() / (classes > 0).sum()


class ClassBalancedAccuracy(Metric):
    """Class-balanced accuracy over batches and ranks.

    ``compute()`` gives the mean; ``sensitivity`` each class's share ``(K,)``, NaN for classes not seen; ``absent`` how
    many classes those are. ``sizes`` as for the losses; None is one label, sized by the first batch.

    >>> metric = ClassBalancedAccuracy([2])
    >>> metric.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> metric.compute(), metric.sensitivity, metric.absent
    (tensor(0.5000), tensor([1., 0.], dtype=torch.float64), tensor(0))
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    correct: Tensor
    total: Tensor

    def __init__(self, sizes: Sizes | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.names = columns.label_names(sizes)
        self.sizes = columns.as_sizes(sizes)
        for state in ("correct", "total"):
            self.add_state(state, torch.zeros(sum(self.sizes), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Count one batch."""
        if not self.sizes:
            self.sizes = (logits.shape[-1],)
        correct, total = count_correct(logits, targets, self.sizes, self.names)
        empty = not self.total.numel()
        self.correct = correct if empty else self.correct + correct
        self.total = total if empty else self.total + total

    def compute(self) -> Tensor:
        """Return the class-balanced accuracy of everything counted."""
        return balanced_mean(self.correct, self.total, self.sizes)

    @property
    def sensitivity(self) -> Tensor:
        return sensitivity(self.correct, self.total)

    @property
    def absent(self) -> Tensor:
        return (self.total == 0).sum()
