"""The focal loss (Lin et al. 2017): samples that the network already recognises count less."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.losses.sample import ProbabilityLoss, own_values


class Focal(ProbabilityLoss):
    """Give -(1 - p)^gamma log p of each sample's own class. gamma = 0 is cross-entropy.

    >>> Focal(gamma=1.0)(torch.zeros(1, 2), torch.tensor([[0]]), (2,))
    tensor([[0.3466]])
    """

    def __init__(self, gamma: float = 2.0) -> None:
        super().__init__()
        check.raise_all([check.not_negative("gamma", gamma)])
        self.gamma = gamma

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return focal(own_values(log_p, targets, sizes), self.gamma)

    def extra_repr(self) -> str:
        return f"gamma={self.gamma}"


def focal(log_p: Tensor, gamma: float) -> Tensor:
    """Return -(1 - p)^gamma log p from log p.

    1 - p is kept above 0: at 0 the gradient of a power below 1 is infinite, but the gradient of the product is 0.

    >>> focal(torch.tensor([0.5, 0.9]).log(), 2.0)
    tensor([0.1733, 0.0011])
    """
    rest = (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny)
    return rest**gamma * -log_p
