"""Cross-entropy and a triplet ranking of whole samples: those that agree in most labels should be nearest (DARN)."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, Unpack

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import squared_distances, unit
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.crl import chunks
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.inputs import no_autocast, of_features, prepare, prepare_features
from rectifier.losses.module import in_training
from rectifier.losses.objective import LossParts
from rectifier.losses.sample import Conventions, described, mean_or_sum, reduce_labels


def ranking_loss(features: Tensor, targets: Any, margin: float = 0.2) -> Tensor:
    """Compute a triplet ranking loss over the joined features of all labels (after Huang et al. 2015), a scalar.

    DARN's positive is another picture of the same item. A data set without identities has none. In our reading an
    anchor's positives are the samples that agree with it in the largest share of labels, among labels that both have.
    Its negative is the nearest sample that agrees in fewer: hard mining in the batch, ties to the first sample. The
    loss is the mean over all such pairs of max(0, margin + D(a, p) - D(a, n)), with D the squared distance of the
    joined features, scaled to unit length.

    ``features`` are ``(N, A, D)``, joined to ``(N, A * D)``, or ``(N, D)``. ``targets`` are ``(N, A)``, or ``(N,)`` for
    one label; negative where missing.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> ranking_loss(features, torch.tensor([[0, 0], [0, 0], [0, 1]]))  # the first two agree, but the third is nearer
    tensor(1.2000)
    """
    check.raise_all([check.positive("margin", margin)])
    known, canonical = of_features(features, targets)
    with no_autocast(known):
        return ranked_triplets(known, canonical, margin)[0]


def ranked_triplets(features: Tensor, targets: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the loss and the number of its triplets, from checked targets ``(N, A)``."""
    if len(targets) == 0:
        return features.sum(), torch.zeros((), dtype=torch.int64, device=features.device)
    joined = unit(features.flatten(1))
    bytes_per_anchor = targets.numel() * 4 + len(targets) * 96  # booleans per label, a dozen float64
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
        # The last digits of float64 would break ties.
        nearest = distances.float().masked_fill(~negative, float("inf")).argmin(-1, keepdim=True)
    hinges = (margin + distances - distances.gather(-1, nearest)).clamp(min=0).masked_fill(~positive, 0)
    return hinges.sum(), positive.sum()


def _agreement(targets: Tensor, anchors: slice) -> Tensor:
    """Return ``(n, N)``: the share of labels that samples agree in; -1 without common labels and for the anchor itself.

    Equal shares are equal floats, because a quotient of small integers is rounded once.
    """
    labelled = targets >= 0
    both = (labelled[anchors, None] & labelled).sum(-1)
    agreed = ((targets[anchors, None] == targets) & labelled).sum(-1)
    number = torch.arange(len(targets), device=targets.device)
    unknown = (both == 0) | (number[anchors, None] == number)
    return torch.where(unknown, -1, agreed / both.clamp(min=1))


class RankedCrossEntropy(torch.nn.Module):
    """Train with the cross-entropy of every label plus ``ranking_weight`` times the ``ranking_loss`` (DARN).

    Called like every objective. Without ``features``, samples are ranked by their logits. In its parts,
    ``rectification`` is the ranking loss, the same for every label, and ``comparisons`` the number of its triplets.
    ``alpha`` is 0, because the cross-entropy keeps its full weight.

    ``margin`` is that of ``ranking_loss``, ``gather`` that of ``Objective``. ``SampleLoss`` explains the other options,
    which are those of the cross-entropy; its reductions are ``"mean"`` and ``"sum"``.

    >>> objective = RankedCrossEntropy([2], ranking_weight=0.5)
    >>> objective(torch.zeros(3, 2), torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))
    tensor(1.2931)
    """

    def __init__(
        self,
        sizes: Sizes | None = None,
        ranking_weight: float = 1.0,
        margin: float = 0.2,
        *,
        gather: bool = False,
        **conventions: Unpack[Conventions],
    ) -> None:
        super().__init__()
        check.raise_all(
            [
                check.not_negative("ranking_weight", ranking_weight),
                check.positive("margin", margin),
                *(mean_or_sum(name, conventions.get(name, "sum")) for name in _REDUCTIONS),
            ]
        )
        self.cross_entropy = CrossEntropyLoss(sizes, **conventions)
        self.sizes = self.cross_entropy.sizes
        self.ranking_weight, self.margin, self.gather = ranking_weight, margin, gather

    def forward(
        self, logits: Tensor, targets: Any, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` from the same pass."""
        entropy_of, gather = self.cross_entropy, self.gather and in_training(self)
        with no_autocast(logits):
            given = prepare(logits, targets, None, self.sizes, "class", gather, entropy_of.ignore_index)
            log_p = columns.log_softmax(given.logits, given.sizes)
            found = entropy_of.weighted(log_p, given, entropy_of.weight)
            entropy = found.means() if entropy_of.reduction == "mean" else found.losses.sum(0)
            ranked = prepare_features(logits, targets, features, self.sizes, gather, entropy_of.ignore_index)
            ranking, triplets = ranked_triplets(*ranked, self.margin)
            loss = reduce_labels(entropy, entropy_of.label_reduction) + self.ranking_weight * ranking
        if not return_parts:
            return loss
        parts = LossParts.without_rectification(loss, entropy, triplets.expand(len(entropy)))
        return parts._replace(rectification=ranking.detach().expand_as(entropy))

    def extra_repr(self) -> str:
        return described(self, "ranking_weight", "margin")


def ranked_cross_entropy(
    logits: Tensor,
    targets: Any,
    features: Tensor | None = None,
    *,
    ranking_weight: float = 1.0,
    margin: float = 0.2,
    sizes: Sizes | None = None,
    **conventions: Unpack[Conventions],
) -> Tensor:
    """Compute cross-entropy plus the ranking loss of a batch; see ``RankedCrossEntropy``."""
    loss: Tensor = RankedCrossEntropy(sizes, ranking_weight, margin, **conventions)(logits, targets, features)
    return loss


_REDUCTIONS: tuple[Literal["reduction", "label_reduction"], ...] = ("reduction", "label_reduction")
