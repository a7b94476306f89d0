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

    It equals ``RectifiedCrossEntropy`` with alpha = 0 and returns the same parts. ``Objective`` explains the arguments.

    >>> import torch
    >>> MultiLabelCrossEntropy([2])(torch.zeros(3, 2), torch.tensor([0, 1, -1]))
    tensor(0.6931)
    """

    def __init__(
        self, sizes: Sizes, weights: Tensor | None = None, *, label_reduction: str = "sum", gather: bool = False
    ) -> None:
        super().__init__(CrossEntropy(), sizes, weights=weights, label_reduction=label_reduction, gather=gather)
