"""Decide by the k nearest neighbours.

Scores are ``(Q, K)`` in the columns of the logits, so metrics and decision rules work on them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import squared_distances
from rectifier._base.distances import unit as unit_length
from rectifier.evaluation.by_features.decision import Decision, FitData
from rectifier.evaluation.metrics import balanced_mean, count_correct
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace

KS = tuple(range(1, 50, 2))
"""The values of k that validation chooses from: 1, 3, 5, ... 49."""

CHUNK = 1024
"""Queries compared at once."""

_BLOCK = 8192  # references compared with a chunk of queries at once
_PLACES = 2**32


def neighbour_scores(queries: Tensor, references: Tensor, targets: Tensor, sizes: tuple[int, ...], k: int) -> Tensor:
    """Score queries by their k nearest references, ``(Q, K)``: the log of each class's share of the votes.

    Each of the k nearest references that have the label votes for its class. All classes share one more vote equally,
    so no score is infinite. The highest score is the majority; ties go to the lower class. Of two equally distant
    references, the one with the lower index counts as nearer. If fewer than k have the label, all of them vote.

    ``queries`` are ``(Q, D)``, or ``(Q, A, D)`` if each label has its own features, and so are ``references``, on the
    same device. ``targets`` ``(n, A)`` are those of the references, negative where missing.

    >>> references, targets = torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> neighbour_scores(torch.tensor([[2.0]]), references, targets, (2,), k=3).exp()
    tensor([[0.6250, 0.3750]])
    """
    return torch.cat([_vote(near, sizes) for near in _neighbours(queries, references, targets, sizes, k)])


def choose_k(
    queries: Tensor,
    answers: Tensor,
    references: Tensor,
    targets: Tensor,
    sizes: tuple[int, ...],
    ks: Sequence[int] = KS,
) -> int:
    """Return the k with the best class-balanced accuracy on these (validation) queries; ties go to the smaller k.

    ``answers`` are the targets of the queries. Neighbours are searched once for all ``ks``.
    """
    counted = torch.zeros(2, len(ks), sum(sizes), dtype=torch.int64, device=queries.device)
    chunks = _neighbours(queries, references, targets, sizes, max(ks))
    for near, own in zip(chunks, answers.split(CHUNK), strict=True):
        counts = [count_correct(_vote(near[..., :k], sizes), own, sizes) for k in ks]
        counted += torch.stack([torch.stack(part) for part in zip(*counts, strict=True)])
    accuracy = [float(balanced_mean(correct, total, sizes)) for correct, total in zip(*counted, strict=True)]
    return max(zip(ks, accuracy, strict=True), key=lambda found: (found[1], -found[0]))[0]


def _neighbours(queries: Tensor, references: Tensor, own: Tensor, sizes: tuple[int, ...], k: int) -> Iterator[Tensor]:
    """Yield for each chunk of queries ``(q, A, k)``: the columns that the k nearest vote for, nearest first.

    A missing vote points to a column after the last.
    """
    voted = torch.where(own >= 0, columns.own_columns(own, sizes), sum(sizes))
    groups = _labels_searched_together(own, queries.dim() == 2)
    for rows in queries.split(CHUNK):
        near = torch.full((len(rows), len(sizes), k), sum(sizes), device=queries.device)
        for labels, labelled in groups:
            a = int(labels[0])
            found = _nearest(columns.of_label(rows, a), columns.of_label(references, a), labelled, k)
            near[:, labels, : found.shape[1]] = voted[labelled[found]][..., labels].transpose(1, 2)
        yield near


def _labels_searched_together(own: Tensor, shared: bool) -> list[tuple[Tensor, Tensor]]:
    """Group labels that share features and labelled references: they have the same neighbours."""
    patterns, group = (own >= 0).T, torch.arange(own.shape[1], device=own.device)
    if shared:
        patterns, group = patterns.unique(dim=0, return_inverse=True)
    return [((group == g).nonzero()[:, 0], pattern.nonzero()[:, 0]) for g, pattern in enumerate(patterns)]


def _nearest(queries: Tensor, references: Tensor, labelled: Tensor, k: int) -> Tensor:
    """Return ``(q, k or fewer)``: the places in ``labelled`` of the nearest references, nearest first, ties by place.

    Floats from 0 up sort like their bits, so distance and place fit into one integer that sorts by both. Each block
    keeps only the best so far, so memory never exceeds one block of distances.
    """
    best = torch.zeros(len(queries), 0, dtype=torch.int64, device=queries.device)
    for first in range(0, len(labelled), _BLOCK):
        block = references[labelled[first : first + _BLOCK]]
        bits = squared_distances(queries, block).float().view(torch.int32).long()  # float32: equal features tie
        place = torch.arange(first, first + len(block), device=queries.device)
        best = torch.cat([best, bits * _PLACES + place], 1)
        best = best.topk(min(k, best.shape[1]), dim=1, largest=False).values
    return best % _PLACES


def _vote(near: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(q, K)``: the log of the share of votes, from the columns voted for ``(q, A, k)``."""
    votes = torch.zeros(len(near), sum(sizes) + 1, device=near.device)
    cast = near.flatten(1)
    votes = votes.scatter_add(1, cast, torch.ones_like(cast, dtype=votes.dtype))[:, :-1]
    label = columns.label_of_column(sizes, near.device)
    all_votes = (near < sum(sizes)).sum(-1)[:, label] + 1
    return ((votes + 1 / columns.label_sizes(sizes, near.device)[label]) / all_votes).log()


@dataclass(frozen=True, eq=False)
class NeighbourDecision(Decision):
    """The k nearest training samples vote; validation chooses k by class-balanced accuracy.

    With ``unit``, features are scaled to unit length and stored in float16, which halves the file. Queries are rounded
    the same way; this only affects neighbours whose distances differ by less than about 0.05 %. Without ``unit``,
    features are stored in float32, because float16 might overflow.

    Options of ``fit``: ``unit``, and ``ks``, the values of k to try.

    >>> features, targets = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 3.0]]), torch.tensor([[0], [0], [1]])
    >>> found = NeighbourDecision.fit(features, targets, LabelSpace.from_sizes([2]), features, targets)
    >>> found.k, found(torch.tensor([[0.1, 0.2]])).argmax(1).item()
    (1, 1)
    """

    references: Tensor
    targets: Tensor
    k: int
    unit: bool

    @classmethod
    def fit_checked(cls, space: LabelSpace, given: FitData, *, unit: bool = True, ks: Sequence[int] = KS) -> Self:
        if not ks or not all(check.is_count(k) for k in ks):
            check.fail("ks", "positive integers, at least one", repr(ks))
        references, queries = (_prepared(x, unit) for x in (given.features, given.validation_features))
        k = choose_k(queries, given.validation_targets, references, given.targets, space.sizes, ks)
        narrow = torch.int8 if max(space.sizes) < 2**7 else torch.int32  # with many labels, targets fill the file
        return cls(space.sizes, tuple(references.shape[1:]), references, given.targets.to(narrow), k, unit)

    def scores(self, features: Tensor) -> Tensor:
        references, targets = self.references.to(features.device), self.targets.to(features.device)
        return neighbour_scores(_prepared(features, self.unit), references, targets, self.sizes, self.k)


def _prepared(features: Tensor, unit: bool) -> Tensor:
    return unit_length(features.float()).half() if unit else features.float()
