"""Which classes are mined, and which samples are hard. Everything here chooses, without a gradient.

Slots are ordered hardest first, and ties go to the first sample of the batch. Slots that stay empty are marked, so that
every shape depends only on the sizes of the input.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rectifier._base.distances import widest
from rectifier.labels import columns
from rectifier.labels.imbalance import column_counts, minority_of_counts
from rectifier.losses.crl.design import certain


class Profile(NamedTuple):
    """The classes of one batch: each sample's class, and which classes are mined."""

    own: Tensor  # (A, N) column of each sample's class, -1 where missing
    mined: Tensor  # (K,) classes to rectify
    easy: Tensor | None = None  # (A, N) the samples that may be anchors; None is all

    def is_anchor(self) -> Tensor:
        """Mark ``(A, N)`` the samples of mined classes, or only the easy ones."""
        of_mined = (self.own >= 0) & self.mined[self.own.clamp(min=0)]
        return of_mined if self.easy is None else of_mined & self.easy

    def mined_classes(self, sizes: tuple[int, ...]) -> Tensor:
        """Return ``(A,)``: the number of mined classes of each label."""
        return columns.sum_by_label(self.mined.int(), sizes).long()


class Hard(NamedTuple):
    """The hard samples of R rows. A row is a class (class level) or an anchor (instance level)."""

    positive_idx: Tensor  # (..., kappa) sample indices, hardest first
    positive: Tensor  # (..., kappa) slots that are filled
    negative_idx: Tensor
    negative: Tensor


def profile(targets: Tensor, sizes: tuple[int, ...], rho: float, scope: str) -> Profile:
    """Profile a batch (Eq. 3): mine its minority classes, or all classes for ``scope="all"``."""
    own = columns.own_columns(targets, sizes).t().contiguous()
    return Profile(own, mined_of_counts(column_counts(own, sum(sizes)), sizes, rho, scope))


def mined_of_counts(counts: Tensor, sizes: tuple[int, ...], rho: float, scope: str) -> Tensor:
    """Mark the mined classes ``(K,)`` of a batch with these class counts ``(K,)``.

    A mined class needs two samples, so that an anchor has a positive, and one negative.

    >>> mined_of_counts(torch.tensor([5, 2, 1]), (3,), 0.5, "minority")
    tensor([False,  True, False])
    """
    samples = columns.sum_by_label(counts, sizes)[columns.label_of_column(sizes, counts.device)]
    mined = (counts >= 2) & (counts < samples)
    return mined & minority_of_counts(counts, sizes, rho) if scope == "minority" else mined


def within(running: Tensor, samples: Tensor, rho: float) -> Tensor:
    """Mark the classes up to which a label has at most ``rho`` of its samples, by the running sum of their samples."""
    # rho * n must round as in plain Python, or a class at the threshold changes sides.
    return running <= rho * samples.to(widest(samples.device))


def mined_columns(mined: Tensor, most: int) -> Tensor:
    """Return ``(most,)`` different columns that include all mined ones, or all columns if they are no more."""
    if certain(most >= mined.shape[0]):
        return columns.count_up(mined.shape[0], mined.device)
    return mined.to(torch.int8).argsort(descending=True, stable=True)[:most]


def easiest(own: Tensor, scores: Tensor, kappa: int) -> Tensor:
    """Mark the kappa best scored samples of each class: the easy anchors of Wang et al. (2019).

    ``own`` is ``(A, N)``. ``scores`` ``(N, K)`` is each sample's score on each class; only the own class counts.

    >>> easiest(torch.tensor([[0, 0, 1]]), torch.tensor([[0.6, 0.4], [0.9, 0.1], [0.7, 0.3]]), 1)
    tensor([[False,  True,  True]])
    """
    own_scores = scores.detach().t().gather(0, own.clamp(min=0))
    best_first = own_scores.sort(dim=-1, descending=True, stable=True).indices
    by_class = own.gather(-1, best_first).sort(dim=-1, stable=True)
    place = torch.arange(own.shape[1], device=own.device)
    rank = place - torch.searchsorted(by_class.values, by_class.values)  # within its class
    return torch.zeros_like(own, dtype=torch.bool).scatter(-1, best_first.gather(-1, by_class.indices), rank < kappa)


def class_level(scores: Tensor, members: Tensor, others: Tensor, kappa: int, priority: Tensor | None = None) -> Hard:
    """Mine per class (Eqs. 4 and 5): the kappa lowest scored members and the kappa highest scored others.

    ``scores``, ``members`` and ``others`` are ``(M, N)``: row by class, column by sample. Rows of classes that are not
    mined have no members and no others. ``priority`` ``(2, M, N)`` chooses by random numbers instead.
    """
    if priority is None and _is_sorted_at_once(scores):
        return _by_one_sort(scores, members, others, kappa)
    return Hard(
        *hardest(scores, members, kappa, largest=False, priority=None if priority is None else priority[0]),
        *hardest(scores, others, kappa, largest=True, priority=None if priority is None else priority[1]),
    )


def instance_level(distances: Tensor, same: Tensor, other: Tensor, kappa: int, priority: Tensor | None = None) -> Hard:
    """Mine per anchor (Eqs. 6 and 7): the kappa farthest of its class and the kappa nearest of other classes.

    ``distances``, ``same`` and ``other`` are ``(A, n, N)``: label, anchor, sample. ``same`` excludes the anchor itself.
    """
    return Hard(
        *hardest(distances, same, kappa, largest=True, priority=None if priority is None else priority[0]),
        *hardest(distances, other, kappa, largest=False, priority=None if priority is None else priority[1]),
    )


