"""k nearest neighbours, which decide on features; and HOG, features without a network.

Scores are ``(Q, K)`` in the columns of the logits, so that metrics and decision rules serve them too. Features are
taken as they are given: bring them to unit length where the distance should not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check, console
from rectifier._base.distances import squared_distances
from rectifier.evaluation.metrics import balanced_mean, count_correct
from rectifier.labels import columns
from rectifier.labels.columns import Sizes

KS = tuple(range(1, 50, 2))
"""The numbers of neighbours that validation chooses from: 1, 3, 5, ... 49."""

_BLOCK = 8192  # references that a chunk of queries is compared with at once
_IMAGES = 256  # that a process is handed at a time


@torch.no_grad()
def neighbour_scores(
    queries: Tensor, references: Tensor, targets: Tensor, sizes: Sizes, k: int, chunk: int = 1024
) -> Tensor:
    """Score queries by their k nearest references, ``(Q, K)``: the log of each class's share of the votes.

    Each of the k nearest references that have the label votes for its class; one more vote is shared equally by all
    classes, so that no score is infinite. The largest score is the majority, ties go to the lower class. Of equally
    distant references the lower number is nearer. Where fewer than k have the label, all of them vote.

    Args:
        queries: ``(Q, D)``, or ``(Q, A, D)`` where each label has its own features.
        references: ``(n, D)`` or ``(n, A, D)``, as the queries, on the same device.
        targets: Of the references, ``(n, A)``; negative where missing.
        sizes: Classes of each label, or a LabelSpace.
        k: Neighbours that vote.
        chunk: Queries that are compared at once.

    >>> references, targets = torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> neighbour_scores(torch.tensor([[2.0]]), references, targets, [2], k=3).exp()
    tensor([[0.6250, 0.3750]])
    """
    known, own = _checked(queries, references, targets, sizes, [k], chunk)
    return torch.cat([_vote(near, known) for near in _neighbours(queries, references, own, known, k, chunk)])


@torch.no_grad()
def choose_k(
    queries: Tensor,
    query_targets: Tensor,
    references: Tensor,
    targets: Tensor,
    sizes: Sizes,
    ks: Sequence[int] = KS,
    chunk: int = 1024,
) -> int:
    """Return the k with the best class-balanced accuracy of these (validation) queries; ties go to the smaller.

    Everything else as in ``neighbour_scores``; neighbours are looked for once, whatever the number of ks.

    >>> references, targets = torch.tensor([[0.0], [1.0], [2.0], [2.1]]), torch.tensor([[0], [0], [0], [1]])
    >>> choose_k(torch.tensor([[2.2], [0.1]]), torch.tensor([[0], [0]]), references, targets, [2], ks=(1, 3))
    3
    """
    known, own = _checked(queries, references, targets, sizes, ks, chunk)
    wanted = columns.as_targets(query_targets, known, columns.label_names(sizes)).to(queries.device)
    check.same_length("query_targets", wanted, "queries", queries)
    if not bool((wanted >= 0).any()):
        check.fail("query_targets", "of at least one sample that has a label", "none")
    counted = torch.zeros(2, len(ks), sum(known), dtype=torch.int64, device=queries.device)
    chunks = _neighbours(queries, references, own, known, max(ks), chunk)
    for near, answers in zip(chunks, wanted.split(chunk), strict=True):
        counts = [count_correct(_vote(near[..., :k], known), answers, known) for k in ks]
        counted += torch.stack([torch.stack(part) for part in zip(*counts, strict=True)])
    accuracy = [float(balanced_mean(correct, total, known)) for correct, total in zip(*counted, strict=True)]
    return max(zip(ks, accuracy, strict=True), key=lambda found: (found[1], -found[0]))[0]


def hog_features(pixels: NDArray[np.uint8] | Tensor, workers: int = -1) -> Tensor:
    """Return histograms of oriented gradients of uint8 images ``(N, H, W, C)`` as float32 ``(N, D)``.

    9 orientations, cells of 8 x 8 pixels, blocks of 2 x 2 cells that overlap (Dalal and Triggs 2005), at each pixel the
    channel with the largest gradient. Of images below 16 pixels the cells are smaller, half of the shorter side.
    ``workers`` processes share the images; -1 is one for each processor.

    >>> hog_features(np.zeros((2, 32, 24, 3), np.uint8)).shape
    torch.Size([2, 216])
    """
    images = pixels.numpy(force=True) if isinstance(pixels, Tensor) else pixels
    if images.ndim != 4 or images.dtype != np.uint8 or min(images.shape[1:3]) < 4:
        got = f"{images.dtype}, shape {tuple(images.shape)}"
        check.fail("pixels", "uint8 of shape (N, H, W, C), at least 4 high and wide", got)
    cell = min(8, min(images.shape[1:3]) // 2)
    down, across = (side // cell - 1 for side in images.shape[1:3])
    found = torch.empty(len(images), down * across * 2 * 2 * 9)
    with console.progress() as display:
        task = display.add_task("HOG", total=len(images), visible=len(images) > _IMAGES)
        for row, described in zip(found, _describe(images, cell, workers), strict=True):
            row.copy_(torch.from_numpy(described))
            display.advance(task)
    if workers != 1 and len(images) > _IMAGES:
        from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped]

        get_reusable_executor().shutdown()  # idle workers would keep a process of several from ending for minutes
    return found


def _neighbours(
    queries: Tensor, references: Tensor, own: Tensor, sizes: tuple[int, ...], k: int, chunk: int
) -> Iterator[Tensor]:
    """Yield for each chunk of queries ``(q, A, k)``: the columns that the k nearest vote for, nearest first.

    A vote that does not exist is for a column behind the last.
    """
    voted = torch.where(own >= 0, columns.own_columns(own, sizes), sum(sizes))
    groups = _labels_searched_together(own, queries.dim() == 2)
    for rows in queries.split(chunk):
        near = torch.full((len(rows), len(sizes), k), sum(sizes), device=queries.device)
        for labels, labelled in groups:
            a = int(labels[0])
            found = _nearest(columns.of_label(rows, a), columns.of_label(references, a), labelled, k)
            near[:, labels, : found.shape[1]] = voted[labelled[found]][..., labels].transpose(1, 2)
        yield near


def _labels_searched_together(own: Tensor, shared: bool) -> list[tuple[Tensor, Tensor]]:
    """Return groups of labels with the references that have them: labels that share both have the same neighbours."""
    patterns, group = (own >= 0).T, torch.arange(own.shape[1], device=own.device)
    if shared:
        patterns, group = patterns.unique(dim=0, return_inverse=True)
    return [((group == g).nonzero()[:, 0], pattern.nonzero()[:, 0]) for g, pattern in enumerate(patterns)]


def _nearest(queries: Tensor, references: Tensor, labelled: Tensor, k: int) -> Tensor:
    """Return ``(q, k or fewer)``: the places in ``labelled`` of the nearest references, nearest first, ties by place.

    Floats from 0 up sort like their bits; those and the place share one integer. Block by block, the best so far are
    kept, so that nothing larger than a block of distances is held.
    """
    best = torch.zeros(len(queries), 0, dtype=torch.int64, device=queries.device)
    for first in range(0, len(labelled), _BLOCK):
        block = references[labelled[first : first + _BLOCK]]
        bits = squared_distances(queries, block).float().view(torch.int32).long()  # float32: equal features tie
        place = torch.arange(first, first + len(block), device=queries.device)
        best = torch.cat([best, bits * _PLACES + place], 1)
        best = best.topk(min(k, best.shape[1]), dim=1, largest=False).values
    return best % _PLACES


_PLACES = 2**32


def _vote(near: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(q, K)``: the log of the share of votes, from the columns voted for ``(q, A, k)``."""
    votes = torch.zeros(len(near), sum(sizes) + 1, device=near.device)
    cast = near.flatten(1)
    votes = votes.scatter_add(1, cast, torch.ones_like(cast, dtype=votes.dtype))[:, :-1]
    label = columns.label_of_column(sizes, near.device)
    all_votes = (near < sum(sizes)).sum(-1)[:, label] + 1
    return ((votes + 1 / columns.label_sizes(sizes, near.device)[label]) / all_votes).log()


