"""The class-level triplet loss with hard mining for many classes of few samples, exact, without a list of its triplets.

Sorted by class, rare classes first, the samples of a mined class are a run of neighbours, and the anchors of a label
are among its first rho * N samples, whatever the data. So every anchor meets the hard positives at the start of its
run. A binary search in the hard negatives of its class then counts the active triplets of each such pair.
``closed_form`` serves few classes of many samples, where most anchors are alike.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from rectifier.labels import columns
from rectifier.losses.crl import chunks, mining
from rectifier.losses.crl.bounds import bounds_of
from rectifier.losses.crl.design import Design, certain
from rectifier.losses.crl.scores import Scores
from rectifier.losses.crl.triplets import Reading, Term, Triplets


class Runs(NamedTuple):
    """The T samples that may be anchors, label after label, each at the position that sorting by class gives it."""

    position: Tensor  # (T,) 0, 1, 2 and so on
    score: Tensor  # (T,) the sample's score on its own class
    start: Tensor  # (T,) first position of its class
    members: Tensor  # (T,) samples of its class, 0 where it is not mined
    row: Tensor  # (T,) row of its class, 0 where none before it is mined
    others: Tensor  # (T,) samples of other classes
    place: Tensor  # (T,) entry of the scores that holds ``score``
    column: Tensor  # (R,) the class of each row: a mined one, except for row 0 and rows after the last mined class
    label: Tensor | None  # (R,); None if there is one
    is_first: Tensor  # (A, T / A) marks the first sample of each mined class

    def part(self, positions: slice) -> Runs:
        """Return the runs with some of the anchors."""
        names = ("position", "score", "start", "members", "row")
        return self._replace(**{name: getattr(self, name)[positions] for name in names})


def list_triplets(scores: Scores, targets: Tensor, sizes: tuple[int, ...], design: Design) -> Reading:
    """Count the triplets of every anchor, without a gradient; ``targets`` are ``(N, A)``."""
    (samples, labels), total = targets.shape, sum(sizes)
    kappa, anchors, *_ = bounds_of(samples, sizes, design)
    missing = (targets < 0).t()
    own = (targets if labels == 1 else targets + columns.offsets(sizes, targets.device)).t().masked_fill(missing, total)
    runs = class_runs(scores, own, missing, sizes, design)
    negative, negative_idx = _hard_negatives(scores, own, missing, runs, kappa)
    slots = anchors if certain(anchors < kappa) else kappa
    in_anchor, in_negative, active, pairs = _count_active(runs, negative, slots, design.common_margin)
    triplets = Triplets(
        (
            Term(runs.place.view(labels, -1), in_anchor.view(labels, -1)),
            Term(torch.add(runs.column[:, None], negative_idx, alpha=total), in_negative, runs.label),
        ),
        active.view(labels, -1).sum(1),
        (pairs * runs.others.clamp(max=kappa)).view(labels, -1).sum(1),
    )
    return Reading.of(triplets, lambda: runs.is_first.sum(1))


def class_runs(scores: Scores, own: Tensor, missing: Tensor, sizes: tuple[int, ...], design: Design) -> Runs:
    """Sort the samples of each label by the size of their class, their class and their score.

    ``own`` and ``missing`` are ``(A, N)``. A missing label has the column after the last.
    """
    (labels, samples), total, count_up = own.shape, sum(sizes), partial(columns.count_up, device=own.device)
    kappa, anchors, rows, _ = bounds_of(samples, sizes, design)
    flat = own.reshape(-1)
    ones = flat.new_ones(labels * samples, dtype=torch.int32)  # GPUs add int32 atomically, int64 only after a sort
    members = ones.new_zeros(total + 1).index_add_(0, flat, ones).index_select(0, flat).view(labels, samples)
    members = members.long().masked_fill_(missing, samples + 1)  # missing labels come last, and are never mined
    key = torch.add(own, members, alpha=total + 1)
    place = torch.add(own.clamp(max=total - 1), count_up(samples), alpha=total)
    score = scores.at(place)
    if certain(anchors <= kappa):  # every member is a hard positive
        key, order = key.sort(dim=1)
    else:
        by_score = score.sort(dim=1, stable=True).indices
        key, order = key.gather(1, by_score).sort(dim=1, stable=True)
        order = by_score.gather(1, order)
    order = _first(order, anchors)
    start = torch.searchsorted(key, _first(key, anchors).clone(memory_format=torch.contiguous_format))

    members = members.gather(1, order)
    present = (~missing).sum(1, keepdim=True)
    held = members < present if design.takes_all else mining.within(start + members, present, design.rho)
    mined = held & (members >= 2)
    is_first = mined & (start == count_up(anchors))
    row = is_first.view(-1).cumsum(0)
    first = torch.searchsorted(row, count_up(rows + 1)).clamp(max=labels * anchors - 1)
    if labels > 1:
        start = start + anchors * count_up(labels)[:, None]
    place = place.gather(1, order).view(-1)
    return Runs(
        count_up(labels * anchors),
        score.gather(1, order).view(-1),
        start.reshape(-1),
        (members * mined).view(-1),
        row,
        (present - members).view(-1),
        place,
        place.index_select(0, first) % total,
        None if labels == 1 else first // anchors,
        is_first,
    )


def _first(tensor: Tensor, length: int) -> Tensor:
    """Return the first entries of each row. A graph copies them, because a slice's layout would depend on sizes."""
    if torch.compiler.is_compiling():
        return tensor.index_select(1, torch.arange(length, device=tensor.device))
    return tensor[:, :length]