def hardest(
    values: Tensor, eligible: Tensor, kappa: int, *, largest: bool, priority: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the indices of the kappa largest (smallest) eligible values of the last dimension, and which exist.

    Ties go to the lower index. Values must not be negative. With ``priority`` it takes the kappa eligible entries of
    highest priority instead, still ordered hardest first.

    >>> idx, filled = hardest(torch.tensor([0.1, 0.9, 0.9]), torch.tensor([True, True, True]), 2, largest=True)
    >>> idx.tolist(), filled.tolist()
    ([1, 2], [True, True])
    """
    if priority is None:
        return _top(values, eligible, kappa, largest)
    chosen, filled = _top(priority, eligible, kappa, largest=True)
    # Restore sample order, so that the second choice also breaks ties by sample index.
    chosen, order = torch.where(filled, chosen, values.shape[-1]).sort(-1)
    filled = filled.gather(-1, order)
    chosen = torch.where(filled, chosen, 0)
    slot, filled = _top(values.gather(-1, chosen), filled, chosen.shape[-1], largest)
    return chosen.gather(-1, slot), filled


def highest(values: Tensor, kappa: int, negative: bool) -> tuple[Tensor, Tensor]:
    """Return the kappa highest values of each row, ascending, and their indices. Ties prefer the lower index.

    Values are at least 0 or, for ``negative``, at most 0. In both cases -inf is below all.

    >>> highest(torch.tensor([[0.5, 0.9, 0.5]]), 2, negative=False)
    (tensor([[0.5000, 0.9000]]), tensor([[0, 1]]))
    """
    samples = values.shape[1]
    if certain(samples <= kappa):  # nothing is left out, so ties may come in any order
        ascending: tuple[Tensor, Tensor] = values.sort(dim=1)
        return ascending
    room = _room(samples, kappa)
    values = pad(values, (0, room), value=-math.inf) if room else values
    if values.dtype != torch.float32 or _is_sorted_at_once(values):
        idx = values.sort(dim=1, descending=True, stable=True).indices[:, :kappa]
    else:
        idx = _top_indices(values.abs() if negative else values, kappa, largest=not negative)
    idx = idx.flip(1)
    return values.gather(1, idx), idx.clamp(max=samples - 1) if room else idx


def _top_indices(values: Tensor, kappa: int, largest: bool) -> Tensor:
    """Return the indices of the kappa largest (smallest) values of each row, in float32 and at least 0, -inf or inf.

    top-k leaves ties open. Bits of such floats sort like the floats, so bits and index share one integer.
    """
    number = columns.count_up(values.shape[-1], values.device)
    key = values.contiguous().view(torch.int32).to(torch.int64).bitwise_left_shift_(32)  # a product would be slower
    key = key.sub_(number) if largest else key.add_(number)
    return key.topk(kappa, dim=-1, largest=largest).indices


def _top(values: Tensor, eligible: Tensor, kappa: int, largest: bool) -> tuple[Tensor, Tensor]:
    samples = values.shape[-1]
    kappa = samples if certain(samples < kappa) else kappa
    if room := _room(samples, kappa):
        values, eligible = pad(values, (0, room)), pad(eligible, (0, room))
    if values.dtype != torch.float32 or _is_sorted_at_once(values):
        signed = values if largest else -values
        order = signed.masked_fill(~eligible, -math.inf).sort(dim=-1, descending=True, stable=True).indices
        idx = order[..., :kappa]
    else:
        idx = _top_indices(values.masked_fill(~eligible, -math.inf if largest else math.inf), kappa, largest)
    filled = eligible.gather(-1, idx)  # eligible values are finite, so they come first
    return idx.clamp(max=samples - 1) if room else idx, filled


def _room(samples: int, kappa: int) -> int:
    """Return the empty entries to add to a row, where a graph for any number of samples cannot know if it has kappa."""
    return 0 if certain(samples >= kappa) else kappa


def _by_one_sort(scores: Tensor, members: Tensor, others: Tensor, kappa: int) -> Hard:
    """Mine members and others, which are disjoint, by one sort instead of two; scores are from 0 to 1."""
    # Non-negative floats sort like their bits. Members come above all others, the lowest scored member first.
    bits, last = scores.contiguous().view(torch.int32), scores.shape[-1] - 1
    key = torch.where(members, 2 * _BITS_OF_ONE + 1 - bits, torch.where(others, bits, -1))
    order = key.sort(dim=-1, descending=True, stable=True).indices
    own, rest = members.sum(-1, keepdim=True), others.sum(-1, keepdim=True)
    slot = columns.count_up(last + 1 if certain(last + 1 < kappa) else kappa, scores.device)
    behind = (own + slot).clamp(max=last)
    return Hard(order.index_select(-1, slot.clamp(max=last)), slot < own, order.gather(-1, behind), slot < rest)


def _is_sorted_at_once(values: Tensor) -> bool:
    return values.is_cuda and values.dtype == torch.float32 and not certain(values.shape[-1] > _SORTED_AT_ONCE)


_BITS_OF_ONE = 0x3F800000
_SORTED_AT_ONCE = 4096  # longest rows that a GPU sorts in one kernel, faster than it finds their top-k
