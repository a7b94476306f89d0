"""LMLE's objective: cross-entropy until the features are worth comparing, then quintuplets."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.space import LabelSpace
from rectifier.losses.cross_entropy import CrossEntropy
from rectifier.losses.inputs import Inputs, no_autocast, prepare
from rectifier.losses.objective import LossParts
from rectifier.losses.quintuplet import MARGINS, margins_complaint, triple_header
from rectifier.losses.sample import label_means
from rectifier.losses.semi_hard_triplet import required

ROLES = 5
"""Anchor, near, far_cluster_near, far_cluster_far, other: the blocks of a batch, in this order."""


class LMLE(torch.nn.Module):
    """Train features with the triple-header hinge on the batches of ``QuintupletSampler`` (Huang et al. 2016).

    A batch is five blocks of R rows, [anchors | near | far_cluster_near | far_cluster_far | other]. Row r of each
    belongs to label r % A and is compared by that label's features, brought to unit length. A row counts where its
    first four samples are of one class of this label and the last of another: what was not mined, or has nothing to be
    told from, does not. The loss is the sum over labels of the mean over their rows that count.

    LMLE begins from pre-trained features. Ours are trained by this objective itself: until the share ``pretrain`` of
    training it is the cross-entropy of all samples, summed over labels as elsewhere. ``set_progress`` tells how far
    training is. Afterwards the logits have the gradient 0, and clusters decide.

    The ``base_loss`` of its parts is what each label adds to the loss, ``comparisons`` its quintuplets that count.

    Args:
        sizes: Classes of each label, or a LabelSpace.
        quintuplets: R, at least one for each label; None is a fifth of whatever batch comes.
        margins: g1, g2 and g3 of the three hinges.
        pretrain: The share of training that is cross-entropy, from 0 to 1.
        weight: What the quintuplets weigh then, against the cross-entropy that they follow. Hard ones at the rate of a
            network that learns from scratch can pull all features to a point, where the loss stays at its margins.
        gather: Under ``torch.distributed``, the mean over the rows of all ranks, not over those of each.

    >>> objective = LMLE([2], quintuplets=1, pretrain=0.5)
    >>> east, north = [1.0, 0.0], [0.0, 1.0]
    >>> batch = torch.zeros(5, 2), torch.tensor([0, 0, 0, 0, 1]), torch.tensor([east, east, east, east, north])
    >>> objective(*batch)
    tensor(0.6931)
    >>> objective.set_progress(0.5)
    >>> objective(*batch)
    tensor(0.3000)
    """

    progress: Tensor

    def __init__(
        self,
        sizes: Sizes,
        *,
        quintuplets: int | None = None,
        margins: tuple[float, float, float] = MARGINS,
        pretrain: float = 0.2,
        weight: float = 1.0,
        gather: bool = False,
    ) -> None:
        super().__init__()
        labels = len(columns.as_sizes(sizes))
        rows = None if quintuplets is None else rows_complaint(quintuplets, labels)
        light = check.that("weight", weight, "a positive number", check.is_real(weight) and weight > 0)
        check.raise_all([rows, margins_complaint(margins), check.portion("pretrain", pretrain), light])
        self.sizes: Sizes = sizes if isinstance(sizes, LabelSpace) else columns.as_sizes(sizes)
        self.quintuplets, self.margins, self.pretrain = quintuplets, margins, pretrain
        self.weight, self.gather = weight, gather
        self.cross_entropy = CrossEntropy()
        self.register_buffer("progress", torch.zeros(()), persistent=False)

    def set_progress(self, share: float) -> None:
        """Say which share of training is done, from 0 to 1; a captured step reads it too, for the tensor stays."""
        check.raise_all([check.portion("progress", share)])
        self.progress.fill_(share)

    def forward(
        self, logits: Tensor, targets: Tensor, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` whose rectification is 0."""
        rows = self.quintuplets or len(check.logits(logits)) // ROLES
        if len(check.logits(logits)) != ROLES * rows:
            wanted = f"of {ROLES * rows} rows, five for each of {rows} quintuplets, as QuintupletSampler lays out"
            check.fail("a batch", wanted, f"{len(logits)}")
        with no_autocast(logits):
            given = prepare(logits, targets, required(features), self.sizes, "instance", self.gather)
            entropy, (apart, comparisons) = self._entropy(given), self._quintuplets(given, rows)
            # Both are computed: a choice on the host would wait for the device, and could not be captured.
            pretraining = self.progress < self.pretrain
            per_label = torch.where(pretraining, entropy, self.weight * apart)
            loss = per_label.sum()
        if not return_parts:
            return loss
        none = torch.zeros_like(per_label.detach())
        counted = torch.where(pretraining, 0, comparisons)
        return LossParts(loss, per_label.detach(), none, none, none.long(), counted)

    def _entropy(self, given: Inputs) -> Tensor:
        """Return ``(A,)``: the mean over the samples that have the label, 0 where none has."""
        return label_means(self.cross_entropy(given.logits, given.targets, given.sizes), given.targets)

    def _quintuplets(self, given: Inputs, rows: int) -> tuple[Tensor, Tensor]:
        """Return for each label the mean hinge over its rows that count, and how many these are."""
        own = _by_row(given.targets[:, :, None], given, rows).squeeze(-1)
        anchor, other = own[0], own[-1]
        valid = (own[:-1] == anchor).all(0) & (anchor >= 0) & (other >= 0) & (other != anchor)
        hinges = triple_header(_by_row(required(given.features), given, rows).unbind(), self.margins)
        counted = _by_label(valid.long(), len(given.sizes), rows)
        return _by_label(hinges.masked_fill(~valid, 0), len(given.sizes), rows) / counted.clamp(min=1), counted

    def extra_repr(self) -> str:
        return f"quintuplets={self.quintuplets}, margins={self.margins}, pretrain={self.pretrain}, weight={self.weight}"


def _by_row(values: Tensor, given: Inputs, rows: int) -> Tensor:
    """Return ``(5, R, D)``, the rows of all ranks: of ``(N, A, D)`` that of each row's label, of ``(N, D)`` all."""
    labels = len(given.sizes)
    if values.dim() == 3:
        label = (torch.arange(len(values), device=values.device) % rows) % labels
        wide = values.expand(-1, labels, -1)
        values = wide.gather(1, label[:, None, None].expand(-1, 1, wide.shape[-1])).squeeze(1)
    by_rank: Tensor = values.unflatten(0, (-1, ROLES, rows))
    return by_rank.transpose(0, 1).flatten(1, 2)


def _by_label(values: Tensor, labels: int, rows: int) -> Tensor:
    """Add up over the rows of each label, ``(A,)``; those of a rank come one label after the other, and again."""
    by_rank: Tensor = values.unflatten(0, (-1, rows))
    return pad(by_rank, (0, -rows % labels)).reshape(-1, labels).sum(0)


def rows_complaint(quintuplets: int, labels: int) -> str | None:
    wanted = f"at least {labels}, one for each label" if labels > 1 else "a positive integer"
    return check.that("quintuplets", quintuplets, wanted, check.is_count(quintuplets) and quintuplets >= labels)
