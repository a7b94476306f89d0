"""LMLE's clusters: k-means within each class, and quintuplets mined from them.

Features are used as given; those of LMLE have unit length. Everything runs on their device, in chunks. No memory grows
with the square of the number of samples.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32, squared_distances
from rectifier.labels import columns
from rectifier.samplers.lmle.kmeans import NUMBERS, k_means

CLUSTER_SIZE = 200
"""Approximate number of samples in a cluster: LMLE's l."""

CHUNK = 2**24
"""Number of distances in memory at once."""


class Clusters(NamedTuple):
    """The clusters of one label, class by class."""

    centres: Tensor  # (C, D)
    class_of: Tensor  # (C,) ascending
    assigned: Tensor  # (N,) each sample's cluster, -1 where its label is missing


@torch.no_grad()
def cluster_labels(
    features: Tensor, targets: Tensor, size: int = CLUSTER_SIZE, seed: int = 0, fitted_on: int | None = None
) -> list[Clusters]:
    """Divide each class of each label into clusters of roughly ``size`` samples, by k-means.

    Each label has its own features ``(N, A, D)``, or all share ``(N, D)``; targets ``(N, A)``. A class of n samples has
    max(1, round(n / size)) clusters, fewer if samples are equal, and none without a sample. ``seed`` draws the first
    centres as in k-means++. For large data, k-means uses ``fitted_on`` samples per cluster, and all in its last round.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.5, 0.5]])
    >>> (found,) = cluster_labels(features, torch.tensor([[0], [0], [0], [1]]), size=2)
    >>> found.class_of.tolist(), bool(found.assigned[0] == found.assigned[1])
    ([0, 0, 1], True)
    """
    check.raise_all([check.count("size", size)])
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
        used, place = nearest.unique(return_inverse=True)  # a cluster may have ended without a sample
        assigned[rows] = place + len(class_of)
        centres.append(own[used])
        class_of += [c] * len(used)
    return Clusters(torch.cat(centres), torch.tensor(class_of, dtype=torch.int64, device=features.device), assigned)


def balanced_anchors(own: Tensor, count: int, generator: Generator | None = None) -> Tensor:
    """Draw ``(count,)`` sample indices of one label ``(N,)``, equally many of each class that has any, at random.

    Large classes are under-sampled: no sample repeats before all of its class are drawn. If ``count`` is no multiple of
    the number of classes, chance decides which of them have one more.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1, -1])
    >>> targets[balanced_anchors(targets, 4)].bincount().tolist()
    [2, 2]
    """
    _, group, samples = own.clamp(min=-1).unique(return_inverse=True, return_counts=True)
    missing = int(bool((own < 0).any()))  # the first group, if there
    classes = len(samples) - missing
    if classes == 0:  # any samples will do: without the label, no row counts
        return torch.randint(len(own), (count,), generator=generator)
    permutation = partial(torch.randperm, generator=generator, device=own.device)
    shuffled = permutation(len(own))
    order = shuffled[group[shuffled].argsort(stable=True)]  # class by class, each in random order
    begin = samples.cumsum(0) - samples
    turn = torch.arange(count, device=own.device)
    drawn = permutation(classes)[turn % classes] + missing
    found = order[begin[drawn] + (turn // classes) % samples[drawn]]
    return found[permutation(count)]


@torch.no_grad()
def mine_quintuplets(features: Tensor, clusters: Clusters, anchors: Tensor) -> Tensor:
    """Find the quintuplet of each anchor ``(R,)`` among all samples ``(N, D)``. Ties go to the first sample.

    Return sample indices ``(5, R)``: the anchor; p+, the most distant of its cluster; p-, the nearest, and p--, the
    most distant of its class from another cluster; and n, the nearest of another class.

    An anchor that is alone in its cluster is its own p+, at distance 0. In a class of one cluster, p- and p-- are p+:
    only the last of the three hinges has a slope. Without another class, or without a label of the anchor, the anchor
    is repeated five times.

    >>> features = torch.tensor([[0.0], [1.0], [2.0], [3.0], [7.0]])
    >>> clusters = Clusters(torch.zeros(3, 1), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 1, 1, 2]))
    >>> mine_quintuplets(features, clusters, torch.tensor([0])).flatten().tolist()
    [0, 1, 2, 3, 4]
    """
    class_of = torch.cat([clusters.class_of, clusters.class_of.new_full((1,), -1)])
    own_class = class_of[clusters.assigned]  # -1, where the label is missing, is the last
    chunks = anchors.split(max(1, CHUNK // max(1, len(features))))
    parts = [_mine(features, clusters.assigned, own_class, rows) for rows in chunks]
    near, nearer, farther, other = (torch.cat(part) for part in zip(*parts, strict=True))
    valid = (other >= 0) & (clusters.assigned[anchors] >= 0)
    near = torch.where(near >= 0, near, anchors)
    nearer, farther = torch.where(nearer >= 0, nearer, near), torch.where(farther >= 0, farther, near)
    return torch.where(valid, torch.stack([anchors, near, nearer, farther, other]), anchors)


def _mine(features: Tensor, assigned: Tensor, own_class: Tensor, anchors: Tensor) -> tuple[Tensor, ...]:
    """Return p+, p-, p-- and n of each anchor, -1 where there is none."""
    distances = squared_distances(features[anchors], features).float()  # so that equal features tie
    in_cluster = assigned[anchors, None] == assigned
    in_class = own_class[anchors, None] == own_class
    elsewhere = in_class & ~in_cluster
    other = ~in_class & (own_class >= 0)
    nearness = -distances
    found = []
    for eligible, wanted in ((in_cluster, distances), (elsewhere, nearness), (elsewhere, distances), (other, nearness)):
        place = wanted.masked_fill(~eligible, float("-inf")).argmax(1)
        found.append(torch.where(eligible.any(1), place, -1))
    return tuple(found)
