"""Scores of classes and labels that follow from counts of decisions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier.labels import columns
from rectifier.labels.imbalance import column_counts


@dataclass(frozen=True)
class ClassScores:
    """Scores of every class, float64 ``(K,)``, NaN where they are not defined.

    ``samples`` counts the samples of the class, ``predicted`` its predictions. ``sensitivity`` is recall. A class
    without a sample has no recall or F1. A class that is never predicted has an F1 of 0.
    """

    sizes: tuple[int, ...]
    samples: Tensor
    predicted: Tensor
    correct: Tensor

    @classmethod
    def of(cls, predicted: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> ClassScores:
        """Count predictions and targets, both ``(N, A)``; negative targets do not count."""
        own = columns.own_columns(targets, sizes)
        guessed = torch.where(own >= 0, predicted + columns.offsets(sizes, own.device), -1)
        counted = (own, guessed, torch.where(own == guessed, own, -1))
        return cls(sizes, *(column_counts(found, sum(sizes)).double() for found in counted))

    @property
    def sensitivity(self) -> Tensor:
        return self.correct / self.samples

    @property
    def f1(self) -> Tensor:
        return torch.where(self.samples > 0, 2 * self.correct / (self.samples + self.predicted), torch.nan)

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
