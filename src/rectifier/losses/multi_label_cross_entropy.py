"""Cross-entropy as an objective of its own, plain or with class weights."""

from __future__ import annotations

from torch import Tensor

from rectifier.labels.columns import Sizes
from rectifier.losses.class_weights import cost_weights
from rectifier.losses.cross_entropy import CrossEntropy
from rectifier.losses.objective import Objective

__all__ = ["MultiLabelCrossEntropy", "cost_weights"]


class MultiLabelCrossEntropy(Objective):
    """Cross-entropy of every label, summed over labels, missing labels left out.

    The plain objective that ``RectifiedCrossEntropy`` with alpha = 0 is, called in the same way, and with its parts.

    Args:
        sizes: Classes of each label, or a LabelSpace.
        weights: One for each class, ``(K,)``; per label the weighted mean is taken. None is the plain mean.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks, so that a label's mean is that of
            all its samples, however they are spread.

    >>> import torch
    >>> MultiLabelCrossEntropy([2])(torch.zeros(3, 2), torch.tensor([0, 1, -1]))
    tensor(0.6931)
    """

    def __init__(
        self,
        sizes: Sizes,
        weights: Tensor | None = None,
        *,
        label_reduction: str = "sum",
        gather: bool = False,
    ) -> None:
        super().__init__(CrossEntropy(), sizes, weights=weights, label_reduction=label_reduction, gather=gather)