def _hard_negatives(scores: Scores, own: Tensor, missing: Tensor, runs: Runs, kappa: int) -> tuple[Tensor, Tensor]:
    """Return the kappa highest scores of other classes on the class of each row, ascending; -inf where fewer exist.

    The second tensor has their samples. Both are ``(R, kappa)``.
    """
    found = []
    for rows in chunks.split(runs.column.shape[0], 32 * own.shape[1]):  # 64-bit keys and what they are made of
        column, its, none = runs.column[rows], own, missing
        if runs.label is not None:
            its, none = (each.index_select(0, runs.label[rows]) for each in (own, missing))
        by_class = scores.by_class(column).masked_fill_((its == column[:, None]) | none, -math.inf)
        found.append(mining.highest(by_class, kappa, scores.negative))
    if len(found) == 1:
        return found[0]
    negative, negative_idx = (torch.cat(part) for part in zip(*found, strict=True))
    return negative, negative_idx


def _count_active(runs: Runs, negative: Tensor, kappa: int, margin: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return each score's coefficient: of anchors ``(T,)`` and of negatives ``(R, L)``; active triplets, pairs."""
    parts = chunks.split(runs.position.shape[0], 64 * kappa)  # eight tensors of 64 bits
    if len(parts) == 1:
        return _count_pairs(runs, runs.score, negative, kappa, margin)
    found = [_count_pairs(runs.part(part), runs.score, negative, kappa, margin) for part in parts]
    in_anchor, in_negative, active, pairs = zip(*found, strict=True)
    return torch.stack(in_anchor).sum(0), torch.stack(in_negative).sum(0), torch.cat(active), torch.cat(pairs)


def _count_pairs(
    anchors: Runs, scores: Tensor, negative: Tensor, kappa: int, margin: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Do as ``_count_active`` for some anchors, each with the hard positives at the start of its run."""
    slot = columns.count_up(kappa, negative.device)
    positive_idx = (anchors.start[:, None] + slot).clamp(max=scores.shape[0] - 1)
    gap = anchors.score[:, None] - scores.index_select(0, positive_idx.view(-1)).view(positive_idx.shape)
    no_pair = (slot >= anchors.members[:, None]) | (positive_idx == anchors.position[:, None])
    # max(0, m + |p_a - p_+| - p_a + p_-) is active for the negatives above this bound.
    bound = ((anchors.score - margin)[:, None] - gap.abs()).masked_fill_(no_pair, math.inf)
    inactive = torch.searchsorted(negative.index_select(0, anchors.row), bound, right=True)
    # Negatives are ascending, so a negative is active for all pairs with at most as many inactive ones before it.
    width = negative.shape[1] + 1
    ends = negative.new_zeros(negative.shape[0] * width)
    ends = ends.index_add_(0, (inactive + (width * anchors.row)[:, None]).view(-1), ends.new_ones(gap.numel()))
    in_negative = ends.view(-1, width).cumsum(1)[:, :-1]
    active = (negative.shape[1] - inactive).to(gap.dtype)
    slope = active * gap.sign()
    total = active.sum(1)
    in_anchor = slope.sum(1) - total
    if anchors.score is not scores:
        in_anchor = torch.zeros_like(scores).index_copy_(0, anchors.position, in_anchor)
    in_anchor = in_anchor.index_add_(0, positive_idx.view(-1), slope.view(-1), alpha=-1)
    return in_anchor, in_negative, total, kappa - no_pair.sum(1)
