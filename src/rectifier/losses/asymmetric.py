"""The asymmetric loss (Ridnik et al. 2021) for binary labels with rare positives and many easy negatives."""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.focal import focal
from rectifier.losses.sample import Conventions, SampleLoss, described, own_values


class AsymmetricLoss(SampleLoss):
    """Train with a focal loss that has separate focus for positives and negatives, and a shift for negatives.

    Every label has two logits. Class 1 is the positive, p its probability under the softmax of both. A positive costs
    -(1 - p)^positive log p. A negative costs -q^negative log(1 - q) with q = max(p - shift, 0), so negatives with p
    below the shift cost nothing. The gradient includes the focus, as in the formula. Labels without exactly two
    classes use cross-entropy. ``SampleLoss`` explains ``sizes`` and the options that PyTorch's losses have.

    >>> AsymmetricLoss(reduction="none")(torch.zeros(2, 2), torch.tensor([1, 0]))
    tensor([0.6931, 0.0245])
    """

    def __init__(
        self,
        positive: float = 0.0,
        negative: float = 4.0,
        shift: float = 0.05,
        *,
        sizes: Sizes | None = None,
        **conventions: Unpack[Conventions],
    ) -> None:
        check.raise_all(
            [
                check.not_negative("positive", positive),
                check.not_negative("negative", negative),
                check.below_one("shift", shift),
            ]
        )
        super().__init__(sizes, **conventions)
        self.positive, self.negative, self.shift = positive, negative, shift
        if sizes is not None:
            _check_binary(columns.as_sizes(sizes))

    @property
    def adjusts_prior(self) -> bool:
        """Negatives, the frequent class, count less, so the threshold already moves."""
        return self.negative > self.positive or self.shift > 0 or super().adjusts_prior

    def own_losses(self, scores: Tensor, targets: Tensor, sizes: tuple[int, ...], own: Tensor | None = None) -> Tensor:
        _check_binary(sizes)
        is_binary = columns.label_sizes(sizes, scores.device) == 2
        own = (
            own_values(scores, targets, sizes) if own is None else own
        )  # log p of a positive, log(1 - p) of a negative
        return self._losses(own, targets == 1, is_binary).masked_fill(targets < 0, 0)

    def class_losses(self, scores: Tensor, sizes: tuple[int, ...]) -> Tensor:
        _check_binary(sizes)
        label = columns.label_of_column(sizes, scores.device)
        is_last = torch.arange(len(label), device=scores.device) > columns.offsets(sizes, scores.device)[label]
        return self._losses(scores, is_last, columns.label_sizes(sizes, scores.device)[label] == 2)

    def _losses(self, log_p: Tensor, is_positive: Tensor, is_binary: Tensor) -> Tensor:
        # log(1 - q) = log min(1 - p + shift, 1). Without a shift it equals log(1 - p) exactly.
        log_shift = torch.full_like(log_p, math.log(self.shift) if self.shift else -math.inf)
        shifted = torch.logaddexp(log_p, log_shift).clamp(max=0)
        asymmetric = torch.where(is_positive, focal(log_p, self.positive), focal(shifted, self.negative))
        return torch.where(is_binary, asymmetric, -log_p)

    def extra_repr(self) -> str:
        return described(self, "positive", "negative", "shift")


def asymmetric_loss(
    logits: Tensor,
    targets: Any,
    positive: float = 0.0,
    negative: float = 4.0,
    shift: float = 0.05,
    *,
    sizes: Sizes | None = None,
    **conventions: Unpack[Conventions],
) -> Tensor:
    """Compute the asymmetric loss of a batch; see ``AsymmetricLoss``.

    >>> asymmetric_loss(torch.zeros(2, 2), torch.tensor([1, 0]), 0.0, 0.0, 0.0)
    tensor(0.6931)
    """
    loss: Tensor = AsymmetricLoss(positive, negative, shift, sizes=sizes, **conventions)(logits, targets)
    return loss


def _check_binary(sizes: tuple[int, ...]) -> None:
    if 2 not in sizes:
        check.fail("sizes", "2 for at least one label, because an asymmetric loss needs two classes", sizes)
