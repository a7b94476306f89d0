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
from rectifier.losses.crl.triplets import Term, Triplets


def all_triplets(scores: Scores, targets: Tensor, sizes: tuple[int, ...], design: Design) -> Triplets:
    """Count the triplets of all samples, without a gradient; ``targets`` are ``(N, A)``."""
    (samples, labels), total = targets.shape, sum(sizes)
    missing = (targets < 0).t()
    own = (targets if labels == 1 else targets + columns.offsets(sizes, targets.device)).t().masked_fill(missing, total)
    same = own[:, :, None] == own[:, None, :]  # label, anchor, sample
    members = same.sum(2).masked_fill_(missing, samples + 1)  # missing labels come last, and are never mined
    present = samples - missing.sum(1, keepdim=True)
    others = present - members
    key = torch.add(own, members, alpha=total + 1)
    running = (key[:, None, :] <= key[:, :, None]).sum(2)
    mined = mining.is_mined(running, members, present, design)

    number = columns.count_up(samples, own.device)
    place = torch.add(own.clamp(max=total - 1)[:, :, None], number, alpha=total)
    score = scores.at(place)
    anchor = score.diagonal(dim1=1, dim2=2)
    gap = anchor[:, :, None] - score
    # max(0, m + |p_a - p_+| - p_a + p_-) is active for the negatives above this bound.
    bound = (anchor - design.common_margin)[:, :, None] - gap.abs()
    bound = bound.masked_fill_(~(same & mined[:, :, None]), math.inf)
    bound.diagonal(dim1=1, dim2=2).fill_(math.inf)  # an anchor is not its own positive
    negative = score.masked_fill_(same | missing[:, None, :], -math.inf)
    active = negative[:, :, None, :] > bound[:, :, :, None]
    in_positive = active.sum(3, dtype=gap.dtype)
    slope = in_positive * gap.sign()
    coefficient = active.sum(2) - slope
    coefficient.diagonal(dim1=1, dim2=2).add_((slope - in_positive).sum(2))
    return Triplets(
        (Term(place.view(labels, -1), coefficient.view(labels, -1)),),
        in_positive.sum((1, 2)),
        ((members - 1) * others * mined).sum(1),
        (mined / members).sum(1).round().long(),
    )
