"""The class-level triplet loss with hard mining, exact, without listing its triplets.

For an anchor scored above a hard positive the triplet is max(0, m - p_+ + p_-): it does not depend on the anchor. The
hard positives are the lowest scored, so all anchors outside them are one number times their count, and only pairs of
hard positives are left. ``comparison.relative_sums`` gives the same from listed pairs, and serves every other case.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier.columns import table
from rectifier.losses.comparison import reached
from rectifier.losses.mining import Hard


def hard_triplet_sums(scores: Tensor, members: Tensor, hard: Hard, margin: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum over all triplets of each class (Eqs. 9 and 10) and their number, both ``(M,)``.

    The sum is piecewise linear in the scores ``(M, N)``, so it equals margin * active + sum(coefficient * score), where
    both count active triplets and have no gradient of their own. ``margin`` is ``(M,)``.
    """
    with torch.no_grad():
        active, coefficient, triplets = _count_active(scores, members, hard, margin)
    return margin * active + (coefficient * scores).sum(-1), triplets


def _count_active(scores: Tensor, members: Tensor, hard: Hard, margin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the active triplets ``(M,)``, each score's coefficient ``(M, N)`` and the number of triplets ``(M,)``."""
    kappa = hard.positive.shape[-1]
    low, high = _ascending_pairs(kappa, scores.device)
    positive = scores.gather(1, hard.positive_idx)
    filled = hard.positive.to(scores.dtype)
    hard_positives = filled.sum(1, keepdim=True)
    outside = members.sum(1, keepdim=True) - hard_positives  # anchors beyond the hard positives

    # What a triplet adds to its negative's score: for the pairs with the anchor below the positive, then for each
    # positive with any anchor above it.
    below = positive[:, high] - 2 * positive[:, low]
    offset = margin[:, None] + torch.cat([below, -positive], 1)
    negative = scores.gather(1, hard.negative_idx).neg().masked_fill(~hard.negative, float("inf"))
    active = torch.searchsorted(negative, offset)

    above = (hard_positives - 1 - torch.arange(kappa, device=scores.device)).clamp(min=0) + outside
    anchors = torch.cat([filled[:, low] * filled[:, high], above * filled], 1)
    in_negative = reached(active, anchors, negative.shape[1])

    active = active.to(scores.dtype)
    grid = active[:, _search_of_pair(kappa, scores.device)].reshape(-1, kappa, kappa)  # [anchor, positive]
    grid = grid * filled[:, :, None] * filled[:, None, :]
    side = (positive[:, :, None] - positive[:, None, :]).sign()  # the derivative of |p_a - p_+|, 0 where they tie
    side.diagonal(dim1=1, dim2=2).fill_(0)
    grid.diagonal(dim1=1, dim2=2).fill_(0)
    in_positive = (grid * (side - 1)).sum(2) - (grid * side).sum(1)

    # An anchor outside can tie only with the last hard positives; |p_a - p_+| has no slope then, and -p_a remains. The
    # coefficient of every member of that score is set, and taken back from the hard positives among them.
    base = active[:, low.shape[0] :] * filled
    last = positive[:, -1:]
    ties = (positive == last) * filled * filled[:, -1:]
    tied = members & (scores == last)
    tied_outside = tied.sum(1, keepdim=True) - ties.sum(1, keepdim=True)
    slope = (base * ties).sum(1, keepdim=True)
    coefficient = tied * -slope
    in_positive += slope * ties - base * (outside - tied_outside * ties)
    coefficient.scatter_add_(1, hard.positive_idx, in_positive * filled)
    coefficient.scatter_add_(1, hard.negative_idx, in_negative * hard.negative)

    pairs = (hard_positives + outside - 1) * hard_positives
    return (active * anchors).sum(1), coefficient, (pairs * hard.negative.sum(1, keepdim=True)).squeeze(1)


@table
def _ascending_pairs(kappa: int, device: torch.device) -> Tensor:
    """``(2, pairs)``: the pairs low < high of kappa sorted positives."""
    pairs: Tensor = torch.triu_indices(kappa, kappa, 1, device=device)
    return pairs


@table
def _search_of_pair(kappa: int, device: torch.device) -> Tensor:
    """``(kappa * kappa,)``: for [anchor, positive] the search to read.

    It is the pair's own where the anchor is the lower one, else the positive's, which stands behind all pairs.
    """
    low, high = _ascending_pairs(kappa, device)
    number = low.shape[0] + torch.arange(kappa, device=device).repeat(kappa, 1)
    number[low, high] = torch.arange(low.shape[0], device=device)
    flat: Tensor = number.flatten()
    return flat
