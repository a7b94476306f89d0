"""Cross-entropy: of single samples, as an objective, and as an objective with class rectification."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import Counts, as_count_list, loss_weight
from rectifier.losses.crl.design import Design
from rectifier.losses.objective import Objective
from rectifier.losses.sample import ProbabilityLoss, own_values


class CrossEntropy(ProbabilityLoss):
    """Give -log p of each sample's own class, with one softmax per label (Eq. 2).

    >>> CrossEntropy()(torch.zeros(1, 2), torch.tensor([[0]]), (2,))
    tensor([[0.6931]])
    """

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return -own_values(log_p, targets, sizes)


class MultiLabelCrossEntropy(Objective):
    """Train with the cross-entropy of every label, summed over labels. Missing labels do not count.

    It equals ``RectifiedCrossEntropy`` with alpha = 0 and returns the same parts. ``Objective`` explains the arguments.

    >>> MultiLabelCrossEntropy([2])(torch.zeros(3, 2), torch.tensor([0, 1, -1]))
    tensor(0.6931)
    """

    def __init__(
        self, sizes: Sizes, weights: Tensor | None = None, *, label_reduction: str = "sum", gather: bool = False
    ) -> None:
        super().__init__(CrossEntropy(), sizes, weights=weights, label_reduction=label_reduction, gather=gather)


class RectifiedCrossEntropy(Objective):
    """Train with alpha * CRL + (1 - alpha) * CE per label (Eq. 8), alpha = min(eta * Omega, 1).

    Omega is the imbalance of the label in the training set. Balanced labels keep plain cross-entropy.

    Own arguments (``Objective`` explains the others):
        class_counts: Training samples of each class: a 1-d tensor for one label, a list with one per label for several.
        eta: Weight of the rectification per unit of imbalance.
        alpha: Set the weight directly, one number or one per label, in place of eta * Omega.
        sizes: A LabelSpace, so that errors name the label. Its sizes must agree with the counts.
        design: Options of ``ClassRectificationLoss`` such as level, comparison and kappa: the fields of ``Design``.

    >>> objective = RectifiedCrossEntropy(torch.tensor([900, 100]), eta=0.5)
    >>> objective.alpha
    tensor([0.2222])
    >>> parts = objective(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), return_parts=True)
    >>> parts.base_loss, parts.mined_classes
    (tensor([0.6931]), tensor([1]))
    """

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Counts,
        eta: float = 0.01,
        alpha: float | list[float] | Tensor | None = None,
        label_reduction: str = "sum",
        gather: bool = False,
        *,
        sizes: Sizes | None = None,
        generator: torch.Generator | None = None,
        falling: bool = False,
        rectify_from: float = 0.0,
        pooled: bool = False,
        memory: int = 0,
        memory_age: int | None = None,
        **design: Any,
    ) -> None:
        counts, _ = as_count_list(class_counts)
        known = tuple(map(len, counts))
        sizes = known if sizes is None else columns.kept_sizes(sizes)
        if columns.as_sizes(sizes) != known:
            check.fail("sizes", f"those of class_counts, {known}", columns.as_sizes(sizes))
        own = [name for name in signature(RectifiedCrossEntropy).parameters if name not in ("class_counts", "design")]
        check.options_of("RectifiedCrossEntropy", design, (*Design._fields, *own), TypeError)
        super().__init__(
            CrossEntropy(),
            sizes,
            rectification=Design(**design),
            alpha=loss_weight(counts, eta) if alpha is None else alpha,
            falling=falling,
            rectify_from=rectify_from,
            pooled=pooled,
            memory=memory,
            memory_age=memory_age,
            label_reduction=label_reduction,
            gather=gather,
            generator=generator,
        )
        self.register_buffer("class_counts", torch.cat(counts))
