"""Cross-entropy: of single samples, and as an objective."""

from __future__ import annotations

from torch import Tensor

from rectifier.labels.columns import Sizes
from rectifier.losses.objective import Objective
from rectifier.losses.sample import ProbabilityLoss, own_values


class CrossEntropy(ProbabilityLoss):
    """Give -log p of each sample's own class, with one softmax per label (Eq. 2).

    >>> import torch
    >>> CrossEntropy()(torch.zeros(1, 2), torch.tensor([[0]]), (2,))
    tensor([[0.6931]])
    """

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return -own_values(log_p, targets, sizes)


class MultiLabelCrossEntropy(Objective):
    """Train with the cross-entropy of every label, summed over labels. Missing labels do not count.

    It equals ``RectifiedCrossEntropy`` with alpha = 0, takes the same arguments and returns the same parts.

    Args:
        sizes: Number of classes of each label, or a LabelSpace.
        weights: One weight per class, ``(K,)``, for a weighted mean per label. None is the plain mean.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks, so that a label's mean does not
            depend on how its samples are distributed.

    >>> import torch
    >>> MultiLabelCrossEntropy([2])(torch.zeros(3, 2), torch.tensor([0, 1, -1]))
    tensor(0.6931)
    """

    def __init__(
        self, sizes: Sizes, weights: Tensor | None = None, *, label_reduction: str = "sum", gather: bool = False
    ) -> None:
        super().__init__(CrossEntropy(), sizes, weights=weights, label_reduction=label_reduction, gather=gather)
