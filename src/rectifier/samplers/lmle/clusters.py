"""LMLE's clusters: k-means within each class, quintuplets mined from them, and the decision by cluster centres.

Features are taken as they are given; LMLE's are of unit length. Everything runs where the features lie, in chunks, and
nothing grows with the square of the number of samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32, squared_distances
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.samplers.lmle.kmeans import NUMBERS, k_means

CLUSTER_SIZE = 200
"""Samples that a cluster has, about: LMLE's l."""

CHUNK = 2**24
"""Distances held at once."""

NEVER = -1e4
"""The score of a class that none of the nearest centres is of: far below any score of unit-length features."""


class Clusters(NamedTuple):
    """The clusters of one label, those of a class side by side."""

    centres: Tensor  # (C, D)
    class_of: Tensor  # (C,) ascending
    assigned: Tensor  # (N,) each sample's cluster, -1 where its label is missing


class Quintuplets(NamedTuple):
    """Numbers of samples, all ``(R,)``, in the order in which ``quintuplet_loss`` takes their features."""

    anchor: Tensor
    near: Tensor  # p+, the most distant of the anchor's own cluster
    far_cluster_near: Tensor  # p-, the nearest of its class from another cluster
    far_cluster_far: Tensor  # p--, the most distant of its class from another cluster
    other: Tensor  # n, the nearest of another class
    valid: Tensor  # rows whose anchor has its label, and another class to be told from


def cluster(
    features: Tensor, targets: Tensor, size: int = CLUSTER_SIZE, seed: int = 0, fitted_on: int | None = None
) -> Clusters:
    """Divide each class of one label into clusters of roughly ``size`` samples, by k-means on ``(N, D)``.

    A class of n samples has max(1, round(n / size)) clusters, fewer where samples are equal. Centres begin as in
    k-means++, drawn with ``seed``. A class without a sample has no cluster. ``fitted_on`` is for large data: k-means
    then looks at so many samples for each cluster, drawn from the class, and only its last round at all.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.5, 0.5]])
    >>> found = cluster(features, torch.tensor([0, 0, 0, 1]), size=2)
    >>> found.class_of.tolist(), bool(found.assigned[0] == found.assigned[1])
    ([0, 0, 1], True)
    """
    own = check.targets(targets, 1)
    _check_features(features, "targets", own)
    return cluster_labels(features, own, size, seed, fitted_on)[0]


