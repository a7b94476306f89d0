"""The asymmetric loss (Ridnik et al. 2021) for labels of two classes: positives are rare, negatives plenty and easy."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.losses.focal import focal, focus_complaint
from rectifier.losses.sample import ProbabilityLoss, check_same_labels, own_values


class Asymmetric(ProbabilityLoss):
    """A focal loss with one focus for positives and another for negatives, whose probability is also shifted.

    Class 1 is the positive, p its probability under the softmax of both logits. A positive costs
    -(1 - p)^positive log p; a negative -q^negative log(1 - q) with q = max(p - shift, 0), so that negatives below the
    shift cost nothing. The gradient goes through the focus too, as the formula says.

    Args:
        sizes: Classes of each label, or a LabelSpace; labels of other than two classes have cross-entropy.
        positive: The focus of positives; 0 is cross-entropy.
        negative: The focus of negatives.
        shift: What is taken off the probability of negatives.

    >>> Asymmetric([2])(torch.zeros(2, 2), torch.tensor([[1], [0]]), (2,))
    tensor([[0.6931],
            [0.0245]])
    """

    def __init__(self, sizes: columns.Sizes, positive: float = 0.0, negative: float = 4.0, shift: float = 0.05) -> None:
        super().__init__()
        check.raise_all(
            [
                focus_complaint("positive", positive),
                focus_complaint("negative", negative),
                check.that("shift", shift, "a number from 0 and below 1", check.is_real(shift) and 0 <= shift < 1),
            ]
        )
        self.sizes = columns.as_sizes(sizes)
        self.positive, self.negative, self.shift = positive, negative, shift
        if 2 not in self.sizes:
            wanted = "2 for a label at least, with a negative and a positive class, for an asymmetric loss"
            check.fail("sizes", wanted, self.sizes)

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        check_same_labels(self.sizes, sizes)
        own = own_values(log_p, targets, sizes)  # log p of a positive, log(1 - p) of a negative
        # log(1 - q) = log min(1 - p + shift, 1); without a shift it is log(1 - p) to the last digit.
        log_shift = torch.full_like(own, math.log(self.shift) if self.shift else -math.inf)
        shifted = torch.logaddexp(own, log_shift).clamp(max=0)
        asymmetric = torch.where(targets == 1, focal(own, self.positive), focal(shifted, self.negative))
        is_binary = columns.label_sizes(sizes, own.device) == 2
        return torch.where(is_binary, asymmetric, -own).masked_fill(targets < 0, 0)

    def extra_repr(self) -> str:
        return f"positive={self.positive}, negative={self.negative}, shift={self.shift}"
