"""Correct the logits after training for how frequent each class is in the training split.

An adjustment adds one number per class to the logits. Validation, never test, chooses how strong it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import Counts, as_count_list, log_prior

TAUS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""The values of tau that logit adjustment tries."""

STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries for threshold adjustment."""


def prior_offsets(counts: Counts, tau: float = 1.0) -> Tensor:
    """Return ``-tau * log(prior)`` of every class, ``(K,)``. Add it to the logits to take the prior off.

    ``counts`` are those of the training split. A class without a training sample has the prior of half a sample.

    >>> prior_offsets(torch.tensor([90, 10])).exp().round(decimals=2)
    tensor([ 1.1100, 10.0000])
    """
    return (-tau * log_prior(counts)).float()


def adjustment_offsets(counts: Counts, strength: float) -> Tensor:
    """Return the offsets ``(K,)`` of threshold adjustment: p_k exp(-r_k)^T, r_k the class's share of its label.

    On logits this is ``-T * r_k``, since all classes share the softmax's denominator. T = 0 is the plain argmax.

    >>> adjustment_offsets(torch.tensor([90, 10]), 2)
    tensor([-1.8000, -0.2000])
    """
    labels, _ = as_count_list(counts)
    shares = [label.double() / label.double().sum().clamp(min=1) for label in labels]
    return (-strength * torch.cat(shares)).float()


@dataclass(frozen=True)
class LogitAdjustment:
    """Post-hoc logit adjustment (Menon et al. 2021): take tau times the log prior off; validation chooses tau.

    >>> logits, targets = torch.tensor([[1.0, 0.5], [1.0, -2.0], [1.0, 0.4]]), torch.tensor([1, 0, 1])
    >>> LogitAdjustment.fit(logits, targets, counts=torch.tensor([90, 10])).tau
    0.5
    """

    tau: float
    offsets: Tensor

    @classmethod
    def fit(
        cls,
        logits: Tensor,
        targets: Tensor,
        sizes: Sizes | None = None,
        *,
        counts: Counts,
        taus: Sequence[float] = TAUS,
    ) -> LogitAdjustment:
        """Choose the tau with the best class-balanced accuracy on validation; the first wins a tie.

        ``logits`` and ``targets`` are those of validation, ``counts`` those of training.
        """
        tau = _best("taus", taus, lambda tau: prior_offsets(counts, tau), logits, targets, sizes)
        return cls(tau, prior_offsets(counts, tau))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)


@dataclass(frozen=True)
class ThresholdAdjustment:
    """The paper's baseline: lower the scores of frequent classes after training; validation chooses the strength T.

    >>> logits, targets = torch.tensor([[1.0, 0.5], [1.0, 0.2], [1.0, 0.4]]), torch.tensor([0, 0, 1])
    >>> ThresholdAdjustment.fit(logits, targets, counts=torch.tensor([90, 10])).strength
    1
    """

    strength: float
    offsets: Tensor

    @classmethod
    def fit(
        cls,
        logits: Tensor,
        targets: Tensor,
        sizes: Sizes | None = None,
        *,
        counts: Counts,
        strengths: Sequence[float] = STRENGTHS,
    ) -> ThresholdAdjustment:
        """Choose the strength with the best class-balanced accuracy on validation; the first wins a tie.

        ``logits`` and ``targets`` are those of validation, ``counts`` those of training.
        """
        strength = _best("strengths", strengths, lambda t: adjustment_offsets(counts, t), logits, targets, sizes)
        return cls(strength, adjustment_offsets(counts, strength))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)


def _best(
    name: str,
    values: Sequence[float],
    offsets: Callable[[float], Tensor],
    logits: Tensor,
    targets: Tensor,
    sizes: Sizes | None,
) -> float:
    if not values:
        check.fail(name, "a list of at least one number", "an empty one")
    return max(values, key=lambda v: float(class_balanced_accuracy(logits + offsets(v).to(logits), targets, sizes)))
