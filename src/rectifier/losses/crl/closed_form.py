"""The class-level triplet loss with hard mining for few classes of many samples, exact, without a list of its triplets.

For an anchor scored above a hard positive the triplet is max(0, m - p_+ + p_-), which does not depend on the anchor.
The hard positives have the lowest scores, so all anchors outside them are one number times their count. Only pairs of
hard positives are left. ``runs`` serves many classes of few samples. ``comparison.relative_sums`` gives the same from
listed pairs and serves every other case.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier.labels import columns
from rectifier.labels.columns import table
from rectifier.losses.crl import chunks
from rectifier.losses.crl.comparison import reached
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.mining import Hard, profile
from rectifier.losses.crl.pairs import ScoredClasses, scored_classes
from rectifier.losses.crl.scores import Scores
from rectifier.losses.crl.triplets import Reading, Term, Triplets


def count_triplets(scores: Scores, targets: Tensor, sizes: tuple[int, ...], design: Design) -> Reading:
    """Count the triplets of all classes that may be mined, without a gradient; ``targets`` are ``(N, A)``."""
    batch = profile(targets, sizes, design.rho, design.scope)
    classes = scored_classes(scores, batch, sizes, design)
    tensors = (classes.scores, classes.members, *classes.hard)
    rows = chunks.split(classes.scores.shape[0], _bytes_per_class(classes))
    parts = [_count_active(design.common_margin, *(tensor[chunk] for tensor in tensors)) for chunk in rows]
    active, coefficient, number = (torch.cat(part) for part in zip(*parts, strict=True))
    sample = torch.arange(targets.shape[0], device=targets.device)
    triplets = Triplets(
        (Term(classes.column[:, None] + sum(sizes) * sample, coefficient, classes.label),),
        columns.sum_by_label(active, sizes, classes.label),
        columns.sum_by_label(number, sizes, classes.label).long(),
    )
    return Reading.of(triplets, lambda: batch.mined_classes(sizes))


def _count_active(margin: float, scores: Tensor, members: Tensor, *mined: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the active triplets ``(M,)``, each score's coefficient ``(M, N)`` and the number of triplets ``(M,)``."""
    hard = Hard(*mined)
    low, high = _ascending_pairs(hard.positive.shape[1], scores.device)
    positive, filled = scores.gather(1, hard.positive_idx), hard.positive.to(scores.dtype)
    hard_positives = filled.sum(1, keepdim=True)
    outside = members.sum(1, keepdim=True) - hard_positives  # anchors beyond the hard positives

    # The number of triplets of each entry: a pair with its lower end as the anchor, then each positive with all anchors
    # above it, hard positives and others, which all have the same triplets.
    is_pair = filled.index_select(1, low) * filled.index_select(1, high)
    anchors_above = (filled.flip(1).cumsum(1).flip(1) - 1 + outside) * filled
    weight = torch.cat([is_pair, anchors_above], 1)

    gap = positive.index_select(1, high) - positive.index_select(1, low)
    offset = margin - torch.cat([positive.index_select(1, low) - gap, positive], 1)
    negative = scores.gather(1, hard.negative_idx).neg().masked_fill(~hard.negative, float("inf"))
    active = torch.searchsorted(negative, offset)
    in_negative = reached(active, weight, negative.shape[1]) * hard.negative

    active = active.to(scores.dtype)
    below, above = active.split([low.shape[0], filled.shape[1]], dim=1)
    in_positive = _pair_slopes(gap.sign(), below * is_pair, above.index_select(1, low) * is_pair, low, high, filled)
    in_outside, of_outside = _outside_slopes(scores, members, positive, filled, above * filled, outside)

    coefficient = in_outside.scatter_add_(1, hard.positive_idx, (in_positive + of_outside) * filled)
    coefficient.scatter_add_(1, hard.negative_idx, in_negative)
    pairs = (hard_positives + outside - 1) * hard_positives
    return (active * weight).sum(1), coefficient, (pairs * hard.negative.sum(1, keepdim=True)).squeeze(1)


def _pair_slopes(side: Tensor, below: Tensor, above: Tensor, low: Tensor, high: Tensor, slots: Tensor) -> Tensor:
    """Return ``(M, kappa)``: the gradient of the loss in each hard positive, from the pairs of hard positives.

    A pair has ``below`` active triplets m + |p_+ - p_a| - p_a + p_- with its lower end as the anchor, and ``above``
    with its upper end. ``side`` is the slope of |p_high - p_low|: 1, or 0 for a tie.
    """
    to_high = below * side + above * (side - 1)
    to_low = -below * (side + 1) - above * side
    return torch.zeros_like(slots).index_add(1, high, to_high).index_add(1, low, to_low)


def _outside_slopes(
    scores: Tensor, members: Tensor, positive: Tensor, filled: Tensor, above: Tensor, outside: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient from anchors outside the hard positives: in all scores ``(M, N)``, and in hard positives.

    Such an anchor leaves only -p_+, unless it ties with the positive. A tie is possible only with the score of the last
    positive. Then |p_a - p_+| has no slope, and -p_a remains. This slope is set for every member of that score, and
    subtracted again for the hard positives among them.
    """
    last = positive[:, -1:]
    tie = (positive == last) * filled * filled[:, -1:]
    tied = members & (scores == last)
    tied_outside = tied.sum(1, keepdim=True) - tie.sum(1, keepdim=True)
    slope = (above * tie).sum(1, keepdim=True)
    return tied * -slope, slope * tie - above * (outside - tied_outside * tie)


def _bytes_per_class(classes: ScoredClasses) -> int:
    slots, samples = classes.hard.positive.shape[1], classes.scores.shape[1]
    return 40 * (slots * (slots + 1) // 2 + samples)  # ten float32 per pair and per score


@table
def _ascending_pairs(slots: int, device: torch.device) -> Tensor:
    """Return ``(2, pairs)``: the pairs low < high of sorted positives."""
    pairs: Tensor = torch.triu_indices(slots, slots, 1, device=device)
    return pairs
