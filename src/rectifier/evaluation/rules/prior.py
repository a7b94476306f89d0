"""Subtract the log prior of the training classes from the logits, wholly or by a share that validation chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import Counts, log_prior

TAUS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""The values of tau that logit adjustment tries."""


def prior_offsets(counts: Counts, tau: float = 1.0) -> Tensor:
    """Return ``-tau * log(prior)`` of every class, ``(K,)``. Add it to the logits to take the prior off.

    ``counts`` are those of the training split. A class without a training sample has the prior of half a sample.

    >>> import torch
    >>> prior_offsets(torch.tensor([90, 10])).exp().round(decimals=2)
    tensor([ 1.1100, 10.0000])
    """
    return (-tau * log_prior(counts)).float()


@dataclass(frozen=True)
class LogitAdjustment:
    """Post-hoc logit adjustment (Menon et al. 2021): take tau times the log prior off; validation chooses tau.

    >>> import torch
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
        tau = best_on_validation("taus", taus, lambda tau: prior_offsets(counts, tau), logits, targets, sizes)
        return cls(tau, prior_offsets(counts, tau))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)


def best_on_validation(
    name: str,
    values: Sequence[float],
    offsets: Callable[[float], Tensor],
    logits: Tensor,
    targets: Tensor,
    sizes: Sizes | None,
) -> float:
    """Return the value whose offsets give the best class-balanced accuracy; the first wins a tie."""
    if not values:
        check.fail(name, "a list of at least one number", "an empty one")
    return max(values, key=lambda v: float(class_balanced_accuracy(logits + offsets(v).to(logits), targets, sizes)))
