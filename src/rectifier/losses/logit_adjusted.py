"""Logit adjustment in training (Menon et al. 2021). With tau = 1 it is balanced softmax (Ren et al. 2020)."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts
from rectifier.labels.imbalance import log_prior_of_counts
from rectifier.losses.sample import Conventions, CountedLoss, described, own_values


class LogitAdjustedLoss(CountedLoss):
    """Train with the cross-entropy of the logits plus tau * log prior.

    The prior accounts for the class frequencies, so the logits do not: their argmax decides as if all classes were
    equally frequent. Do not subtract the prior again (``PriorRule``). A class without samples has the prior of half a
    sample. tau = 0 is cross-entropy.

    ``CountedLoss`` explains ``class_counts``, ``SampleLoss`` the options that PyTorch's losses have.

    >>> import torch
    >>> LogitAdjustedLoss([75, 25], reduction="none")(torch.zeros(2, 2), torch.tensor([0, 1])).exp()
    tensor([1.3333, 4.0000])
    """

    former_state = ("offsets",)

    def __init__(
        self,
        class_counts: Counts,
        tau: float = 1.0,
        *,
        sizes: Sizes | None = None,
        **conventions: Unpack[Conventions],
    ) -> None:
        check.raise_all([check.that("tau", tau, "a number", check.is_real(tau))])
        super().__init__(class_counts, sizes, partial(adjustment_of_counts, tau=tau), **conventions)
        self.tau = tau

    @property
    def offsets(self) -> Tensor:
        """Tau times the log prior of each class, ``(K,)``."""
        return self.per_class

    @property
    def adjusts_prior(self) -> bool:
        return self.tau != 0 or super().adjusts_prior

    def own_losses(self, scores: Tensor, targets: Tensor, sizes: tuple[int, ...], own: Tensor | None = None) -> Tensor:
        return -own_values(columns.log_softmax(scores + self.offsets, sizes), targets, sizes)

    def class_losses(self, scores: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return -columns.log_softmax(scores + self.offsets, sizes)

    def extra_repr(self) -> str:
        return described(self, "tau")


class BalancedSoftmaxLoss(LogitAdjustedLoss):
    """Train with the cross-entropy of the logits plus the log prior: ``LogitAdjustedLoss`` with tau = 1.

    >>> import torch
    >>> BalancedSoftmaxLoss([75, 25])(torch.zeros(2, 2), torch.tensor([0, 0])).exp()
    tensor(1.3333)
    """

    def __init__(self, class_counts: Counts, *, sizes: Sizes | None = None, **conventions: Unpack[Conventions]) -> None:
        super().__init__(class_counts, sizes=sizes, **conventions)


def logit_adjusted_loss(
    logits: Tensor,
    targets: Any,
    class_counts: Counts,
    tau: float = 1.0,
    *,
    sizes: Sizes | None = None,
    **conventions: Unpack[Conventions],
) -> Tensor:
    """Compute the logit-adjusted loss of a batch; see ``LogitAdjustedLoss``.

    >>> import torch
    >>> logit_adjusted_loss(torch.zeros(2, 2), torch.tensor([0, 1]), [75, 25], tau=0.0)
    tensor(0.6931)
    """
    loss: Tensor = LogitAdjustedLoss(class_counts, tau, sizes=sizes, **conventions)(logits, targets)
    return loss


def balanced_softmax_loss(
    logits: Tensor,
    targets: Any,
    class_counts: Counts,
    *,
    sizes: Sizes | None = None,
    **conventions: Unpack[Conventions],
) -> Tensor:
    """Compute the balanced softmax loss of a batch; see ``BalancedSoftmaxLoss``."""
    return logit_adjusted_loss(logits, targets, class_counts, sizes=sizes, **conventions)


def adjustment_of_counts(counts: Tensor, sizes: tuple[int, ...], tau: float) -> Tensor:
    """Return tau * log prior of each class, float32 ``(K,)``."""
    return (tau * log_prior_of_counts(counts, sizes)).float()
