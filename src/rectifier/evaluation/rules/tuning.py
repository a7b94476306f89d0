"""Search one threshold per class on validation, never on test."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics.balanced import class_balanced_accuracy
from rectifier.evaluation.rules.prior import prior_offsets
from rectifier.evaluation.rules.rule import OffsetRule, counts_and_sizes
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SWEEPS = 10  # over the classes of a label, at most


class TunedThresholds(OffsetRule):
    """Move the threshold of every class so that class-balanced accuracy is best on validation.

    It must be fitted; ``tuned_offsets`` describes the search. On its own data it is never worse than the plain argmax.

    Args:
        sizes: Number of classes of each label, or a LabelSpace. None is one label.
        class_counts: Training samples of each class. With them the search also starts from ``prior_offsets``. A class
            without validation samples keeps those, and so does a label whose samples all have the same class. Without
            counts they keep 0.

    >>> logits, targets = [[2.0, 0.0], [2.0, 0.1], [2.0, 1.0]], [0, 0, 1]
    >>> rule = TunedThresholds().fit(logits, targets)
    >>> rule, rule.decide(logits)
    (TunedThresholds(sizes=[2], offsets=[0, 1.45]), [0, 0, 1])
    """

    def __init__(self, sizes: Sizes | None = None, *, class_counts: Counts | None = None) -> None:
        counts, known = (None, sizes) if class_counts is None else counts_and_sizes(class_counts, sizes)
        super().__init__(known)
        self.class_counts = counts

    def fit_checked(self, logits: Tensor, targets: Tensor) -> None:
        zeros = torch.zeros(sum(self.sizes))
        if self.class_counts is None:
            # Rounded to float32, offsets may separate less than they did: then zeros may be better.
            candidates = [tuned_offsets(logits, targets, self.sizes), zeros]
        else:
            prior = prior_offsets(self.class_counts)
            starts = [prior] if max(self.sizes) == 2 else [prior, zeros]  # two classes: exact, wherever it starts
            candidates = [tuned_offsets(logits, targets, self.sizes, start) for start in starts]
        self._keep(offsets=_best_by_label(candidates, logits, targets, self.sizes))


def _best_by_label(candidates: list[Tensor], logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return for each label the best of some offsets; the first wins a tie."""
    found, first = candidates[0].clone(), 0
    for a, size in enumerate(sizes):
        own = slice(first, first + size)
        wide = [(logits[:, own] + offsets[own]).double() for offsets in candidates]
        scores = [float(class_balanced_accuracy(one, targets[:, a])) for one in wide]
        found[own] = candidates[max(range(len(scores)), key=scores.__getitem__)][own]
        first += size
    return found


def tuned_offsets(logits: Tensor, targets: Tensor, sizes: Sizes | None = None, start: Tensor | None = None) -> Tensor:
    """Return the offsets ``(K,)`` that maximise the class-balanced accuracy of these (validation) logits.

    Each label is tuned on its own: one class after the other gets its best offset while the others stay, until a sweep
    gains nothing. This is exact for two classes, and never worse than ``start`` (default: zeros) for more. A class
    without a sample keeps its start; so does a label whose samples all have the same class.

    >>> logits, targets = torch.tensor([[2.0, 0.0], [2.0, 0.1], [2.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> (logits + tuned_offsets(logits, targets)).argmax(1)
    tensor([0, 0, 1])
    """
    resolved = columns.as_sizes(sizes, check.logits(logits).shape[1])
    canonical = columns.targets_beside(logits, targets, resolved, columns.label_names(sizes)).cpu().numpy()
    found = np.zeros(sum(resolved)) if start is None else start.double().cpu().numpy().copy()
    scores = logits.detach().double().cpu().numpy() + found
    first = 0
    for a, size in enumerate(resolved):  # fitted once, off every hot path
        labelled = canonical[:, a] >= 0
        own = canonical[labelled, a]
        if len(own):
            found[first : first + size] += _tune_label(scores[labelled, first : first + size], own)
        first += size
    return torch.from_numpy(found).float()


def _tune_label(scores: Array, own: Indices) -> Array:
    """Return the offsets ``(C,)`` of one label, from its scores ``(n, C)`` and targets ``(n,)``.

    NumPy, because PyTorch would spread thousands of small sorts over threads that wait for each other.
    """
    counts = np.bincount(own, minlength=scores.shape[1])
    weight = 1.0 / counts[own]  # so that hits add up to the sum of recalls
    offsets = np.zeros(scores.shape[1])
    present = np.flatnonzero(counts).tolist()
    if len(present) < 2:  # else the offset of the only class would rule out all others
        return offsets
    moved = present[-1:] if len(counts) == 2 else present  # for two classes, one offset is enough
    leaders = _Leaders(scores)
    for _ in range(_SWEEPS):
        before = offsets.copy()
        for k in moved:
            best = _best_offset(leaders, k, float(offsets[k]), own, weight)
            if best != offsets[k]:
                leaders.move(k, best - offsets[k])
                offsets[k] = best
        if np.array_equal(before, offsets):
            break
    return offsets


class _Leaders:
    """Scores ``(n, C)`` of two classes or more whose columns move, and the two largest of every row."""

    def __init__(self, scores: Array) -> None:
        self.scores = scores.copy()
        self._rows = np.arange(len(scores))
        self._two = np.zeros((len(scores), 2), np.int64)
        self._rank(self._rows)

    def move(self, k: int, by: float) -> None:
        """Add a number to column k. Rank only the rows again that it led or may lead now."""
        self.scores[:, k] += by
        last = self.scores[self._rows, self._two[:, -1]]
        self._rank(np.flatnonzero((self._two == k).any(1) | (self.scores[:, k] >= last)))

    def without(self, k: int) -> tuple[Array, Indices]:
        """Return the largest score of every row without column k, and its column."""
        winner = np.where(self._two[:, 0] == k, self._two[:, 1], self._two[:, 0])
        return self.scores[self._rows, winner], winner

    def _rank(self, rows: Indices) -> None:
        # Among equal scores the first column leads, as in argmax.
        scores = self.scores[rows]
        self._two[rows, 0] = first = scores.argmax(1)
        scores[np.arange(len(rows)), first] = -np.inf
        self._two[rows, 1] = scores.argmax(1)


def _best_offset(leaders: _Leaders, k: int, current: float, own: Indices, weight: Array) -> float:
    """Return the best offset of class k while the other offsets stay; keep the current one if nothing is gained.

    Sample i is classified as k if the offset exceeds ``needed[i]``. Sorted by that, the hits of every possible offset
    are a running sum: going up gains samples of k and loses samples that their own class would win.
    """
    best, winner = leaders.without(k)
    needed = best - leaders.scores[:, k] + current
    gain = np.where(own == k, weight, np.where(winner == own, -weight, 0.0))
    order = needed.argsort()  # the order of equal values does not matter: no offset separates them
    running = np.concatenate([[0.0], gain[order].cumsum()])
    ordered = needed[order]
    # An offset between two different values takes all samples before it; it cannot separate equal values.
    running[1:-1][ordered[1:] <= ordered[:-1]] = -np.inf
    highest = running.max()
    if highest <= gain[needed < current].sum() + 1e-12:
        return current
    bounds = np.concatenate([ordered[:1] - 1, (ordered[1:] + ordered[:-1]) / 2, ordered[-1:] + 1])
    ties = bounds[running >= highest - 1e-12]
    return float(ties[np.abs(ties - current).argmin()])  # the smallest change
