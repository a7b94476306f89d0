"""Label-distribution-aware margins (Cao et al. 2019): the rarer a class, the wider its margin."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.imbalance import Counts, as_count_list
from rectifier.losses.sample import check_same_labels, own_values


class LDAM(torch.nn.Module):
    """Give the cross-entropy of z - scale * margin of the own class, where the logits z are scale * cosines.

    The margin of class c is proportional to n_c^(-1/4), and the largest of each label is ``largest``. Margins are
    between cosines of features and class weights, so the network needs a cosine classifier, whose logits are 30 *
    cosines. For other logits a margin of 0.5 has no meaning.

    ``counts`` are the training samples of each class: a 1-d tensor for one label, a list with one per label for
    several. A class without samples has the margin of the rarest class with samples. ``largest=0`` is cross-entropy.

    >>> LDAM(torch.tensor([1600, 100])).margins
    tensor([0.2500, 0.5000])
    """

    margins: Tensor

    def __init__(self, counts: Counts, largest: float = 0.5, scale: float = 30.0) -> None:
        super().__init__()
        check.raise_all([check.not_negative("largest", largest), check.positive("scale", scale)])
        labels, _ = as_count_list(counts)
        self.largest, self.scale = largest, scale
        self.sizes = tuple(map(len, labels))
        self.register_buffer("margins", torch.cat([largest * _relative_margins(label) for label in labels]))

    def forward(self, logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        check_same_labels(self.sizes, sizes)
        own = columns.own_columns(targets, sizes)
        margin = self.scale * self.margins.to(logits.dtype)[own.clamp(min=0)].masked_fill(own < 0, 0)
        lowered = logits.scatter_add(1, own.clamp(min=0), -margin)  # a missing label subtracts 0 from the first column
        return -own_values(columns.log_softmax(lowered, sizes), targets, sizes)

    def extra_repr(self) -> str:
        return f"largest={self.largest}, scale={self.scale}"


def _relative_margins(counts: Tensor) -> Tensor:
    """Return ``(C,)``: n^(-1/4), relative to the rarest class that has samples."""
    present = counts[counts > 0].double()
    rarest = present.min() if len(present) else torch.ones((), dtype=torch.float64)
    return (rarest / counts.double().clamp(min=rarest)).pow(0.25).float()
