"""LMLE's clusters: k-means within each class, and quintuplets mined from them.

Features are taken as they are given; LMLE's are of unit length. Everything runs where the features lie, in chunks, and
nothing grows with the square of the number of samples.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32, squared_distances
from rectifier.labels import columns
from rectifier.samplers.lmle.kmeans import NUMBERS, k_means

CLUSTER_SIZE = 200
"""Samples that a cluster has, about: LMLE's l."""

CHUNK = 2**24
"""Distances held at once."""


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
    valid: Tensor  # rows whose anchor has its label, and another class to separate from


def cluster(
    features: Tensor, targets: Tensor, size: int = CLUSTER_SIZE, seed: int = 0, fitted_on: int | None = None
) -> Clusters:
    """Divide each class of one label into clusters of roughly ``size`` samples, by k-means on ``(N, D)``.

    A class of n samples has max(1, round(n / size)) clusters, fewer where samples are equal. Centres are initialised
    as in k-means++, drawn with ``seed``. A class without samples has no cluster. ``fitted_on`` is for large data:
    k-means then fits on that many samples per cluster, drawn from the class; the last round uses all samples.

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
def mine_quintuplets(features: Tensor, clusters: Clusters, anchors: Tensor) -> Quintuplets:
    """Find the quintuplet of each anchor ``(R,)`` among all samples ``(N, D)``. Ties go to the first sample.

    An anchor alone in its cluster is its own p+. In a class with one cluster, p- and p-- equal p+; only the last of the
    three hinges then has a slope. Rows without another class, or whose anchor has no label, are not valid. They name
    the anchor five times.

    >>> features = torch.tensor([[0.0], [1.0], [2.0], [3.0], [7.0]])
    >>> clusters = Clusters(torch.zeros(3, 1), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1, 1, 2]))
    >>> [int(part) for part in mine_quintuplets(features, clusters, torch.tensor([0]))]
    [0, 1, 2, 3, 4, 1]
    """
    _check_features(features, "clusters.assigned", clusters.assigned)
    if anchors.dim() != 1 or anchors.dtype != torch.int64:
        check.fail("anchors", "int64 sample numbers (R,)", f"{anchors.dtype}, shape {tuple(anchors.shape)}")
    own_class = _own_class(clusters)
    chunks = anchors.split(max(1, CHUNK // max(1, len(features))))
    parts = [_mine(features, clusters.assigned, own_class, rows) for rows in chunks]
    near, nearer, farther, other = (torch.cat(part) for part in zip(*parts, strict=True))
    valid = (other >= 0) & (clusters.assigned[anchors] >= 0)
    near = torch.where(near >= 0, near, anchors)
    nearer, farther = torch.where(nearer >= 0, nearer, near), torch.where(farther >= 0, farther, near)
    near, nearer, farther, other = (torch.where(valid, part, anchors) for part in (near, nearer, farther, other))
    return Quintuplets(anchors, near, nearer, farther, other, valid)


def _without_empty(clusters: Clusters) -> Clusters:
    """Leave out the clusters that ended without a sample."""
    used = torch.zeros_like(clusters.class_of, dtype=torch.bool)
    used[clusters.assigned[clusters.assigned >= 0]] = True
    number = torch.cat([used.cumsum(0) - 1, used.new_full((1,), -1, dtype=torch.int64)])  # of -1, the last, -1
    return Clusters(clusters.centres[used], clusters.class_of[used], number[clusters.assigned])


def _mine(features: Tensor, assigned: Tensor, own_class: Tensor, anchors: Tensor) -> tuple[Tensor, ...]:
    """Return p+, p-, p-- and n of each anchor, -1 where there is none."""
    distances = squared_distances(features[anchors], features).float()  # so that equal features tie
    in_cluster = assigned[anchors, None] == assigned
    in_class = own_class[anchors, None] == own_class
    elsewhere = in_class & ~in_cluster
    other = ~in_class & (own_class >= 0)
    roles = ((in_cluster, True), (elsewhere, False), (elsewhere, True), (other, False))
    return tuple(_extreme(distances, eligible, farthest) for eligible, farthest in roles)


def _extreme(distances: Tensor, eligible: Tensor, farthest: bool) -> Tensor:
    """Return ``(R,)``: the place of the largest or smallest eligible distance of each row, -1 where there is none."""
    signed = distances if farthest else -distances
    place = signed.masked_fill(~eligible, float("-inf")).argmax(1)
    return torch.where(eligible.any(1), place, -1)


def _own_class(clusters: Clusters) -> Tensor:
    """Return ``(N,)``: the class of each sample, -1 where its label is missing."""
    behind = torch.cat([clusters.class_of, clusters.class_of.new_full((1,), -1)])
    return behind[clusters.assigned]  # -1 is the last


def _permutation(length: int, device: torch.device, generator: Generator | None) -> Tensor:
    return torch.randperm(length, generator=generator, device=device)


def _check_features(features: Tensor, what: str, samples: Tensor) -> None:
    if features.dim() != 2 or not features.is_floating_point():
        check.fail("features", "floating point of shape (N, D)", f"{features.dtype}, shape {tuple(features.shape)}")
    check.same_length("features", features, what, samples)
    check.same_device("features", features, what, samples)
