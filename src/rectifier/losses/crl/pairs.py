"""From scores or features to pairs: every anchor with its hard positives and negatives.

Both levels return the pairs of any group of anchors, so a batch can be compared in chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base.distances import squared_distances, unit
from rectifier.labels import columns
from rectifier.losses.crl import mining
from rectifier.losses.crl.bounds import bounds_of
from rectifier.losses.crl.comparison import Pairs
from rectifier.losses.crl.design import Design, certain
from rectifier.losses.crl.mining import Hard, Profile
from rectifier.losses.crl.scores import Scores

Draw = Callable[[tuple[int, ...], torch.device], Tensor]


class ScoredClasses(NamedTuple):
    """The classes that may be mined, one row each, with their hard samples."""

    column: Tensor  # (M,) column of each row
    label: Tensor  # (M,) label of each row
    scores: Tensor  # (M, N) each sample's score on the class, without gradient
    members: Tensor  # (M, N) samples of the class, where it is mined
    hard: Hard  # (M, kappa)


def scored_classes(
    scores: Scores, batch: Profile, sizes: tuple[int, ...], design: Design, draw: Draw | None = None
) -> ScoredClasses:
    """Mine each class of the batch. ``draw`` gives random numbers for random mining."""
    most = bounds_of(batch.own.shape[1], sizes, design)
    rows, kappa = mining.mined_columns(batch.mined, most.mined), most.slots
    label = columns.label_of_column(sizes, rows.device)[rows]
    by_class = scores.by_class(rows)
    own = batch.own.index_select(0, label)
    mined = batch.mined[rows][:, None]
    is_own = own == rows[:, None]
    members, others = is_own & mined, ~is_own & (own >= 0) & mined
    priority = draw((2, *own.shape), own.device) if draw else None
    if scores.negative:  # mining takes no negative values: the lowest score is farthest from 0
        hard = mining.instance_level(by_class.abs(), members, others, kappa, priority)
    else:
        hard = mining.class_level(by_class, members, others, kappa, priority)
    return ScoredClasses(rows, label, by_class, members, hard)


class ScorePairs:
    """Class level: the pairs of an anchor are its score and the scores of its class's hard samples (Eq. 10).

    ``read`` takes the scores at ``places``, which may have a gradient.
    """

    def __init__(self, classes: ScoredClasses, batch: Profile) -> None:
        hard, own, total = classes.hard, batch.own.clamp(min=0), batch.mined.shape[0]
        self.hard = hard
        self.row = own if certain(classes.column.shape[0] == total) else _row_of_column(classes.column, batch)[own]
        self.is_anchor = batch.is_anchor()
        samples = [hard.positive_idx, hard.negative_idx, _count(own.t())]
        owners = [classes.column[:, None], classes.column[:, None], own]
        places = [total * sample + column for sample, column in zip(samples, owners, strict=True)]
        self._parts = [(place.numel(), place.shape) for place in places]
        self.places = torch.cat([place.reshape(-1) for place in places])

    def read(self, scores: Tensor) -> ScorePairs:
        parts = scores.split([numel for numel, _ in self._parts])
        read: list[Tensor] = [part.view(shape) for part, (_, shape) in zip(parts, self._parts, strict=True)]
        self.positive, self.negative, self.own_scores = read
        return self

    @property
    def bytes_per_anchor(self) -> int:
        slots = self.positive.shape[1] + self.negative.shape[1]
        return self.row.shape[0] * slots * 48  # a dozen float32 per pair, forward and backward

    def __call__(self, anchors: slice) -> Pairs:
        row, score = self.row[:, anchors], self.own_scores[:, anchors, None]
        is_anchor = self.is_anchor[:, anchors, None]
        itself = _of_row(self.hard.positive_idx, row) == _count(self.row.t())[anchors, None]
        return Pairs(
            (score - _of_row(self.positive, row)).abs(),
            _of_row(self.hard.positive, row) & ~itself & is_anchor,
            score - _of_row(self.negative, row),
            _of_row(self.hard.negative, row) & is_anchor,
        )


def _of_row(values: Tensor, row: Tensor) -> Tensor:
    """Return ``values[row]``, by ``index_select``, whose gradient needs no sorting."""
    return values.index_select(0, row.flatten()).reshape(*row.shape, -1)


def _row_of_column(column: Tensor, batch: Profile) -> Tensor:
    return torch.zeros_like(batch.mined, dtype=torch.int64).scatter(0, column, _count(column))


def _count(tensor: Tensor) -> Tensor:
    return torch.arange(tensor.shape[0], device=tensor.device)


class FeaturePairs:
    """Instance level: the pairs of an anchor are its distances to its own hard samples (Eq. 11)."""

    def __init__(self, features: Tensor, batch: Profile, kappa: int, normalize: bool, draw: Draw | None) -> None:
        by_label = features[None] if features.dim() == 2 else features.transpose(0, 1)
        self.features = unit(by_label) if normalize else by_label
        self.own = batch.own
        self.is_anchor = batch.is_anchor()
        self.kappa = kappa
        # Drawn once, because the backward pass computes chunks again.
        shape = (2, *self.own.shape, self.own.shape[1])
        self.priority = draw(shape, features.device) if draw else None

    @property
    def bytes_per_anchor(self) -> int:
        return self.own.shape[0] * self.own.shape[1] * 96  # a dozen float64 per distance, forward and backward

    def __call__(self, anchors: slice) -> Pairs:
        anchor_own = self.own[:, anchors, None]
        is_anchor = self.is_anchor[:, anchors, None]
        same = self.own[:, None, :] == anchor_own
        number = _count(self.own.t())
        itself = number[anchors, None] == number
        distances = euclidean(self.features[:, anchors], self.features).expand(same.shape)
        hard = mining.instance_level(
            distances.detach().float(),  # equal features must tie, despite rounding errors in float64
            same & ~itself & is_anchor,
            ~same & (self.own >= 0)[:, None, :] & is_anchor,
            self.kappa,
            None if self.priority is None else self.priority[:, :, anchors],
        )
        return Pairs(
            distances.gather(-1, hard.positive_idx),
            hard.positive,
            distances.gather(-1, hard.negative_idx),
            hard.negative,
        )


def euclidean(anchors: Tensor, samples: Tensor) -> Tensor:
    """Return the distances ``(A, n, N)`` between ``(A, n, D)`` and ``(A, N, D)``, with gradient 0 at distance 0.

    >>> euclidean(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[3.0, 4.0], [0.0, 0.0]]]))
    tensor([[[5., 0.]]])
    """
    squared = squared_distances(anchors, samples)
    together = squared == 0
    return torch.where(together, 1, squared).sqrt().to(samples.dtype) * ~together
