"""The focal loss (Lin et al. 2017): samples that the network already recognises count less."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.losses.sample import Conventions, ProbabilityLoss, described


class FocalLoss(ProbabilityLoss):
    """Train with -(1 - p)^gamma log p of each sample's own class. gamma = 0 is cross-entropy.

    p is the probability under the softmax of the label's logits. ``SampleLoss`` explains ``sizes`` and the other
    options, which are those of ``torch.nn.CrossEntropyLoss``.

    >>> FocalLoss(gamma=1.0)(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    tensor(0.3466)
    """

    def __init__(self, gamma: float = 2.0, *, sizes: Sizes | None = None, **conventions: Unpack[Conventions]) -> None:
        check.raise_all([check.not_negative("gamma", gamma)])
        super().__init__(sizes, **conventions)
        self.gamma = gamma

    def cost(self, log_p: Tensor) -> Tensor:
        return focal(log_p, self.gamma)

    def extra_repr(self) -> str:
        return described(self, "gamma")


def focal_loss(
    logits: Tensor,
    targets: Any,
    gamma: float = 2.0,
    *,
    sizes: Sizes | None = None,
    **conventions: Unpack[Conventions],
) -> Tensor:
    """Compute the focal loss of a batch; see ``FocalLoss``.

    >>> focal_loss(torch.zeros(3, 2), torch.tensor([0, 1, 1]), gamma=0.0)
    tensor(0.6931)
    """
    loss: Tensor = FocalLoss(gamma, sizes=sizes, **conventions)(logits, targets)
    return loss


def focal(log_p: Tensor, gamma: float) -> Tensor:
    """Return -(1 - p)^gamma log p from log p.

    1 - p is kept above 0: at 0 the gradient of a power below 1 is infinite, but the gradient of the product is 0.

    >>> focal(torch.tensor([0.5, 0.9]).log(), 2.0)
    tensor([0.1733, 0.0011])
    """
    rest = (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny)
    return rest**gamma * -log_p
