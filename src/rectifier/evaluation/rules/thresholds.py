"""Threshold adjustment, the paper's baseline: move the thresholds of frequent classes after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rectifier.evaluation.rules.tuning import best_offsets
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import Counts, as_count_list

STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries for threshold adjustment."""


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
    """The paper's threshold adjustment; validation chooses its strength T.

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
        """Choose the strength with the best class-balanced accuracy on these (validation) logits; the first wins a tie.

        ``counts`` are those of the training split.
        """
        return cls(*best_offsets("strengths", strengths, partial(adjustment_offsets, counts), logits, targets, sizes))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)
