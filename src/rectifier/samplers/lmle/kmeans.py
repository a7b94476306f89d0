"""k-means of many groups of points, such as the classes of many labels.

Groups of similar size are padded and clustered together. One group alone needs hundreds of small kernels, and a data
set of 40 labels has a hundred groups. The host waits for the device only every few rounds, to see whether all centres
rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence

from rectifier._base.distances import squared_distances

CHUNK = 2**24
"""Number of distances in memory at once."""

NUMBERS = 2**26
"""Number of values in a padded batch of groups."""

_ROUNDS = 30  # at most
_LOOK_EVERY = 5  # rounds; extra rounds change nothing


class Groups(NamedTuple):
    """Padded groups that are clustered together."""

    points: Tensor  # (G, P, D), padded with zeros
    is_point: Tensor  # (G, P)
    is_centre: Tensor  # (G, K): which centres a group has, K the largest number of any group

    @classmethod
    def join(cls, points: Sequence[Tensor], clusters: Sequence[int]) -> Groups:
        """Pad groups ``(n, D)``, to be clustered into so many clusters each."""
        padded, samples = pad_sequence(list(points), batch_first=True), [len(group) for group in points]
        is_point, is_centre = (
            torch.arange(max(counts), device=padded.device) < torch.tensor(counts, device=padded.device)[:, None]
            for counts in (samples, list(clusters))
        )
        return cls(padded, is_point, is_centre)


Clustered = tuple[Tensor, Tensor]
"""The centres ``(k, D)`` of a group, and the nearest centre of each of its points, ``(n,)``."""


def k_means(
    groups: Sequence[Tensor], clusters: Sequence[int], generator: Generator, fitted_on: int | None = None
) -> list[Clustered]:
    """Divide each group of points ``(n, D)`` into so many clusters. A cluster may end without points.

    Centres start as in k-means++. With ``fitted_on``, k-means uses so many points per cluster, drawn from the group,
    and all points only in its last round.

    >>> left, right = torch.tensor([[0.0], [1.0], [10.0], [11.0]]), torch.tensor([[5.0], [7.0]])
    >>> found = k_means([left, right], [2, 1], Generator().manual_seed(0))
    >>> sorted(found[0][0].flatten().tolist()), found[1][0].tolist(), found[1][1].tolist()
    ([0.5, 10.5], [[6.0]], [0, 0])
    """
    if fitted_on is None:
        return _clustered(groups, clusters, generator)
    some = list(groups)
    for g, (points, k) in enumerate(zip(groups, clusters, strict=True)):
        if fitted_on * k < len(points):
            drawn = torch.randperm(len(points), generator=generator, device=points.device)[: fitted_on * k]
            some[g] = points[drawn]
    fitted = [centres for centres, _ in _clustered(some, clusters, generator)]
    return _clustered(groups, clusters, fitted)


def _clustered(
    groups: Sequence[Tensor], clusters: Sequence[int], start: Generator | Sequence[Tensor]
) -> list[Clustered]:
    """Cluster from drawn centres, or do one more round from given centres."""
    found: dict[int, Clustered] = {}
    for together in _batches(groups):
        joined = Groups.join([groups[g] for g in together], [clusters[g] for g in together])
        if isinstance(start, Generator):
            centres, nearest = lloyd(joined, _first_centres(joined, start))
        else:
            centres, nearest = lloyd(joined, pad_sequence([start[g] for g in together], batch_first=True), rounds=1)
        for place, g in enumerate(together):
            found[g] = centres[place, : clusters[g]], nearest[place, : len(groups[g])]
    return [found[g] for g in range(len(groups))]


def lloyd(groups: Groups, centres: Tensor, rounds: int = _ROUNDS) -> tuple[Tensor, Tensor]:
    """Move centres ``(G, K, D)`` to the mean of the points nearest to them until nothing moves.

    Returns the centres and each point's centre, ``(G, P)``.
    """
    points, is_point, is_centre = groups
    number, most = is_centre.shape
    first = torch.arange(number, device=points.device)[:, None] * most  # index of each group's first centre
    nowhere = number * most  # slot for the padding
    nearest = _nearest(groups, centres)
    for turn in range(rounds):
        # Sums in float64 hardly depend on the order. A centre that is nearest to no point stays.
        place = torch.where(is_point, nearest + first, nowhere).flatten()
        count = place.new_zeros(nowhere + 1).index_add_(0, place, torch.ones_like(place))[:-1].view(number, most, 1)
        total = torch.zeros(nowhere + 1, points.shape[2], dtype=torch.float64, device=points.device)
        total = total.index_add_(0, place, points.flatten(0, 1).double())[:-1].view_as(centres)
        centres = torch.where(count > 0, (total / count.clamp(min=1)).to(centres.dtype), centres)
        before, nearest = nearest, _nearest(groups, centres)
        if turn % _LOOK_EVERY == _LOOK_EVERY - 1 and torch.equal(before, nearest):
            break
    return centres, nearest


def _nearest(groups: Groups, centres: Tensor) -> Tensor:
    missing = ~groups.is_centre[:, None]
    rows = groups.points.split(max(1, CHUNK // missing.numel()), 1)
    return torch.cat(
        [squared_distances(part, centres).masked_fill(missing, float("inf")).argmin(2) for part in rows], 1
    )


def _first_centres(groups: Groups, generator: Generator) -> Tensor:
    """Draw centres one by one, with probability proportional to the squared distance to the others (k-means++)."""
    points = groups.points
    norm = points.square().sum(2)
    distance = groups.is_point.to(norm.dtype)  # all points have the same chance to be first
    chosen: list[Tensor] = []
    for _ in range(groups.is_centre.shape[1]):
        # The shortest of exponential times with these rates is a draw with these probabilities, even if all are 0.
        time = torch.empty_like(norm).exponential_(generator=generator).clamp_(min=torch.finfo(norm.dtype).tiny)
        drawn = (distance / time).argmax(1)
        centre = points.gather(1, drawn[:, None, None].expand(-1, 1, points.shape[2]))
        from_it = (norm + centre.square().sum(2) - 2 * (points @ centre.transpose(1, 2)).squeeze(2)).clamp(min=0)
        distance = torch.minimum(distance, from_it) if chosen else from_it * groups.is_point
        chosen.append(centre)
    return torch.cat(chosen, 1)


def _batches(groups: Sequence[Tensor]) -> Iterator[list[int]]:
    """Yield the indices of groups to cluster together. None is padded to more than one and a half times its size."""
    batch: list[int] = []
    for g in sorted(range(len(groups)), key=lambda number: len(groups[number])):
        if batch and (len(groups[g]) > 1.5 * len(groups[batch[0]]) or (len(batch) + 1) * groups[g].numel() > NUMBERS):
            yield batch
            batch = []
        batch.append(g)
    if batch:
        yield batch
