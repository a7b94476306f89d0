"""What is changed after training: the logits, by what is fitted on validation and never on test.

Every decision rule here adds one number per class to the logits before the largest is taken, so a rule is a tensor
``(K,)``: nothing for the plain argmax, the negative log prior of the training counts, threshold adjustment (the paper's
baseline), or offsets tuned for class-balanced accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import Counts, as_count_list, log_prior

STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries for threshold adjustment."""

TAUS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""The shares of the log prior that logit adjustment tries."""

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SWEEPS = 10  # over the classes of a label; a sweep that gains nothing is the last


def prior_offsets(counts: Counts, tau: float = 1.0) -> Tensor:
    """Return ``-tau * log(prior)`` of every class, ``(K,)``: the log prior of the training split, taken off the logits.

    A class without a training sample has the prior of half a sample.

    >>> prior_offsets(torch.tensor([90, 10])).exp().round(decimals=2)
    tensor([ 1.1100, 10.0000])
    """
    return (-tau * log_prior(counts)).float()


def adjustment_offsets(counts: Counts, strength: float) -> Tensor:
    """Return the offsets ``(K,)`` of threshold adjustment: p_k exp(-r_k)^T, r_k the class's share of its label.

    On logits that is ``-T * r_k``, since the softmax's denominator is common to all classes; T = 0 is plain argmax.

    >>> adjustment_offsets(torch.tensor([90, 10]), 2)
    tensor([-1.8000, -0.2000])
    """
    labels, _ = as_count_list(counts)
    shares = [label.double() / label.double().sum().clamp(min=1) for label in labels]
    return (-strength * torch.cat(shares)).float()


@dataclass(frozen=True)
class ThresholdAdjustment:
    """The paper's threshold adjustment, its strength T chosen on validation.

    >>> logits, targets = torch.tensor([[1.0, 0.5], [1.0, 0.2], [1.0, 0.4]]), torch.tensor([0, 0, 1])
    >>> ThresholdAdjustment.fit(logits, targets, counts=torch.tensor([90, 10])).strength
    1
    """

    strength: float
    offsets: Tensor

    @classmethod
    def fit(
        cls,
        logits: Tensor,
        targets: Tensor,
        sizes: Sizes | None = None,
        *,
        counts: Counts,
        strengths: Sequence[float] = STRENGTHS,
    ) -> ThresholdAdjustment:
        """Choose the strength with the best class-balanced accuracy of these (validation) logits; ties go to the first.

        ``counts`` are those of the training split.
        """
        return cls(*_chosen("strengths", strengths, partial(adjustment_offsets, counts), logits, targets, sizes))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)


@dataclass(frozen=True)
class LogitAdjustment:
    """The log prior of the training split taken off the logits (Menon et al. 2021), tau of it, chosen on validation.

    >>> logits, targets = torch.tensor([[1.0, 0.5], [1.0, -2.0], [1.0, 0.4]]), torch.tensor([1, 0, 1])
    >>> LogitAdjustment.fit(logits, targets, counts=torch.tensor([90, 10])).tau
    0.5
    """

    tau: float
    offsets: Tensor

    @classmethod
    def fit(
        cls,
        logits: Tensor,
        targets: Tensor,
        sizes: Sizes | None = None,
        *,
        counts: Counts,
        taus: Sequence[float] = TAUS,
    ) -> LogitAdjustment:
        """Choose the tau with the best class-balanced accuracy of these (validation) logits; ties go to the first.

        ``counts`` are those of the training split.
        """
        return cls(*_chosen("taus", taus, partial(prior_offsets, counts), logits, targets, sizes))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)

    def as_dict(self) -> dict[str, Any]:
        return {"tau": self.tau, "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LogitAdjustment:
        return cls(values["tau"], torch.tensor(values["offsets"]))


def _chosen(
    what: str,
    values: Sequence[float],
    offsets_of: Callable[[float], Tensor],
    logits: Tensor,
    targets: Tensor,
    sizes: Sizes | None,
) -> tuple[float, Tensor]:
    """Return the value whose offsets give these logits the best class-balanced accuracy, and the offsets."""
    if not values:
        check.fail(what, "a list of at least one number", "an empty one")

    def score(value: float) -> float:
        return float(class_balanced_accuracy(logits + offsets_of(value).to(logits), targets, sizes))

    best = max(values, key=score)
    return best, offsets_of(best)


def tuned_offsets(logits: Tensor, targets: Tensor, sizes: Sizes | None = None, start: Tensor | None = None) -> Tensor:
    """Return the offsets ``(K,)`` that maximise the class-balanced accuracy of these (validation) logits.

    Label by label, one class after the other is given its best offset while the others stand, until a sweep gains
    nothing: exact for two classes, and never worse than ``start`` (nothing, if not given) for more. A class without a
    sample keeps the offset it starts with, and so do all of a label that has samples of one class alone.

    >>> logits, targets = torch.tensor([[2.0, 0.0], [2.0, 0.1], [2.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> (logits + tuned_offsets(logits, targets)).argmax(1)
    tensor([0, 0, 1])
    """
    resolved = columns.as_sizes(sizes, check.logits(logits).shape[1])
    canonical = columns.targets_beside(logits, targets, resolved, columns.label_names(sizes)).cpu().numpy()
    begun = np.zeros(sum(resolved)) if start is None else start.double().cpu().numpy()
    scores = logits.detach().double().cpu().numpy() + begun
    found = begun.copy()
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

    NumPy: thousands of small sorts, which PyTorch would spread over threads that only wait for each other.
    """
    counts = np.bincount(own, minlength=scores.shape[1])
    weight = 1.0 / counts[own]  # so that hits add up to the sum of the sensitivities
    offsets = np.zeros(scores.shape[1])
    present = np.flatnonzero(counts).tolist()
    if len(present) < 2:  # the best offset of the only class there would keep all others from being decided for
        return offsets
    moved = present[-1:] if len(counts) == 2 else present  # of two classes, one offset says everything
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
    """Scores ``(n, C)`` whose columns are moved, and the two largest of every row, kept up to date."""

    def __init__(self, scores: Array) -> None:
        self.scores = scores.copy()
        self._rows = np.arange(len(scores))
        self._two = np.zeros((len(scores), min(2, scores.shape[1])), np.int64)
        self._rank(self._rows)

    def move(self, k: int, by: float) -> None:
        """Add a number to column k. Only rows that it led, or now may lead, are ranked again."""
        self.scores[:, k] += by
        last = self.scores[self._rows, self._two[:, -1]]
        self._rank(np.flatnonzero((self._two == k).any(1) | (self.scores[:, k] >= last)))

    def without(self, k: int) -> tuple[Array, Indices]:
        """Return the largest score of every row apart from column k's, and whose it is (-1: there is no other)."""
        if self.scores.shape[1] == 1:
            return np.full(len(self.scores), -np.inf), np.full(len(self.scores), -1)
        winner = np.where(self._two[:, 0] == k, self._two[:, 1], self._two[:, 0])
        return self.scores[self._rows, winner], winner

    def _rank(self, rows: Indices) -> None:
        # Of equal scores the first column leads, as it does for argmax.
        first = self.scores[rows].argmax(1)
        self._two[rows, 0] = first
        if self._two.shape[1] > 1:
            others = self.scores[rows]
            others[np.arange(len(rows)), first] = -np.inf
            self._two[rows, 1] = others.argmax(1)


def _best_offset(leaders: _Leaders, k: int, current: float, own: Indices, weight: Array) -> float:
    """Return the offset of class k that hits most while all others stand; the current one where nothing is gained.

    Sample i is taken for k when the offset exceeds ``needed[i]``. Sorted by that, the hits of every possible offset
    are a running sum: samples of k are gained on the way up, and samples that their own class would win are lost.
    """
    best, winner = leaders.without(k)
    needed = best - leaders.scores[:, k] + current
    gain = np.where(own == k, weight, np.where(winner == own, -weight, 0.0))
    order = needed.argsort()  # of equal values any may come first: they are not parted
    running = np.concatenate([[0.0], gain[order].cumsum()])
    ordered = needed[order]
    # An offset between two different values takes all samples before it; equal values cannot be parted.
    running[1:-1][ordered[1:] <= ordered[:-1]] = -np.inf
    highest = running.max()
    if highest <= gain[needed < current].sum() + 1e-12:
        return current
    bounds = np.concatenate([ordered[:1] - 1, (ordered[1:] + ordered[:-1]) / 2, ordered[-1:] + 1])
    ties = bounds[running >= highest - 1e-12]
    return float(ties[np.abs(ties - current).argmin()])  # the least change
