"""The asymmetric loss (Ridnik et al. 2021) for binary labels with rare positives and many easy negatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.losses.focal import focal
from rectifier.losses.sample import ProbabilityLoss, check_same_labels, own_values


class Asymmetric(ProbabilityLoss):
    """Give a focal loss with separate focus for positives and negatives, and a shifted probability for negatives.

    Class 1 is the positive, p its probability under the softmax of both logits. A positive costs -(1 - p)^positive log
    p. A negative costs -q^negative log(1 - q) with q = max(p - shift, 0), so negatives with p below the shift cost
    nothing. The gradient includes the focus, as in the formula. Labels without exactly two classes use cross-entropy.

    >>> Asymmetric([2])(torch.zeros(2, 2), torch.tensor([[1], [0]]), (2,))
    tensor([[0.6931],
            [0.0245]])
    """

    def __init__(self, sizes: columns.Sizes, positive: float = 0.0, negative: float = 4.0, shift: float = 0.05) -> None:
        super().__init__()
        check.raise_all(
            [
                check.not_negative("positive", positive),
                check.not_negative("negative", negative),
                check.below_one("shift", shift),
            ]
        )
        self.sizes = columns.as_sizes(sizes)
        self.positive, self.negative, self.shift = positive, negative, shift
        if 2 not in self.sizes:
            check.fail("sizes", "2 for at least one label, because an asymmetric loss needs two classes", self.sizes)

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        check_same_labels(self.sizes, sizes)
        own = own_values(log_p, targets, sizes)  # log p of a positive, log(1 - p) of a negative
        # log(1 - q) = log min(1 - p + shift, 1). Without a shift it equals log(1 - p) exactly.
        log_shift = torch.full_like(own, math.log(self.shift) if self.shift else -math.inf)
        shifted = torch.logaddexp(own, log_shift).clamp(max=0)
        asymmetric = torch.where(targets == 1, focal(own, self.positive), focal(shifted, self.negative))
        is_binary = columns.label_sizes(sizes, own.device) == 2
        return torch.where(is_binary, asymmetric, -own).masked_fill(targets < 0, 0)

    def extra_repr(self) -> str:
        return f"positive={self.positive}, negative={self.negative}, shift={self.shift}"
