"""FaceNet's triplet loss with semi-hard negatives, for every label at once."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32, squared_distances, unit
from rectifier.labels.columns import Sizes, as_sizes
from rectifier.labels.space import LabelSpace
from rectifier.losses.crl import chunks
from rectifier.losses.crl.design import check_reduction, reduce_labels
from rectifier.losses.inputs import no_autocast, prepare
from rectifier.losses.objective import LossParts


def semi_hard_triplet_loss(
    features: Tensor, targets: Tensor, margin: float = 0.2, *, label_reduction: str = "sum"
) -> Tensor:
    """Compute the triplet loss of a batch with semi-hard negatives (Schroff et al. 2015).

    Per label, every pair of an anchor and another sample of its class is compared with one negative: the nearest sample
    of another class that is farther from the anchor than the positive is. Where none is farther, the farthest negative
    is taken, which violates least (FaceNet leaves that case open). Ties go to the sample that comes first. The loss of
    a label is the mean over its pairs of max(0, margin + D(a, p) - D(a, n)), D the squared distance of the features,
    which are brought to unit length here.

    Args:
        features: ``(N, A, D)``, or ``(N, D)`` where the labels share them.
        targets: ``(N, A)``, or ``(N,)`` for one label; negative where missing.
        margin: How much farther the negative has to be.
        label_reduction: ``"sum"`` over labels, ``"mean"``, or ``"none"`` for ``(A,)``.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> semi_hard_triplet_loss(features, torch.tensor([0, 0, 1, -1]), margin=2.5)
    tensor(0.5000)
    """
    check_margin(margin)
    labels = targets.shape[1] if isinstance(targets, Tensor) and targets.dim() == 2 else 1
    canonical = check.targets(targets, labels)
    known = check.features(required(features), features, labels)
    check.same_length("features", known, "targets", canonical)
    with no_autocast(known):
        loss, _ = semi_hard_triplets(at_least_float32(known), canonical, margin)
    return reduce_labels(loss, check_reduction(label_reduction))


def semi_hard_triplets(features: Tensor, targets: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the loss of each label and the number of its pairs, both ``(A,)``, from checked targets ``(N, A)``."""
    own = targets.t().contiguous()
    if len(targets) == 0:
        return features.sum().expand(len(own)), torch.zeros(len(own), dtype=torch.int64, device=own.device)
    by_label = unit(features[None] if features.dim() == 2 else features.transpose(0, 1))
    bytes_per_anchor = own.numel() * 96  # of each distance a dozen float64, forward and backward
    sums_of = partial(_sums, by_label, own, margin)
    total, pairs = chunks.add_up(sums_of, chunks.split(len(targets), bytes_per_anchor))
    return total / pairs.clamp(min=1), pairs


def _sums(features: Tensor, own: Tensor, margin: float, anchors: slice) -> tuple[Tensor, Tensor]:
    """Return the sum over the pairs of some anchors and their number, both ``(A,)``.

    The sum is piecewise linear in the distances, so it is one weighted sum of them; how often each enters an active
    triplet is counted without a gradient.
    """
    same = own[:, anchors, None] == own[:, None, :]
    labelled = (own >= 0)[:, anchors, None] & (own >= 0)[:, None, :]
    number = torch.arange(own.shape[1], device=own.device)
    distances = squared_distances(features[:, anchors], features).to(features.dtype).expand(same.shape)
    with torch.no_grad():
        negative = ~same & labelled
        pair = same & labelled & (number[anchors, None] != number) & negative.any(-1, keepdim=True)
        semi_hard = _semi_hard(distances.float(), negative)  # a float64's last digits would part what is equal
        active = pair & (margin + distances - distances.gather(-1, semi_hard) > 0)
        weight = active.to(distances.dtype)
        coefficient = weight.scatter_add(-1, semi_hard, -weight)
    return margin * weight.sum((1, 2)) + (coefficient * distances).sum((1, 2)), pair.sum((1, 2))


def _semi_hard(distances: Tensor, negative: Tensor) -> Tensor:
    """Return ``(A, n, N)``: for each anchor and sample the nearest negative that is farther than it, or the farthest.

    Where an anchor has no negative, it is some sample.
    """
    ascending, order = distances.masked_fill(~negative, float("inf")).sort(dim=-1, stable=True)
    last = (negative.sum(-1, keepdim=True) - 1).clamp(min=0)
    farthest = torch.searchsorted(ascending, ascending.gather(-1, last))  # the first of those that are equally far
    farther = torch.searchsorted(ascending, distances.contiguous(), right=True)
    return order.gather(-1, torch.where(farther <= last, farther, farthest))


class SemiHardTripletLoss(torch.nn.Module):
    """Train features alone, with ``semi_hard_triplet_loss``; neighbours decide, the logits have no part in it.

    Called as every objective. The ``base_loss`` of its parts is the triplet loss of each label, ``comparisons`` the
    number of its pairs. Logits have the gradient 0.

    Args:
        sizes: Classes of each label, or a LabelSpace.
        margin: How much farther the negative has to be than the positive.
        label_reduction: ``"sum"`` over labels, ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, look for pairs in the joined batch of all ranks.

    >>> objective = SemiHardTripletLoss([2], margin=2.5)
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> objective(torch.zeros(3, 2), torch.tensor([0, 0, 1]), features)
    tensor(0.5000)
    """

    def __init__(
        self, sizes: Sizes, margin: float = 0.2, *, label_reduction: str = "sum", gather: bool = False
    ) -> None:
        super().__init__()
        self.sizes: Sizes = sizes if isinstance(sizes, LabelSpace) else as_sizes(sizes)
        self.margin = check_margin(margin)
        self.label_reduction = check_reduction(label_reduction)
        self.gather = gather

    def forward(
        self, logits: Tensor, targets: Tensor, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` whose rectification is 0."""
        with no_autocast(logits):
            given = prepare(logits, targets, required(features), self.sizes, "instance", self.gather)
            per_label, pairs = semi_hard_triplets(required(given.features), given.targets, self.margin)
            loss = reduce_labels(per_label, self.label_reduction) + (given.logits * 0).sum()
        if not return_parts:
            return loss
        none = torch.zeros_like(per_label)
        return LossParts(loss, per_label.detach(), none, none, none.long(), pairs)


def check_margin(margin: float) -> float:
    check.raise_all([check.that("margin", margin, "a positive number", check.is_real(margin) and margin > 0)])
    return margin


def required(features: Tensor | None) -> Tensor:
    """Return the features, without which there is nothing to compare."""
    if features is None:
        check.fail("features", "given (shape (N, D) or (N, A, D)), for they are what is compared", "None")
    return features
