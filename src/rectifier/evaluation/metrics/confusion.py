"""Confusion counts, and the scores of classes and labels that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier.labels import columns


def confusion_counts(predicted: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Count how often each class was predicted as each class of its label: int64 ``(K, widest)``.

    Row: the column of the true class. Entry j: predicted as class j of the same label. ``predicted`` and ``targets``
    are ``(N, A)``; negative targets do not count.

    >>> confusion_counts(torch.tensor([[0], [1], [1]]), torch.tensor([[0], [0], [1]]), (2,))
    tensor([[1, 1],
            [0, 1]])
    """
    widest = max(sizes)
    own = columns.own_columns(targets, sizes)
    cells = (own * widest + predicted)[own >= 0]
    return cells.bincount(minlength=sum(sizes) * widest).view(sum(sizes), widest)


@dataclass(frozen=True)
class ClassScores:
    """Scores of every class, float64 ``(K,)``, NaN where they are not defined.

    ``samples`` counts the samples of the class, ``predicted`` its predictions. ``sensitivity`` is recall. A class
    without a sample has no recall, precision or F1. A class that is never predicted has no precision and an F1 of 0.
    """

    sizes: tuple[int, ...]
    samples: Tensor
    predicted: Tensor
    correct: Tensor

    @classmethod
    def of(cls, counts: Tensor, sizes: tuple[int, ...]) -> ClassScores:
        """Compute the scores from ``confusion_counts``."""
        label = columns.label_of_column(sizes, counts.device)
        first = columns.offsets(sizes, counts.device)
        every = torch.arange(sum(sizes), device=counts.device)
        by_label = counts.new_zeros(len(sizes), counts.shape[1]).index_add(0, label, counts)
        inside = every - first[label]
        return cls(sizes, counts.sum(1).double(), by_label[label, inside].double(), counts[every, inside].double())

    @property
    def sensitivity(self) -> Tensor:
        return self.correct / self.samples

    @property
    def precision(self) -> Tensor:
        return torch.where(self.samples > 0, self.correct / self.predicted, torch.nan)

    @property
    def f1(self) -> Tensor:
        both = self.samples + self.predicted
        return torch.where(self.samples > 0, 2 * self.correct / both, torch.nan)

    def label_mean(self, values: Tensor) -> Tensor:
        """Average over the classes of each label that have a value: ``(A,)``, NaN if none has."""
        defined = ~values.isnan()
        total = columns.sum_by_label(torch.where(defined, values, 0), self.sizes)
        return total / columns.sum_by_label(defined.double(), self.sizes)

    @property
    def accuracy(self) -> Tensor:
        """The share of correct samples of each label, ``(A,)``."""
        return columns.sum_by_label(self.correct, self.sizes) / columns.sum_by_label(self.samples, self.sizes)

    @property
    def g_mean(self) -> Tensor:
        """The geometric mean of the recall of each label's classes, ``(A,)``: 0 if one class is never right."""
        return self.label_mean(self.sensitivity.log()).exp()
