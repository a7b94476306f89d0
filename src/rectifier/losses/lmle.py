"""LMLE (Huang et al. 2016): a triple-header hinge on quintuplets, and the objective that trains with it.

The hinge separates clusters within a class, and classes from each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from rectifier._base import check
from rectifier._base.distances import unit
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.inputs import Inputs, no_autocast, prepare
from rectifier.losses.module import ScheduledModule, in_training
from rectifier.losses.objective import LossParts
from rectifier.losses.sample import label_means, own_values

MARGINS = (0.1, 0.2, 0.3)
"""Our choice, because the publication gives none. Squared distances of unit vectors are from 0 to 4."""

ROLES = 5
"""Anchor, near, far_cluster_near, far_cluster_far, other: the blocks of a batch, in this order."""


def quintuplet_loss(
    anchor: Tensor,
    near: Tensor,
    far_cluster_near: Tensor,
    far_cluster_far: Tensor,
    other: Tensor,
    *,
    valid: Tensor | None = None,
    margins: tuple[float, float, float] = MARGINS,
) -> Tensor:
    """Compute the triple-header hinge of R quintuplets, as the mean over the valid ones (Huang et al. 2016).

    max(0, g1 + D(a, p+) - D(a, p-)) + max(0, g2 + D(a, p-) - D(a, p--)) + max(0, g3 + D(a, p--) - D(a, n)), with D the
    squared Euclidean distance of features scaled to unit length.

    Args:
        anchor: The features of a, ``(R, D)``. The others have the same shape.
        near: p+, the most distant sample of the anchor's own cluster.
        far_cluster_near: p-, the nearest sample of its class from another cluster.
        far_cluster_far: p--, the most distant sample of its class from another cluster.
        other: n, the nearest sample of another class.
        valid: The rows that count, boolean ``(R,)``; None is all. Without any the loss is 0, with a gradient path.
        margins: g1, g2 and g3.

    >>> east, north = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> quintuplet_loss(east, east, east, east, north)  # violates g1 and g2, satisfies g3
    tensor(0.3000)
    """
    five = (anchor, near, far_cluster_near, far_cluster_far, other)
    shapes = [tuple(part.shape) for part in five]
    is_2d = all(part.dim() == 2 and part.is_floating_point() for part in five)
    mask_ok = valid is None or (valid.dtype == torch.bool and valid.shape == anchor.shape[:1])
    check.raise_all(
        [
            check.that("quintuplets", shapes, "five tensors of one shape (R, D)", len({*shapes}) == 1 and is_2d),
            check.that("valid", valid, f"one boolean for each of the {len(anchor)} rows", mask_ok),
            _margins_complaint(margins),
        ]
    )
    with no_autocast(anchor):
        hinges = triple_header(five, margins)
        counted = torch.ones_like(hinges, dtype=torch.bool) if valid is None else valid
        return hinges.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)


def triple_header(five: Sequence[Tensor], margins: tuple[float, float, float]) -> Tensor:
    """Return the sum of the three hinges of each quintuplet, ``(R,)``, from five unchecked tensors ``(R, D)``."""
    a, *others = (unit(part) for part in five)
    to = [(a - part).square().sum(-1) for part in others]
    steps = zip(margins, to[:-1], to[1:], strict=True)
    return torch.stack([(margin + nearer - farther).clamp(min=0) for margin, nearer, farther in steps]).sum(0)


class LMLE(ScheduledModule):
    """Train features with the triple-header hinge on the batches of ``QuintupletSampler`` (Huang et al. 2016).

    A batch is five blocks of R rows, [anchors | near | far_cluster_near | far_cluster_far | other]. Row r of each block
    belongs to label r % A and uses that label's features, scaled to unit length. A row counts if its first four samples
    have one class of this label and the last another. The loss is the sum over labels of the mean over their rows that
    count.

    LMLE starts from pre-trained features. This objective trains them itself: until the share ``pretrain`` of training
    it is the cross-entropy of all samples, summed over labels. Call ``set_progress``. Afterwards the logits get the
    gradient 0, and clusters decide.

    In its parts, ``base_loss`` is each label's contribution to the loss and ``comparisons`` its quintuplets that count.

    Own arguments (``Objective`` and ``quintuplet_loss`` explain the others):
        quintuplets: R, at least one per label; None is a fifth of each batch.
        weight: Weight of the quintuplets relative to the cross-entropy before them. At the learning rate of a new
            network, hard quintuplets can collapse all features to one point, where the loss stays at its margins.

    >>> objective = LMLE([2], quintuplets=1, pretrain=0.5)
    >>> east, north = [1.0, 0.0], [0.0, 1.0]
    >>> batch = torch.zeros(5, 2), torch.tensor([0, 0, 0, 0, 1]), torch.tensor([east, east, east, east, north])
    >>> objective.set_progress(0.0)
    >>> objective(*batch)
    tensor(0.6931)
    >>> objective.set_progress(0.5)
    >>> objective(*batch)
    tensor(0.3000)
    """

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
        rows = None if quintuplets is None else rows_complaint(quintuplets, len(columns.as_sizes(sizes)))
        portion, positive = check.portion("pretrain", pretrain), check.positive("weight", weight)
        check.raise_all([rows, _margins_complaint(margins), portion, positive])
        self.sizes = columns.kept_sizes(sizes)
        self.quintuplets, self.margins, self.pretrain = quintuplets, margins, pretrain
        self.weight, self.gather = weight, gather

    def forward(
        self, logits: Tensor, targets: Tensor, features: Tensor | None = None, *, return_parts: bool = False
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` whose rectification is 0."""
        self.warn_if_untold(*(["pretrain"] if self.pretrain else []))
        rows = self.quintuplets or len(check.logits(logits)) // ROLES
        if len(check.logits(logits)) != ROLES * rows:
            wanted = f"of {ROLES * rows} rows, five for each of {rows} quintuplets, as from QuintupletSampler"
            check.fail("a batch", wanted, f"{len(logits)}")
        with no_autocast(logits):
            given = prepare(logits, targets, features, self.sizes, "instance", self.gather and in_training(self))
            log_p = columns.log_softmax(given.logits, given.sizes)
            entropy = label_means(-own_values(log_p, given.targets, given.sizes), given.targets)
            apart, comparisons = self._quintuplets(given, rows)
            # Both are computed: a choice on the host would wait for the device and could not be captured.
            pretraining = self.progress < self.pretrain
            per_label = torch.where(pretraining, entropy, self.weight * apart)
            loss = per_label.sum()
        counted = torch.where(pretraining, 0, comparisons)
        return LossParts.without_rectification(loss, per_label, counted) if return_parts else loss

    def _quintuplets(self, given: Inputs, rows: int) -> tuple[Tensor, Tensor]:
        """Return each label's mean hinge over its rows that count, and the number of these rows."""
        own = _by_row(given.targets[:, :, None], given, rows).squeeze(-1)
        anchor, other = own[0], own[-1]
        valid = (own[:-1] == anchor).all(0) & (anchor >= 0) & (other >= 0) & (other != anchor)
        hinges = triple_header(
            _by_row(check.features(given.features, given.logits, len(given.sizes)), given, rows).unbind(), self.margins
        )
        counted = _by_label(valid.long(), len(given.sizes), rows)
        return _by_label(hinges.masked_fill(~valid, 0), len(given.sizes), rows) / counted.clamp(min=1), counted

    def extra_repr(self) -> str:
        return f"quintuplets={self.quintuplets}, margins={self.margins}, pretrain={self.pretrain}, weight={self.weight}"


