"""Decide by cluster centres, as LMLE does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import squared_distances, unit
from rectifier.evaluation.by_features.decision import NEVER, Decision, FitData
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace
from rectifier.samplers.lmle.clusters import CHUNK, CLUSTER_SIZE, Clusters, cluster_labels

NEARESTS = (1, 2, 3, 5, 10, 20, 50)
"""The numbers of nearest centres that validation chooses from, in addition to all of them."""

FITTED_ON = 50
"""Samples per cluster that k-means uses before its last round."""


@dataclass(frozen=True, eq=False)
class ClusterDecision(Decision):
    """LMLE's decision: the class whose clusters are near while those of the others are far (``cluster_scores``).

    Features are scaled to unit length. Validation chooses the number of nearest centres that count, by class-balanced
    accuracy and for all labels at once; ties go to the smaller number. With 1, the nearest centre decides.

    Options of ``fit``: ``size`` is the approximate number of samples in a cluster, ``nearests`` are the numbers to try,
    ``seed`` draws the first centres.

    >>> features, targets = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 3.0]]), torch.tensor([[0], [0], [1]])
    >>> found = ClusterDecision.fit(features, targets, LabelSpace.from_sizes([2]), features, targets)
    >>> found(torch.tensor([[0.1, 0.2]])).argmax(1).item()
    1
    """

    centres: Tensor  # (C, D), those of the first label first
    class_of: Tensor  # (C,)
    clusters: tuple[int, ...]  # number of centres of each label
    nearest: int

    @classmethod
    def fit_checked(
        cls,
        space: LabelSpace,
        given: FitData,
        *,
        size: int = CLUSTER_SIZE,
        nearests: Sequence[int] = NEARESTS,
        seed: int = 0,
    ) -> Self:
        if not all(check.is_count(nearest) for nearest in nearests):
            check.fail("nearests", "positive integers", repr(nearests))
        found = cluster_labels(unit(given.features.float()), given.targets, size, seed, FITTED_ON)
        clusters = tuple(len(own.class_of) for own in found)
        most = max(1, *clusters)
        queries = unit(given.validation_features.float())

        def accuracy(nearest: int) -> float:
            scores = cluster_label_scores(queries, found, space.sizes, nearest)
            return float(class_balanced_accuracy(scores, given.validation_targets, space))

        nearest = max(sorted({most, *(min(nearest, most) for nearest in nearests)}), key=accuracy)
        centres, class_of = torch.cat([own.centres for own in found]), torch.cat([own.class_of for own in found])
        return cls(space.sizes, tuple(queries.shape[1:]), centres, class_of, clusters, nearest)

    def scores(self, features: Tensor) -> Tensor:
        centres, class_of = (part.to(features.device).split(self.clusters) for part in (self.centres, self.class_of))
        unassigned = class_of[0][:0]
        found = [Clusters(*own, unassigned) for own in zip(centres, class_of, strict=True)]
        return cluster_label_scores(unit(features.float()), found, self.sizes, self.nearest)


def cluster_scores(queries: Tensor, clusters: Clusters, classes: int, nearest: int) -> Tensor:
    """Score the classes of one label, ``(Q, classes)``, by the distances of queries ``(Q, D)`` to the centres.

    The score is the smallest distance to a cluster of another class, minus the largest distance to a cluster of the
    class, among the ``nearest`` centres of the query. Distances are squared; the highest score wins. A class that owns
    all of these centres scores 0. A class that owns none scores below all others, by the distance to its own nearest
    centre. A class without any centre scores ``NEVER``.

    >>> clusters = Clusters(torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0, 0, 1]), torch.zeros(0).long())
    >>> cluster_scores(torch.tensor([[1.0]]), clusters, classes=2, nearest=3)
    tensor([[ 8., -9.]])
    """
    number = len(clusters.class_of)
    if number == 0:
        return torch.zeros(len(queries), classes, dtype=queries.dtype, device=queries.device)
    rows = queries.split(max(1, CHUNK // (number + classes)))
    return torch.cat([_scores(chunk, clusters, classes, nearest) for chunk in rows])


def cluster_label_scores(queries: Tensor, clusters: Sequence[Clusters], sizes: Sequence[int], nearest: int) -> Tensor:
    """Score the classes of all labels, ``(Q, K)``; queries ``(Q, D)`` or ``(Q, A, D)``, one Clusters per label."""
    by_label = enumerate(zip(clusters, sizes, strict=True))
    scores = [cluster_scores(columns.of_label(queries, a), own, size, nearest) for a, (own, size) in by_label]
    return torch.cat(scores, 1)


def _scores(queries: Tensor, clusters: Clusters, classes: int, nearest: int) -> Tensor:
    distances = squared_distances(queries, clusters.centres)
    order = distances.argsort(dim=1, stable=True)[:, :nearest]
    near = torch.zeros_like(distances, dtype=torch.bool).scatter(1, order, True)
    infinite = float("inf")
    place = clusters.class_of.expand_as(distances)
    empty = distances.new_full((len(queries), classes), infinite)
    least = empty.scatter_reduce(1, place, distances.masked_fill(~near, infinite), "amin")
    most = (-empty).scatter_reduce(1, place, distances.masked_fill(~near, -infinite), "amax")
    # The least distance of the other classes is the least of all, or the second for the class that has the least.
    first, whose = least.min(1, keepdim=True)
    second = least.scatter(1, whose, infinite).amin(1, keepdim=True)
    others = torch.where(torch.arange(classes, device=whose.device) == whose, second, first)
    scores = torch.where(others.isinf(), 0, others - most)
    # A class without a nearest centre ranks behind those that have one, by the distance to its own nearest centre.
    # These numbers are finite, as decision rules and calibration need them.
    own = empty.scatter_reduce(1, place, distances, "amin")
    behind = torch.where(own.isinf(), NEVER, -(distances.amax(1, keepdim=True) + own))
    return torch.where(most.isinf(), behind, scores).to(queries.dtype)
