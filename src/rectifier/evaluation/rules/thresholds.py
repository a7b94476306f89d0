"""Threshold adjustment, a method of the paper: lower the scores of frequent classes after training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rectifier.evaluation.rules.rule import CountRule
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts, as_count_list

PAPER_STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries. All of them can be worse than the plain argmax."""

STRENGTHS = (0, *PAPER_STRENGTHS)
"""The values that ``ThresholdAdjustment.fit`` tries: with 0, the plain argmax, it never loses on its own data."""


def adjustment_offsets(class_counts: Counts, strength: float) -> Tensor:
    """Return the offsets ``(K,)`` of threshold adjustment: p_k exp(-r_k)^T, r_k the class's share of its label.

    On logits this is ``-T * r_k``, since all classes share the softmax's denominator. T = 0 is the plain argmax.

    >>> adjustment_offsets(torch.tensor([90, 10]), 2)
    tensor([-1.8000, -0.2000])
    """
    labels, _ = as_count_list(class_counts)
    shares = [label.double() / label.double().sum().clamp(min=1) for label in labels]
    return (-strength * torch.cat(shares)).float()


class ThresholdAdjustment(CountRule):
    """The paper's baseline: multiply the probability of each class by exp(-its share of samples)^T.

    ``fit`` chooses the strength T on validation.

    Args:
        class_counts: Training samples of each class: a list or 1-d tensor for one label, a list of them for several.
        strength: T, before ``fit``.
        sizes: A LabelSpace, so that errors name the label. Its sizes must agree with the counts.
        strengths: The values that ``fit`` chooses from, by class-balanced accuracy; the first wins a tie.
            ``PAPER_STRENGTHS`` are the paper's, without 0.

    >>> rule = ThresholdAdjustment([90, 10]).fit([[1.0, 0.5], [1.0, 0.2], [1.0, 0.4]], [1, 0, 1])
    >>> rule
    ThresholdAdjustment(sizes=[2], offsets=[-0.9, -0.1], strength=1)
    """

    strength: Tensor

    def __init__(
        self,
        class_counts: Counts,
        strength: float = 1.0,
        *,
        sizes: Sizes | None = None,
        strengths: Sequence[float] = STRENGTHS,
    ) -> None:
        super().__init__(class_counts, sizes, "strength", strength, strengths)

    def offsets_at(self, value: float) -> Tensor:
        return adjustment_offsets(self.class_counts, value)
