"""Cross-entropy of single samples."""

from __future__ import annotations

from torch import Tensor

from rectifier.losses.sample import ProbabilityLoss, own_values


class CrossEntropy(ProbabilityLoss):
    """-log p of each sample's own class, one softmax per label (Eq. 2).

    >>> import torch
    >>> CrossEntropy()(torch.zeros(1, 2), torch.tensor([[0]]), (2,))
    tensor([[0.6931]])
    """

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return -own_values(log_p, targets, sizes)