@torch.no_grad()
def cluster_labels(
    features: Tensor, targets: Tensor, size: int = CLUSTER_SIZE, seed: int = 0, fitted_on: int | None = None
) -> list[Clusters]:
    """Cluster every label, each by its own features ``(N, A, D)``, or by shared ones ``(N, D)``; targets ``(N, A)``."""
    fitted_ok = fitted_on is None or check.is_count(fitted_on)
    check.raise_all(
        [
            check.that("size", size, "a positive integer", check.is_count(size)),
            check.that("fitted_on", fitted_on, "a positive integer or None", fitted_ok),
        ]
    )
    if targets.dim() != 2 or (features.dim() == 3 and features.shape[1] != targets.shape[1]):
        got = f"shapes {tuple(features.shape)} and {tuple(targets.shape)}"
        check.fail("features and targets", "of shapes (N, D) or (N, A, D) and (N, A)", got)
    _check_features(features if features.dim() != 3 else features.flatten(1), "targets", targets)
    generator = Generator(features.device).manual_seed(seed)
    found: list[Clusters] = []
    labels, at_once = range(targets.shape[1]), max(1, NUMBERS // max(1, len(features) * features.shape[-1]))
    for first in labels[::at_once]:
        members = {a: _members(targets[:, a].clamp(min=-1)) for a in labels[first : first + at_once]}
        classes = [(a, rows) for a, own in members.items() for rows in own.values()]
        groups = [at_least_float32(columns.of_label(features, a)[rows]) for a, rows in classes]
        clustered = iter(k_means(groups, [max(1, round(len(group) / size)) for group in groups], generator, fitted_on))
        found += [
            _joined({c: (rows, *next(clustered)) for c, rows in own.items()}, features) for own in members.values()
        ]
    return found


def _members(own: Tensor) -> dict[int, Tensor]:
    """Return the samples of each class of one label, in ascending order; -1 is no class."""
    classes, samples = own.unique(return_counts=True)
    by_class = own.argsort(stable=True).split(samples.tolist())
    return {c: rows for c, rows in zip(classes.tolist(), by_class, strict=True) if c >= 0}


def _joined(classes: dict[int, tuple[Tensor, Tensor, Tensor]], features: Tensor) -> Clusters:
    """Return the clusters of a label from the samples, the centres and each sample's centre of its classes."""
    assigned = torch.full((len(features),), -1, device=features.device)
    centres: list[Tensor] = [features.new_zeros(0, features.shape[-1])]
    class_of: list[int] = []
    for c, (rows, own, nearest) in classes.items():
        assigned[rows] = nearest + len(class_of)
        centres.append(own)
        class_of += [c] * len(own)
    whose = torch.tensor(class_of, dtype=torch.int64, device=features.device)
    return _without_empty(Clusters(torch.cat(centres), whose, assigned))


def balanced_anchors(targets: Tensor, count: int, generator: Generator | None = None) -> Tensor:
    """Draw ``(count,)`` sample numbers of one label, equally many of each class that has any, in random order.

    Large classes are under-sampled: no sample comes twice before all of its class have come. Where ``count`` is no
    multiple of the number of classes, which of them have one more is drawn.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1, -1])
    >>> targets[balanced_anchors(targets, 4)].bincount().tolist()
    [2, 2]
    """
    own = check.targets(targets, 1)[:, 0]
    check.raise_all([check.that("count", count, "a positive integer", check.is_count(count))])
    _, group, samples = torch.where(own >= 0, own, -1).unique(return_inverse=True, return_counts=True)
    missing = int(bool((own < 0).any()))  # the first group, if there
    classes = len(samples) - missing
    if classes == 0:
        check.fail("targets", "of at least one sample that has the label", "none")
    shuffled = _permutation(len(own), own.device, generator)
    order = shuffled[group[shuffled].argsort(stable=True)]  # class by class, each in random order
    begin = samples.cumsum(0) - samples
    turn = torch.arange(count, device=own.device)
    drawn = _permutation(classes, own.device, generator)[turn % classes] + missing
    found = order[begin[drawn] + (turn // classes) % samples[drawn]]
    return found[_permutation(count, own.device, generator)]


@torch.no_grad()
def mine_quintuplets(
    features: Tensor,
    clusters: Clusters,
    anchors: Tensor,
    candidates: int | None = None,
    generator: Generator | None = None,
) -> Quintuplets:
    """Find the quintuplet of each anchor ``(R,)`` among all samples ``(N, D)``, or among some drawn for each role.

    With ``candidates``, so many samples are drawn for each anchor and role (own cluster, own class in other clusters,
    other classes), with replacement: the work no longer depends on N. Ties go to the sample that comes first.

    What does not exist is stood in for: alone in its cluster, the anchor is its own p+ (at distance 0); in a class of
    one cluster, p- and p-- are p+, so that of the three hinges only the last one has a slope. Rows without another
    class, or whose anchor has no label, are not valid, and name the anchor five times.

    >>> features = torch.tensor([[0.0], [1.0], [2.0], [3.0], [7.0]])
    >>> clusters = Clusters(torch.zeros(3, 1), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1, 1, 2]))
    >>> [int(part) for part in mine_quintuplets(features, clusters, torch.tensor([0]))]
    [0, 1, 2, 3, 4, 1]
    """
    _check_features(features, "clusters.assigned", clusters.assigned)
    candidates_ok = candidates is None or check.is_count(candidates)
    check.raise_all([check.that("candidates", candidates, "a positive integer or None", candidates_ok)])
    if anchors.dim() != 1 or anchors.dtype != torch.int64:
        check.fail("anchors", "int64 sample numbers (R,)", f"{anchors.dtype}, shape {tuple(anchors.shape)}")
    search = _Exact(features, clusters) if candidates is None else _Drawn(features, clusters, candidates, generator)
    parts = [search.mine(rows) for rows in anchors.split(max(1, CHUNK // search.entries_per_anchor))]
    near, nearer, farther, other = (torch.cat(part) for part in zip(*parts, strict=True))
    valid = (other >= 0) & (clusters.assigned[anchors] >= 0)
    near = torch.where(near >= 0, near, anchors)
    nearer, farther = torch.where(nearer >= 0, nearer, near), torch.where(farther >= 0, farther, near)
    near, nearer, farther, other = (torch.where(valid, part, anchors) for part in (near, nearer, farther, other))
    return Quintuplets(anchors, near, nearer, farther, other, valid)


@torch.no_grad()
def cluster_scores(queries: Tensor, clusters: Clusters, classes: int, nearest: int | None = None) -> Tensor:
    """Score the classes of one label, ``(Q, classes)``, by the distances of queries ``(Q, D)`` to the centres.

    LMLE's decision is the largest score: the least distance to a cluster of another class, minus the largest to one of
    the class, among the ``nearest`` centres of the query (None: all of them). Distances are squared. A class that
    has all of these centres scores 0; one that has none of them scores below all others, the lower the farther its own
    nearest centre is; one without any centre scores ``NEVER``.

    >>> clusters = Clusters(torch.tensor([[0.0], [1.0], [4.0]]), torch.tensor([0, 0, 1]), torch.zeros(0).long())
    >>> cluster_scores(torch.tensor([[1.0]]), clusters, classes=2)
    tensor([[ 8., -9.]])
    """
    number = len(clusters.class_of)
    highest = int(clusters.class_of.max()) + 1 if number else 1
    classes_ok, nearest_ok = check.is_count(classes) and classes >= highest, nearest is None or check.is_count(nearest)
    check.raise_all(
        [
            check.that("classes", classes, f"at least {highest}, as the clusters have", classes_ok),
            check.that("nearest", nearest, "a positive integer or None", nearest_ok),
        ]
    )
    if number == 0:
        return torch.zeros(len(queries), classes, dtype=queries.dtype, device=queries.device)
    kept = number if nearest is None else min(nearest, number)
    rows = queries.split(max(1, CHUNK // (number + classes)))
    return torch.cat([_scores(chunk, clusters, classes, kept) for chunk in rows])


def cluster_label_scores(
    queries: Tensor, clusters: Sequence[Clusters], sizes: Sizes, nearest: int | None = None
) -> Tensor:
    """Score the classes of all labels, ``(Q, K)``; queries ``(Q, D)`` or ``(Q, A, D)``, clusters one for each label."""
    resolved = columns.as_sizes(sizes)
    if len(clusters) != len(resolved):
        check.fail("clusters", f"one for each of the {len(resolved)} labels", f"{len(clusters)}")
    by_label = enumerate(zip(clusters, resolved, strict=True))
    return torch.cat(
        [cluster_scores(columns.of_label(queries, a), own, size, nearest) for a, (own, size) in by_label], 1
    )


def _without_empty(clusters: Clusters) -> Clusters:
    """Leave out the clusters that ended without a sample."""
    used = torch.zeros_like(clusters.class_of, dtype=torch.bool)
    used[clusters.assigned[clusters.assigned >= 0]] = True
    number = torch.cat([used.cumsum(0) - 1, used.new_full((1,), -1, dtype=torch.int64)])  # of -1, the last, -1
    return Clusters(clusters.centres[used], clusters.class_of[used], number[clusters.assigned])


class _Exact:
    """Search all samples."""

    def __init__(self, features: Tensor, clusters: Clusters) -> None:
        self.features, self.clusters = features, clusters
        self.entries_per_anchor = max(1, len(features))
        self.own_class = _own_class(clusters)

    def mine(self, anchors: Tensor) -> tuple[Tensor, ...]:
        assigned = self.clusters.assigned
        distances = squared_distances(self.features[anchors], self.features).float()  # so that equal features tie
        in_cluster = assigned[anchors, None] == assigned
        in_class = self.own_class[anchors, None] == self.own_class
        elsewhere = in_class & ~in_cluster
        other = ~in_class & (self.own_class >= 0)
        roles = ((in_cluster, True), (elsewhere, False), (elsewhere, True), (other, False))
        return tuple(_extreme(distances, eligible, farthest) for eligible, farthest in roles)


class _Drawn:
    """Search some samples, drawn anew for each anchor and role.

    Sorted by class and cluster, a cluster is a range of samples, and so is a class: what a role may be drawn from is
    one range without another.
    """

    def __init__(self, features: Tensor, clusters: Clusters, candidates: int, generator: Generator | None) -> None:
        self.features, self.clusters, self.candidates, self.generator = features, clusters, candidates, generator
        self.entries_per_anchor = candidates * max(1, features.shape[1])
        self.own_class = _own_class(clusters)
        self.order = (self.own_class * (len(clusters.class_of) + 1) + clusters.assigned).argsort(stable=True)
        self.missing = (clusters.assigned < 0).sum()  # these come first

    def mine(self, anchors: Tensor) -> tuple[Tensor, ...]:
        cluster = _range_of(self.clusters.assigned[self.order], self.clusters.assigned[anchors])
        whole = _range_of(self.own_class[self.order], self.own_class[anchors])
        nothing = (whole[0], whole[0])
        every = (self.missing.expand_as(whole[0]), torch.full_like(whole[0], len(self.order)))
        elsewhere = self._draw(whole, cluster)
        own, other = self._draw(cluster, nothing), self._draw(every, whole)
        roles = ((own, True), (elsewhere, False), (elsewhere, True), (other, False))
        return tuple(self._choose(anchors, drawn, farthest) for drawn, farthest in roles)

    def _draw(self, inside: tuple[Tensor, Tensor], without: tuple[Tensor, Tensor]) -> Tensor:
        """Return ``(R, candidates)`` sample numbers in ascending order, -1 where there is none to draw."""
        left_out = without[1] - without[0]
        size = (inside[1] - inside[0] - left_out)[:, None]
        shape, device = (len(size), self.candidates), size.device
        turn = (torch.rand(shape, generator=self.generator, device=device, dtype=torch.float64) * size).long()
        place = turn + inside[0][:, None]
        place = place + left_out[:, None] * (place >= without[0][:, None])
        drawn = self.order[place.clamp(max=len(self.order) - 1)]
        return torch.where(size > 0, drawn, -1).sort(1).values

    def _choose(self, anchors: Tensor, drawn: Tensor, farthest: bool) -> Tensor:
        distances = (self.features[anchors, None] - self.features[drawn.clamp(min=0)]).square().sum(-1)
        slot = _extreme(distances, drawn >= 0, farthest)
        return torch.where(slot >= 0, drawn.gather(1, slot.clamp(min=0)[:, None]).squeeze(1), -1)


def _extreme(distances: Tensor, eligible: Tensor, farthest: bool) -> Tensor:
    """Return ``(R,)``: the place of the largest or smallest eligible distance of each row, -1 where there is none."""
    signed = distances if farthest else -distances
    place = signed.masked_fill(~eligible, float("-inf")).argmax(1)
    return torch.where(eligible.any(1), place, -1)


def _range_of(ascending: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each value begins and ends in a sorted list."""
    begin, end = torch.searchsorted(ascending, values), torch.searchsorted(ascending, values, right=True)
    return begin, end


def _own_class(clusters: Clusters) -> Tensor:
    """Return ``(N,)``: the class of each sample, -1 where its label is missing."""
    behind = torch.cat([clusters.class_of, clusters.class_of.new_full((1,), -1)])
    return behind[clusters.assigned]  # -1 is the last


def _scores(queries: Tensor, clusters: Clusters, classes: int, kept: int) -> Tensor:
    distances = squared_distances(queries, clusters.centres)
    if kept < len(clusters.class_of):
        order = distances.argsort(dim=1, stable=True)[:, :kept]
        near = torch.zeros_like(distances, dtype=torch.bool).scatter(1, order, True)
    else:
        near = torch.ones_like(distances, dtype=torch.bool)
    infinite = float("inf")
    place = clusters.class_of.expand_as(distances)
    empty = distances.new_full((len(queries), classes), infinite)
    least = empty.scatter_reduce(1, place, distances.masked_fill(~near, infinite), "amin")
    most = (-empty).scatter_reduce(1, place, distances.masked_fill(~near, -infinite), "amax")
    # The least of the other classes is the least of all, or for the class that has it, the second.
    first, whose = least.min(1, keepdim=True)
    second = least.scatter(1, whose, infinite).amin(1, keepdim=True)
    others = torch.where(torch.arange(classes, device=whose.device) == whose, second, first)
    scores = torch.where(others.isinf(), 0, others - most)
    # Who has none of the nearest centres stands behind all who do, by the distance to its own nearest: finite numbers,
    # which decision rules and calibration can work with.
    own = empty.scatter_reduce(1, place, distances, "amin")
    behind = torch.where(own.isinf(), NEVER, -(distances.amax(1, keepdim=True) + own))
    return torch.where(most.isinf(), behind, scores).to(queries.dtype)


def _permutation(length: int, device: torch.device, generator: Generator | None) -> Tensor:
    return torch.randperm(length, generator=generator, device=device)


def _check_features(features: Tensor, what: str, samples: Tensor) -> None:
    if features.dim() != 2 or not features.is_floating_point():
        check.fail("features", "floating point of shape (N, D)", f"{features.dtype}, shape {tuple(features.shape)}")
    check.same_length("features", features, what, samples)
    check.same_device("features", features, what, samples)
