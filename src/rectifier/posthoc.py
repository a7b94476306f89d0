"""What is changed after training: the logits, by what is fitted on validation and never on test.

Every decision rule here adds one number per class to the logits before the largest is taken, so a rule is a tensor
``(K,)``: nothing for the plain argmax, the negative log prior of the training counts, threshold adjustment (the paper's
baseline), or offsets tuned for class-balanced accuracy. Temperature and vector scaling are for calibrated
probabilities; a temperature leaves every decision as it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier import check, columns
from rectifier.columns import Sizes
from rectifier.imbalance import Counts, as_count_list, log_prior
from rectifier.metrics import class_balanced_accuracy

STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries for threshold adjustment."""

TAUS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
"""The shares of the log prior that logit adjustment tries."""

TEMPERATURES = (0.01, 100.0)
"""Where the search for a temperature ends: logits that are always right, or that say nothing, have no best one."""

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
        if not strengths:
            check.fail("strengths", "a list of at least one number", "an empty one")

        def score(strength: float) -> float:
            adjusted = logits + adjustment_offsets(counts, strength).to(logits)
            return float(class_balanced_accuracy(adjusted, targets, sizes))

        best = max(strengths, key=score)
        return cls(best, adjustment_offsets(counts, best))

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
        if not taus:
            check.fail("taus", "a list of at least one number", "an empty one")

        def score(tau: float) -> float:
            return float(class_balanced_accuracy(logits + prior_offsets(counts, tau).to(logits), targets, sizes))

        best = max(taus, key=score)
        return cls(best, prior_offsets(counts, best))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)

    def as_dict(self) -> dict[str, Any]:
        return {"tau": self.tau, "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LogitAdjustment:
        return cls(values["tau"], torch.tensor(values["offsets"]))


@dataclass(frozen=True)
class TemperatureScaling:
    """Logits over one temperature per label, fitted on validation (Guo et al. 2017): no decision changes.

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> TemperatureScaling.fit(logits, targets)(logits).softmax(1)[0]
    tensor([0.7500, 0.2500])
    """

    temperatures: Tensor  # (A,)
    sizes: tuple[int, ...]

    @classmethod
    def fit(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None = None) -> TemperatureScaling:
        """Minimise the negative log-likelihood of each label; a label that nobody has keeps temperature 1.

        It is convex in 1 / T, so halving the interval in which its slope changes sign finds the best, from 0.01 to 100.
        """
        given = _Labelled.of(logits, targets, sizes)
        coldest, hottest = (torch.full((len(given.sizes),), math.log(t), dtype=torch.float64) for t in TEMPERATURES)
        for _ in range(_HALVINGS):
            middle = (coldest + hottest) / 2
            too_hot = given.slope(torch.exp(-middle)) < 0  # a larger 1 / T would be more likely
            coldest, hottest = torch.where(too_hot, coldest, middle), torch.where(too_hot, middle, hottest)
        found = torch.exp((coldest + hottest) / 2)
        return cls(torch.where(given.samples > 0, found, 1.0).float(), given.sizes)

    def __call__(self, logits: Tensor) -> Tensor:
        """Return scaled logits."""
        check.logits_columns(logits, self.sizes)
        return logits / self.temperatures.to(logits)[columns.label_of_column(self.sizes, logits.device)]

    def as_dict(self) -> dict[str, Any]:
        return {"temperatures": self.temperatures.tolist(), "sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TemperatureScaling:
        return cls(torch.tensor(values["temperatures"]), columns.as_sizes(values["sizes"]))


@dataclass(frozen=True)
class VectorScaling:
    """Logits times one scale per class, plus one offset, fitted on validation (Guo et al. 2017).

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> VectorScaling.fit(logits, targets, penalty=1e-6)(logits).softmax(1)[0]
    tensor([0.7500, 0.2500])
    """

    scales: Tensor  # (K,)
    offsets: Tensor  # (K,)

    @classmethod
    def fit(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None = None, *, penalty: float = 1.0) -> VectorScaling:
        """Minimise the negative log-likelihood, summed over the samples, plus penalty / 2 * squared change.

        The change is that of scales from 1 and of offsets from 0, so that few samples change little; labels do not
        depend on each other. A label that would come out less likely than before, by rounding, is left as it is.
        """
        valid = check.is_real(penalty) and penalty > 0
        check.raise_all([check.number("penalty", penalty, "a positive number", valid)])
        given = _Labelled.of(logits, targets, sizes)
        same = torch.stack([torch.ones_like(given.logits[0]), torch.zeros_like(given.logits[0])])
        change = torch.zeros_like(same, requires_grad=True)  # (2, K): of scales, of offsets
        optimizer = torch.optim.LBFGS(
            [change], max_iter=_LBFGS_STEPS, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )
        samples = given.samples.clamp(min=1)  # over them, so that labels with many samples do not hide the others

        def cost() -> Tensor:
            optimizer.zero_grad()
            scale, offset = same + change
            far = columns.sum_by_label(change.square().sum(0), given.sizes)
            total = ((given.nll(scale * given.logits + offset) + penalty / 2 * far) / samples).sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(cost)
        found = (same + change.detach()).float()
        better = given.nll(found[0] * given.logits + found[1]) <= given.nll(given.logits)
        kept = torch.where(better[columns.label_of_column(given.sizes, better.device)], found, same.float())
        return cls(kept[0], kept[1])

    def __call__(self, logits: Tensor) -> Tensor:
        """Return scaled logits."""
        return logits * self.scales.to(logits) + self.offsets.to(logits)

    def as_dict(self) -> dict[str, Any]:
        return {"scales": self.scales.tolist(), "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> VectorScaling:
        return cls(torch.tensor(values["scales"]), torch.tensor(values["offsets"]))


_HALVINGS = 60  # of an interval of log temperatures: to the last digit of a float64
_LBFGS_STEPS = 500


class _Labelled(NamedTuple):
    """Validation logits in float64 and their targets, and the negative log-likelihood of each label."""

    logits: Tensor
    targets: Tensor
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None) -> _Labelled:
        known = columns.as_sizes(sizes, check.logits(logits).shape[1])
        canonical = columns.targets_beside(logits, targets, known, columns.label_names(sizes))
        return cls(logits.detach().cpu().double(), canonical.cpu(), known)

    @property
    def samples(self) -> Tensor:
        return (self.targets >= 0).sum(0)

    def nll(self, logits: Tensor) -> Tensor:
        """Return ``(A,)``: the sum over the samples that have the label."""
        return -self._own(columns.log_softmax(logits, self.sizes)).sum(0)

    def slope(self, inverse: Tensor) -> Tensor:
        """Return ``(A,)``: the slope of the negative log-likelihood in 1 / T, at these ``(A,)``."""
        label = columns.label_of_column(self.sizes, self.logits.device)
        expected = columns.softmax(self.logits * inverse[label], self.sizes) * self.logits
        there = (self.targets >= 0)[:, label]
        return columns.sum_by_label((expected * there).sum(0), self.sizes) - self._own(self.logits).sum(0)

    def _own(self, values: Tensor) -> Tensor:
        own = columns.own_columns(self.targets, self.sizes)
        return values.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)


def tuned_offsets(logits: Tensor, targets: Tensor, sizes: Sizes | None = None, start: Tensor | None = None) -> Tensor:
    """Return the offsets ``(K,)`` that maximise the class-balanced accuracy of these (validation) logits.

    Label by label, one class after the other is given its best offset while the others stand, until a sweep gains
    nothing: exact for two classes, and never worse than ``start`` (nothing, if not given) for more. A class without a
    sample keeps the offset it starts with.

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
    order = needed.argsort(kind="stable")
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