def _by_row(values: Tensor, given: Inputs, rows: int) -> Tensor:
    """Return ``(5, R, D)``, the rows of all ranks: ``(N, A, D)`` at each row's label, or ``(N, D)`` unchanged."""
    labels = len(given.sizes)
    if values.dim() == 3:
        label = (torch.arange(len(values), device=values.device) % rows) % labels
        wide = values.expand(-1, labels, -1)
        values = wide.gather(1, label[:, None, None].expand(-1, 1, wide.shape[-1])).squeeze(1)
    by_rank: Tensor = values.unflatten(0, (-1, ROLES, rows))
    return by_rank.transpose(0, 1).flatten(1, 2)


def _by_label(values: Tensor, labels: int, rows: int) -> Tensor:
    """Sum over the rows of each label, ``(A,)``. The rows of a rank cycle through the labels."""
    by_rank: Tensor = values.unflatten(0, (-1, rows))
    return pad(by_rank, (0, -rows % labels)).reshape(-1, labels).sum(0)


def rows_complaint(quintuplets: int, labels: int) -> str | None:
    wanted = f"at least {labels}, one for each label" if labels > 1 else "a positive integer"
    return check.that("quintuplets", quintuplets, wanted, check.is_count(quintuplets) and quintuplets >= labels)


def _margins_complaint(margins: tuple[float, float, float]) -> str | None:
    three = isinstance(margins, list | tuple) and len(margins) == 3
    ok = three and all(check.is_real(margin) and margin >= 0 for margin in margins)
    return check.that("margins", margins, "three numbers of at least 0", ok)
