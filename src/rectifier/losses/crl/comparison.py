"""Three ways to compare hard samples: relative (triplets), absolute (pairs), distribution (histograms).

``Pairs`` holds the distances of every anchor to its hard samples. Each comparison turns the pairs of some anchors into
sums (``*_sums``) that add up over the chunks of a batch, and the sums into one loss per label (``*_loss``).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Pairs(NamedTuple):
    """Distances of n anchors of A labels to positives and to negatives, the nearest negative first."""

    positive: Tensor  # (A, n, P) distances
    is_positive: Tensor  # (A, n, P) pairs that exist
    negative: Tensor  # (A, n, L) distances, existing ones first and ascending
    is_negative: Tensor


Sums = tuple[Tensor, ...]


class Comparison(NamedTuple):
    """One of the three comparisons, with its parameters."""

    name: str
    margin: Tensor  # (A,)
    bins: int
    signed: bool  # distances are score differences in [-1, 1]; otherwise from 0 to the largest of the batch

    def reach(self, pairs: Pairs) -> Tensor:
        """Return ``(A,)``: the upper end of the histograms for these pairs."""
        if self.signed:
            return torch.ones_like(self.margin)
        longest = [
            distance.detach().masked_fill(~exists, 0).amax((1, 2))
            for distance, exists in ((pairs.positive, pairs.is_positive), (pairs.negative, pairs.is_negative))
        ]
        return torch.maximum(*longest)

    def sums(self, pairs: Pairs, reach: Tensor) -> Sums:
        if self.name == "relative":
            return relative_sums(pairs, self.margin)
        if self.name == "absolute":
            return absolute_sums(pairs, self.margin)
        return distribution_sums(pairs, -reach if self.signed else torch.zeros_like(reach), reach, self.bins)

    def loss(self, sums: Sums) -> Tensor:
        by_name = {"relative": relative_loss, "absolute": absolute_loss, "distribution": distribution_loss}
        return by_name[self.name](sums)

    def number(self, sums: Sums) -> Tensor:
        """Return the number of triplets, or of pairs of both kinds."""
        return sums[1] if self.name == "relative" else sums[1] + sums[3]


def relative_sums(pairs: Pairs, margin: Tensor) -> Sums:
    """Sum max(0, m + d(a,+) - d(a,-)) over all triplets (Eq. 9) and count them; ``margin`` ``(A,)``.

    The sum is piecewise linear in the distances. How often each distance enters an active triplet is counted without a
    gradient, by binary search in the sorted negatives in place of P x L hinges. The rest is one weighted sum.
    """
    margin = margin[:, None, None]
    with torch.no_grad():
        nearer = pairs.negative.masked_fill(~pairs.is_negative, float("inf"))
        active = torch.searchsorted(nearer.contiguous(), (margin + pairs.positive).contiguous())
        in_positive = active.to(pairs.positive.dtype).masked_fill(~pairs.is_positive, 0)
        in_negative = reached(active, pairs.is_positive.to(pairs.positive.dtype), pairs.negative.shape[-1])
        triplets = (pairs.is_positive.sum(-1) * pairs.is_negative.sum(-1)).sum(-1)
    positive = (in_positive * (margin + pairs.positive)).sum((1, 2))
    return positive - (in_negative * pairs.negative).sum((1, 2)), triplets


def reached(active: Tensor, weight: Tensor, length: int) -> Tensor:
    """Return ``(..., length)``: the total weight of the entries that reach each place of a sorted list.

    An entry with ``active`` = 3 reaches places 0, 1 and 2.

    >>> reached(torch.tensor([1, 3]), torch.tensor([1.0, 1.0]), 3)
    tensor([2., 1., 1.])
    """
    ends = weight.new_zeros((*active.shape[:-1], length + 1)).scatter_add(-1, active, weight)
    return weight.sum(-1, keepdim=True) - ends.cumsum(-1)[..., :-1]


def relative_loss(sums: Sums) -> Tensor:
    return _mean(sums[0], sums[1])


def absolute_sums(pairs: Pairs, margin: Tensor) -> Sums:
    """Sum d(a,+)^2 and max(m - d(a,-), 0)^2 over their pairs (Eq. 13), and count both kinds."""
    near = pairs.positive.masked_fill(~pairs.is_positive, 0)
    far = (margin[:, None, None] - pairs.negative).clamp(min=0).masked_fill(~pairs.is_negative, 0)
    return (
        near.square().sum((1, 2)),
        pairs.is_positive.sum((1, 2)),
        far.square().sum((1, 2)),
        pairs.is_negative.sum((1, 2)),
    )


def absolute_loss(sums: Sums) -> Tensor:
    return (_mean(sums[0], sums[1]) + _mean(sums[2], sums[3])) / 2


def distribution_sums(pairs: Pairs, low: Tensor, high: Tensor, bins: int) -> Sums:
    """Sum both histograms (Eqs. 14, 15) ``(A, bins)`` from ``low`` to ``high`` ``(A,)``, and count their pairs."""
    return (
        _histogram(pairs.positive, pairs.is_positive, low, high, bins),
        pairs.is_positive.sum((1, 2)),
        _histogram(pairs.negative, pairs.is_negative, low, high, bins),
        pairs.is_negative.sum((1, 2)),
    )


def distribution_loss(sums: Sums) -> Tensor:
    """Return sum_t h+_t sum_{k<=t} h-_k (Eq. 16): the probability that a negative pair is nearer than a positive
    one.
    """
    positive, negative = _mean(sums[0], sums[1][:, None]), _mean(sums[2], sums[3][:, None])
    return (positive * negative.cumsum(-1)).sum(-1)


def _histogram(distances: Tensor, exists: Tensor, low: Tensor, high: Tensor, bins: int) -> Tensor:
    step = (high - low) / (bins - 1)
    step = torch.where(step > 0, step, 1)  # all distances are equal: everything is at the first node
    place = (distances - low[:, None, None]) / step[:, None, None]
    node = place.detach().floor().clamp(0, bins - 2)
    upper = (place - node).masked_fill(~exists, 0)
    lower = (1 + node - place).masked_fill(~exists, 0)
    node = node.long().flatten(1)
    histogram = distances.new_zeros(distances.shape[0], bins)
    return histogram.scatter_add(1, node, lower.flatten(1)).scatter_add(1, node + 1, upper.flatten(1))


def _mean(total: Tensor, count: Tensor) -> Tensor:
    return total / count.clamp(min=1)