def _describe(images: NDArray[np.uint8], cell: int, workers: int) -> Iterable[NDArray[np.float64]]:
    from skimage.feature import hog

    describe = partial(hog, orientations=9, pixels_per_cell=(cell, cell), cells_per_block=(2, 2), channel_axis=-1)
    if workers == 1 or len(images) <= _IMAGES:
        return map(describe, images)
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # Called is scikit-image's own function: a process that knows nothing of this package need not import torch.
    parallel = Parallel(workers, return_as="generator", batch_size=_IMAGES, pre_dispatch=f"{2 * _IMAGES} * n_jobs")
    found: Iterable[NDArray[np.float64]] = parallel(delayed(describe)(image) for image in images)
    return found


def _checked(
    queries: Tensor, references: Tensor, targets: Tensor, sizes: Sizes, ks: Sequence[int], chunk: int
) -> tuple[tuple[int, ...], Tensor]:
    """Check what is compared with what; return the sizes and the targets ``(n, A)`` of the references."""
    known = columns.as_sizes(sizes)
    ks_ok = len(ks) > 0 and all(check.is_count(k) for k in ks)
    check.raise_all(
        [
            check.that("k", list(ks), "a positive integer, or at least one", ks_ok),
            check.that("chunk", chunk, "a positive integer", check.is_count(chunk)),
        ]
    )
    per_label = queries.dim() == 3 and queries.shape[1] == len(known)
    if not (queries.dim() == 2 or per_label) or queries.shape[1:] != references.shape[1:]:
        wanted = f"both of shape (·, D) or (·, {len(known)}, D)"
        check.fail("queries and references", wanted, f"{tuple(queries.shape)} and {tuple(references.shape)}")
    own = columns.as_targets(targets, known, columns.label_names(sizes)).to(references.device)
    check.same_length("targets", own, "references", references)
    if not len(references):
        check.fail("references", "one sample or more", "none")
    check.same_device("queries", queries, "references", references)
    return known, own
