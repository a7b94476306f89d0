"""Cross-entropy of single samples."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier import columns
from rectifier.losses.sample import own_values


class CrossEntropy(torch.nn.Module):
    """-log p of each sample's own class, one softmax per label (Eq. 2).

    >>> CrossEntropy()(torch.zeros(1, 2), torch.tensor([[0]]), (2,))
    tensor([[0.6931]])
    """

    def forward(self, logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return -own_values(columns.log_softmax(logits, sizes), targets, sizes)
