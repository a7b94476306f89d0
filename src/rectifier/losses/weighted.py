"""Cross-entropy as an objective of its own, plain or with class weights."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier import check, columns
from rectifier.imbalance import Counts, as_count_list
from rectifier.labels import LabelSpace
from rectifier.losses.design import check_reduction, reduce_labels
from rectifier.losses.entropy import label_cross_entropy
from rectifier.losses.inputs import no_autocast, prepare
from rectifier.losses.rectified import LossParts


class MultiLabelCrossEntropy(torch.nn.Module):
    """Cross-entropy of every label, summed over labels, missing labels left out.

    The plain objective that ``RectifiedCrossEntropy`` with alpha = 0 is, called in the same way, and with its parts.

    Args:
        sizes: Classes of each label, or a LabelSpace.
        weights: One for each class, ``(K,)``; per label the weighted mean is taken. None is the plain mean.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks, so that a label's mean is that of
            all its samples, however they are spread.

    >>> MultiLabelCrossEntropy([2])(torch.zeros(3, 2), torch.tensor([0, 1, -1]))
    tensor(0.6931)
    """

    weights: Tensor | None

    def __init__(
        self,
        sizes: columns.Sizes,
        weights: Tensor | None = None,
        *,
        label_reduction: str = "sum",
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.sizes = sizes if isinstance(sizes, LabelSpace) else columns.as_sizes(sizes)
        total = sum(columns.as_sizes(sizes))
        if weights is not None and (weights.shape != (total,) or not bool((weights >= 0).all())):
            check.fail("weights", f"{total} numbers of at least 0, one for each class", f"{weights.tolist()}")
        self.label_reduction = check_reduction(label_reduction)
        self.gather = gather
        self.register_buffer("weights", weights)

    def forward(
        self, logits: Tensor, targets: Tensor, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` whose rectification is 0. Features are not used."""
        with no_autocast(logits):
            given = prepare(logits, targets, None, self.sizes, "class", self.gather)
            log_p = columns.log_softmax(given.logits, given.sizes)
            per_label = label_cross_entropy(log_p, given.targets, given.sizes, self.weights)
        loss = reduce_labels(per_label, self.label_reduction)
        if not return_parts:
            return loss
        none = torch.zeros_like(per_label)
        return LossParts(loss, per_label.detach(), none, none, none.long(), none.long())


def cost_weights(counts: Counts) -> Tensor:
    """Return the paper's cost-sensitive weights exp(-r_k), r_k the class's share of its label's samples: ``(K,)``.

    >>> cost_weights(torch.tensor([75, 25]))
    tensor([0.4724, 0.7788])
    """
    labels, _ = as_count_list(counts)
    return torch.cat([(-label.double() / label.sum().clamp(min=1)).exp() for label in labels]).float()
