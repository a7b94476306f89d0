"""Threshold adjustment, a method of the paper: lower the scores of frequent classes after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier.evaluation.rules.prior import best_on_validation
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import Counts, as_count_list

STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries."""


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
        strength = best_on_validation(
            "strengths", strengths, lambda t: adjustment_offsets(counts, t), logits, targets, sizes
        )
        return cls(strength, adjustment_offsets(counts, strength))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)
