"""The class counts of a loss: given, or counted during the first epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts, column_counts, fitting_counts, is_data
from rectifier.labels.counts import class_counts as class_counts_of
from rectifier.losses.inputs import IGNORED
from rectifier.losses.module import LossModule, in_training


class TrainingCounts(LossModule):
    """Counts ``(K,)`` of the training samples of each class.

    ``class_counts="auto"`` counts the targets of training batches until the first switch to evaluation mode, which
    ends the first epoch in most training loops. Without a switch it goes on counting. That changes little, because
    losses use only the ratios of counts. Counts that were counted are state; counts that were given are configuration.
    Each process counts its own batches; with ``gather`` those of all.

    >>> counts = TrainingCounts("auto", [2])
    >>> counts(torch.tensor([[0], [0], [1], [-1]]))
    >>> counts.counts
    tensor([2, 1])
    """

    counts: Tensor

    def __init__(self, class_counts: Counts, sizes: Sizes | None, ignore_index: int = IGNORED) -> None:
        super().__init__()
        self.counting = isinstance(class_counts, str)
        if not isinstance(class_counts, str):
            if is_data(class_counts):
                class_counts = class_counts_of(class_counts, sizes, ignore_index=ignore_index)
            counts, self.sizes = fitting_counts(class_counts, sizes)
            self.configure("counts", counts)
            return
        check.raise_all([check.choice("class_counts", class_counts, ("auto",))])
        if sizes is None:
            check.fail("sizes", "given together with class_counts='auto'", "None")
        self.sizes = columns.kept_sizes(sizes)
        self.register_buffer("counts", torch.zeros(sum(columns.as_sizes(sizes)), dtype=torch.int64))
        self._seen = False
        self.auto = True

    auto = False

    def forward(self, targets: Tensor) -> None:
        """Count a batch of checked targets ``(N, A)``."""
        if self.counting and in_training(self):
            known = columns.as_sizes(self.sizes)
            self.counts += column_counts(columns.own_columns(targets, known), sum(known))
            self._seen = True

    def train(self, mode: bool = True) -> TrainingCounts:
        if self.auto and not mode and self._seen:
            self.counting = False
        return super().train(mode)
