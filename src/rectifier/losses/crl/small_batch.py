"""The class-level triplet loss of a small batch, in which hard mining leaves nothing out.

No more than kappa samples need no sorting. Every sample is compared with every pair of samples, at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rectifier.labels import columns
from rectifier.losses.crl import mining
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.scores import Scores
from rectifier.losses.crl.triplets import Reading, Term, Triplets


def all_triplets(scores: Scores, targets: Tensor, sizes: tuple[int, ...], design: Design) -> Reading:
    """Read each sample's score on the class of each; ``targets`` are ``(N, A)``."""
    (samples, labels), total = targets.shape, sum(sizes)
    missing = (targets < 0).t()
    own = (targets if labels == 1 else targets + columns.offsets(sizes, targets.device)).t().masked_fill(missing, total)
    same = own[:, :, None] == own[:, None, :]  # label, anchor, sample
    members = same.sum(2).masked_fill_(missing, samples + 1)  # missing labels come last, and are never mined
    present = samples - missing.sum(1, keepdim=True)
    others = present - members
    if design.takes_all:
        anchors = others > 0
    else:
        key = torch.add(own, members, alpha=total + 1)
        anchors = mining.within((key[:, None, :] <= key[:, :, None]).sum(2), present, design.rho)

    def count(read: Tensor) -> Triplets:
        positive, negative = same & anchors[:, :, None], same | missing[:, None, :]
        coefficient, active = _count_active(read.view(same.shape), positive, negative, design.common_margin)
        number = ((members - 1) * others * anchors).sum(1)
        return Triplets((Term(place, coefficient.view(place.shape)),), active, number)

    number = columns.count_up(samples, own.device)
    place = torch.add(own.clamp(max=total - 1)[:, :, None], number, alpha=total).view(labels, -1)
    # Each class counts as often as it has samples.
    return Reading(place.view(-1), count, lambda: ((anchors & (members >= 2)) / members).sum(1).round().long())


def _count_active(score: Tensor, same: Tensor, excluded: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Return the coefficient of each score ``(A, N, N)`` and the active triplets ``(A,)``.

    ``same`` marks the positives of each anchor, and the anchor itself. ``excluded`` marks those that are no negatives.
    """
    anchor = score.diagonal(dim1=1, dim2=2)
    gap = anchor[:, :, None] - score
    # max(0, m + |p_a - p_+| - p_a + p_-) is active for the negatives above this bound.
    bound = ((anchor - margin)[:, :, None] - gap.abs()).masked_fill_(~same, math.inf)
    bound.diagonal(dim1=1, dim2=2).fill_(math.inf)  # an anchor is not its own positive
    negative = score.masked_fill(excluded, -math.inf)
    active = negative[:, :, None, :] > bound[:, :, :, None]
    in_positive = active.sum(3, dtype=gap.dtype)
    slope = in_positive * gap.sign()
    coefficient = active.sum(2) - slope
    coefficient.diagonal(dim1=1, dim2=2).add_((slope - in_positive).sum(2))
    return coefficient, in_positive.sum((1, 2))
