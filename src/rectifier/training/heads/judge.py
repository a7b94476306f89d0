"""Judge: the class-balanced accuracy of many heads on validation."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier.evaluation.metrics.balanced import count_correct
from rectifier.labels import columns
from rectifier.training.heads.bank import Bank
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import FeatureTable

_MOST_VALUES = 2**22  # of a layer, for a part of the validation samples


class Judge:
    """The class-balanced accuracy of many heads on validation."""

    def __init__(self, data: Prepared, validation: FeatureTable) -> None:
        self.x = data.standardised(validation.first_view.to(data.rows))
        self.targets, self.sizes = validation.targets.to(data.rows.device), validation.space.sizes

    @torch.no_grad()
    def __call__(self, bank: Bank, offsets: Tensor) -> Tensor:
        """Return the scores ``(H,)`` of all heads, with ``offsets`` ``(H, K)`` added to their logits."""
        heads, labels, columns_of = bank.heads, len(self.sizes), self.sizes * bank.heads
        shape = bank.shape
        widest = max(sum(self.sizes), shape.hidden, labels * shape.branch)
        samples = max(1, _MOST_VALUES // (heads * widest))
        counted = torch.zeros(2, offsets.numel(), dtype=torch.int64, device=self.x.device)
        for x, targets in zip(self.x.split(samples), self.targets.split(samples), strict=True):
            logits = (bank(x[None]).logits + offsets).flatten(1)
            counted += torch.stack(count_correct(logits, targets.repeat(1, heads), columns_of))
        correct, total = counted
        recall = torch.where(total > 0, correct / total.clamp(min=1), 0).double()
        present = columns.sum_by_label((total > 0).double(), columns_of)
        by_label = (columns.sum_by_label(recall, columns_of) / present.clamp(min=1)).view(heads, labels)
        return (by_label.sum(1) / (present.view(heads, labels) > 0).sum(1)).to(offsets)
