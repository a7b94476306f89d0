"""Cross-entropy beside a triplet ranking of whole samples: those that agree in most labels lie nearest (DARN)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32, squared_distances, unit
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.space import LabelSpace
from rectifier.losses.crl import chunks
from rectifier.losses.crl.design import check_reduction, reduce_labels
from rectifier.losses.cross_entropy import CrossEntropy
from rectifier.losses.inputs import no_autocast, prepare
from rectifier.losses.objective import LossParts
from rectifier.losses.sample import label_means
from rectifier.losses.semi_hard_triplet import check_margin, required


def ranking_loss(features: Tensor, targets: Tensor, margin: float = 0.2) -> Tensor:
    """Compute a triplet ranking loss over the joined features of all labels (after Huang et al. 2015), a scalar.

    DARN's positive is another picture of the same item, which a data set without identities does not have. In our
    reading an anchor's positives are the samples that agree with it in the largest share of labels, of those that both
    have, and its negative is the nearest sample that agrees in fewer: hard mining in the batch, ties to the sample
    that comes first. The loss is the mean over all such pairs of max(0, margin + D(a, p) - D(a, n)), D the squared
    distance of the joined features, which are brought to unit length here.

    Args:
        features: ``(N, A, D)``, joined to ``(N, A * D)``, or ``(N, D)``.
        targets: ``(N, A)``, or ``(N,)`` for one label; negative where missing.
        margin: How much farther the negative has to be.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> ranking_loss(features, torch.tensor([[0, 0], [0, 0], [0, 1]]))  # the first two agree, but the third is nearer
    tensor(1.2000)
    """
    check_margin(margin)
    labels = targets.shape[1] if isinstance(targets, Tensor) and targets.dim() == 2 else 1
    canonical = check.targets(targets, labels)
    known = check.features(required(features), features, labels)
    check.same_length("features", known, "targets", canonical)
    with no_autocast(known):
        return ranked_triplets(at_least_float32(known), canonical, margin)[0]


def ranked_triplets(features: Tensor, targets: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the loss and the number of its triplets, from checked targets ``(N, A)``."""
    if len(targets) == 0:
        return features.sum(), torch.zeros((), dtype=torch.int64, device=features.device)
    joined = unit(features.flatten(1))
    bytes_per_anchor = targets.numel() * 4 + len(targets) * 96  # booleans of each label, a dozen float64
    sums_of = partial(_sums, joined, targets, margin)
    total, triplets = chunks.add_up(sums_of, chunks.split(len(targets), bytes_per_anchor))
    return total / triplets.clamp(min=1), triplets


def _sums(features: Tensor, targets: Tensor, margin: float, anchors: slice) -> tuple[Tensor, Tensor]:
    distances = squared_distances(features[anchors], features).to(features.dtype)
    with torch.no_grad():
        agreement = _agreement(targets, anchors)
        best = agreement.amax(-1, keepdim=True)
        negative = (agreement >= 0) & (agreement < best)
        positive = (agreement == best) & negative.any(-1, keepdim=True)
        # A float64's last digits would part what is equal.
        nearest = distances.float().masked_fill(~negative, float("inf")).argmin(-1, keepdim=True)
    hinges = (margin + distances - distances.gather(-1, nearest)).clamp(min=0).masked_fill(~positive, 0)
    return hinges.sum(), positive.sum()


def _agreement(targets: Tensor, anchors: slice) -> Tensor:
    """Return ``(n, N)``: the share of labels in which samples agree; -1 where they have none in common, and for itself.

    Equal shares are equal floats: a quotient of small integers is rounded once.
    """
    labelled = targets >= 0
    both = (labelled[anchors, None] & labelled).sum(-1)
    agreed = ((targets[anchors, None] == targets) & labelled).sum(-1)
    number = torch.arange(len(targets), device=targets.device)
    unknown = (both == 0) | (number[anchors, None] == number)
    return torch.where(unknown, -1, agreed / both.clamp(min=1))


class RankedCrossEntropy(torch.nn.Module):
    """Cross-entropy of every label, plus ``weight`` times the ``ranking_loss`` of the joined features (DARN).

    Called as every objective. The ``rectification`` of its parts is the ranking loss, the same in every label;
    ``comparisons`` is the number of its triplets. ``alpha`` is 0, for nothing is taken off the cross-entropy.

    Args:
        sizes: Classes of each label, or a LabelSpace.
        weight: Of the ranking beside the cross-entropy; 0 is cross-entropy alone.
        margin: How much farther the negative has to be than the positive.
        label_reduction: Of the cross-entropy: ``"sum"`` over labels or ``"mean"``.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks.

    >>> objective = RankedCrossEntropy([2], weight=0.5)
    >>> objective(torch.zeros(3, 2), torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    tensor(1.2931)
    """

    def __init__(
        self,
        sizes: Sizes,
        weight: float = 1.0,
        margin: float = 0.2,
        *,
        label_reduction: str = "sum",
        gather: bool = False,
    ) -> None:
        super().__init__()
        weight_ok = check.is_real(weight) and weight >= 0
        check.raise_all(
            [
                check.that("weight", weight, "a number of at least 0", weight_ok),
                check.choice("label_reduction", label_reduction, ("sum", "mean")),
            ]
        )
        self.sizes: Sizes = sizes if isinstance(sizes, LabelSpace) else columns.as_sizes(sizes)
        self.weight, self.margin = weight, check_margin(margin)
        self.label_reduction = check_reduction(label_reduction)
        self.gather = gather

    def forward(
        self, logits: Tensor, targets: Tensor, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` from the same pass."""
        with no_autocast(logits):
            given = prepare(logits, targets, required(features), self.sizes, "instance", self.gather)
            log_p = columns.log_softmax(given.logits, given.sizes)
            entropy = label_means(CrossEntropy().of(log_p, given.targets, given.sizes), given.targets)
            ranking, triplets = ranked_triplets(required(given.features), given.targets, self.margin)
            loss = reduce_labels(entropy, self.label_reduction) + self.weight * ranking
        if not return_parts:
            return loss
        none = torch.zeros_like(entropy)
        every = ranking.detach().expand_as(entropy)
        return LossParts(loss, entropy.detach(), every, none, none.long(), triplets.expand(len(entropy)))
