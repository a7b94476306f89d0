"""Take the prior off the logits: correct for how frequent each class is in the training split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from rectifier.evaluation.rules.tuning import best_offsets
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
        """Choose the tau with the best class-balanced accuracy on these (validation) logits; the first wins a tie.

        ``counts`` are those of the training split.
        """
        return cls(*best_offsets("taus", taus, partial(prior_offsets, counts), logits, targets, sizes))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)
