"""FaceNet's triplet loss with semi-hard negatives, for all labels at once."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import squared_distances, unit
from rectifier.labels.columns import Sizes, kept_sizes
from rectifier.losses.crl import chunks
from rectifier.losses.inputs import IGNORED, no_autocast, of_features, prepare_features
from rectifier.losses.module import in_training
from rectifier.losses.objective import LossParts
from rectifier.losses.sample import check_reduction, described, mean_or_sum, reduce_labels


def semi_hard_triplet_loss(
    features: Tensor, targets: Any, margin: float = 0.2, *, label_reduction: str = "sum"
) -> Tensor:
    """Compute the triplet loss of a batch with semi-hard negatives (Schroff et al. 2015).

    A pair is an anchor and another sample of its class. Each pair of a label is compared with one negative: the nearest
    sample of another class that is farther from the anchor than the positive. Where no negative is farther, it is the
    farthest one, which violates least (FaceNet leaves this case open). Ties go to the first sample. The loss of a label
    is the mean over its pairs of max(0, margin + D(a, p) - D(a, n)), with D the squared distance of features scaled to
    unit length.

    ``features`` are ``(N, A, D)``, or ``(N, D)`` where the labels share them. ``targets`` are ``(N, A)``, or ``(N,)``
    for one label; negative where missing. ``label_reduction`` is ``"sum"``, ``"mean"``, or ``"none"`` for ``(A,)``.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> semi_hard_triplet_loss(features, torch.tensor([0, 0, 1, -1]), margin=2.5)
    tensor(0.5000)
    """
    check.raise_all([check.positive("margin", margin)])
    known, canonical = of_features(features, targets)
    with no_autocast(known):
        loss, _ = semi_hard_triplets(known, canonical, margin)
    return reduce_labels(loss, check_reduction(label_reduction))


def semi_hard_triplets(features: Tensor, targets: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each label and the number of its pairs, both ``(A,)``, from checked targets ``(N, A)``."""
    own = targets.t().contiguous()
    if len(targets) == 0:
        return features.sum().expand(len(own)), torch.zeros(len(own), dtype=torch.int64, device=own.device)
    by_label = unit(features[None] if features.dim() == 2 else features.transpose(0, 1))
    bytes_per_anchor = own.numel() * 96  # a dozen float64 per distance, forward and backward
    sums_of = partial(_sums, by_label, own, margin)
    total, pairs = chunks.add_up(sums_of, chunks.split(len(targets), bytes_per_anchor))
    return total / pairs.clamp(min=1), pairs


def _sums(features: Tensor, own: Tensor, margin: float, anchors: slice) -> tuple[Tensor, Tensor]:
    """Return the sum over the pairs of some anchors and their number, both ``(A,)``.

    The sum is piecewise linear in the distances, so it is one weighted sum of them. How often each distance enters an
    active triplet is counted without a gradient.
    """
    same = own[:, anchors, None] == own[:, None, :]
    labelled = (own >= 0)[:, anchors, None] & (own >= 0)[:, None, :]
    number = torch.arange(own.shape[1], device=own.device)
    distances = squared_distances(features[:, anchors], features).to(features.dtype).expand(same.shape)
    with torch.no_grad():
        negative = ~same & labelled
        pair = same & labelled & (number[anchors, None] != number) & negative.any(-1, keepdim=True)
        semi_hard = _semi_hard(distances.float(), negative)  # the last digits of float64 would break ties
        active = pair & (margin + distances - distances.gather(-1, semi_hard) > 0)
        weight = active.to(distances.dtype)
        coefficient = weight.scatter_add(-1, semi_hard, -weight)
    return margin * weight.sum((1, 2)) + (coefficient * distances).sum((1, 2)), pair.sum((1, 2))


def _semi_hard(distances: Tensor, negative: Tensor) -> Tensor:
    """Return ``(A, n, N)``: the nearest negative farther from the anchor than the sample, else the farthest negative.

    For an anchor without negatives it is an arbitrary sample.
    """
    ascending, order = distances.masked_fill(~negative, float("inf")).sort(dim=-1, stable=True)
    last = (negative.sum(-1, keepdim=True) - 1).clamp(min=0)
    farthest = torch.searchsorted(ascending, ascending.gather(-1, last))  # the first of equally far negatives
    farther = torch.searchsorted(ascending, distances.contiguous(), right=True)
    place = torch.where(farther <= last, farther, farthest)
    return order.gather(-1, place.clamp(max=order.shape[-1] - 1))  # NaN, which must stay visible, sorts past the end


class SemiHardTripletLoss(torch.nn.Module):
    """Train features alone, with ``semi_hard_triplet_loss``. Neighbours decide; the logits get the gradient 0.

    Called like every objective: ``loss(logits, targets, features)``, or ``loss(features, targets)`` for a network that
    only embeds. With ``gather``, pairs form in the joined batch of all ranks, in training mode. In its parts,
    ``base_loss`` is the triplet loss of each label and ``comparisons`` the number of its pairs.

    Args:
        sizes: Number of classes of each label: a list, one number, or a LabelSpace. None takes the labels from the
            targets.
        margin: How much nearer a positive must be than a negative, as a squared distance.
        ignore_index: This target is missing too. Negative targets always are.
        reduction: ``"mean"`` over the pairs of a label, or ``"sum"``.
        label_reduction: ``"sum"`` over labels, ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, compare in the joined batch of all ranks.

    Of soft targets the class with the largest share counts. Class weights and label smoothing have no meaning for pairs
    of samples.

    >>> objective = SemiHardTripletLoss([2], margin=2.5)
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> objective(torch.zeros(3, 2), torch.tensor([0, 0, 1]), features)
    tensor(0.5000)
    >>> objective(features, torch.tensor([0, 0, 1]))
    tensor(0.5000)
    """

    def __init__(
        self,
        sizes: Sizes | None = None,
        margin: float = 0.2,
        *,
        ignore_index: int = IGNORED,
        reduction: str = "mean",
        label_reduction: str = "sum",
        gather: bool = False,
    ) -> None:
        super().__init__()
        check.raise_all([check.positive("margin", margin), mean_or_sum("reduction", reduction)])
        self.sizes = None if sizes is None else kept_sizes(sizes)
        self.margin, self.gather, self.ignore_index = margin, gather, ignore_index
        self.reduction, self.label_reduction = reduction, check_reduction(label_reduction)

    def forward(
        self, logits: Tensor, targets: Any, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` whose rectification is 0."""
        with no_autocast(logits):
            gather = self.gather and in_training(self)
            compared, own = prepare_features(logits, targets, features, self.sizes, gather, self.ignore_index)
            per_label, pairs = semi_hard_triplets(compared, own, self.margin)
            reduced = per_label * pairs if self.reduction == "sum" else per_label
            loss = reduce_labels(reduced, self.label_reduction) + (logits * 0).sum()
        return LossParts.without_rectification(loss, per_label, pairs) if return_parts else loss

    def extra_repr(self) -> str:
        return described(self, "margin")
