"""What is changed after training: offsets on the logits, fitted on validation and never on test.

Every decision rule here adds one number per class to the logits before the largest is taken, so a rule is a tensor
``(K,)``: nothing for the plain argmax, the negative log prior of the training counts, threshold adjustment (the paper's
baseline), or offsets tuned for class-balanced accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier import check, columns
from rectifier.columns import Sizes
from rectifier.imbalance import Counts, as_count_list
from rectifier.metrics import balanced_mean, count_correct

STRENGTHS = (1, 2, 3, 4, 5)
"""The values of T that the paper tries for threshold adjustment."""

_SWEEPS = 10  # over the classes of a label; a sweep that gains nothing is the last


def prior_offsets(counts: Counts, tau: float = 1.0) -> Tensor:
    """Return ``-tau * log(prior)`` of every class, ``(K,)``: the log prior of the training split, taken off the logits.

    A class without a training sample has the prior of half a sample.

    >>> prior_offsets(torch.tensor([90, 10])).exp().round(decimals=2)
    tensor([ 1.1100, 10.0000])
    """
    labels, _ = as_count_list(counts)
    shares = [label.double().clamp(min=0.5) / label.double().clamp(min=0.5).sum() for label in labels]
    return (-tau * torch.cat(shares).log()).float()


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
        scored = [
            (_score(logits + adjustment_offsets(counts, t).to(logits), targets, sizes), -position, t)
            for position, t in enumerate(strengths)
        ]
        best = max(scored)[2]
        return cls(best, adjustment_offsets(counts, best))

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits."""
        return logits + self.offsets.to(logits)


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
    canonical = columns.targets_beside(logits, targets, resolved, columns.label_names(sizes))
    scores = logits.detach().double().cpu() + (0.0 if start is None else start.double().cpu())
    found = torch.zeros(sum(resolved), dtype=torch.float64) if start is None else start.double().cpu().clone()
    first = 0
    for a, size in enumerate(resolved):  # fitted once, off every hot path
        labelled = canonical[:, a].cpu() >= 0
        own = canonical[labelled, a].cpu()
        if len(own):
            found[first : first + size] += _tune_label(scores[labelled, first : first + size], own)
        first += size
    return found.float()


def _tune_label(scores: Tensor, own: Tensor) -> Tensor:
    """Return the offsets ``(C,)`` of one label, from its scores ``(n, C)`` and targets ``(n,)``."""
    counts = own.bincount(minlength=scores.shape[1])
    weight = 1.0 / counts[own]  # so that hits add up to the sum of the sensitivities
    offsets = torch.zeros(scores.shape[1], dtype=torch.float64)
    present = counts.nonzero()[:, 0].tolist()
    moved = present[-1:] if len(counts) == 2 else present  # of two classes, one offset says everything
    for _ in range(_SWEEPS):
        before = offsets.clone()
        for k in moved:
            offsets[k] = _best_offset(scores + offsets, k, float(offsets[k]), own, weight)
        if torch.equal(before, offsets):
            break
    return offsets


def _best_offset(shifted: Tensor, k: int, current: float, own: Tensor, weight: Tensor) -> float:
    """Return the offset of class k that hits most while all others stand; the current one where nothing is gained.

    Sample i is taken for k when the offset exceeds ``needed[i]``. Sorted by that, the hits of every possible offset
    are a running sum: samples of k are gained on the way up, and samples that their own class would win are lost.
    """
    others = shifted.clone()
    others[:, k] = -torch.inf
    best, winner = others.max(1)
    needed = best - shifted[:, k] + current
    gain = torch.where(own == k, weight, torch.where(winner == own, -weight, 0.0))
    order = needed.argsort(stable=True)
    running = torch.cat([torch.zeros(1, dtype=torch.float64), gain[order].cumsum(0)])
    sorted_needed = needed[order]
    # An offset between two different values takes all samples before it; equal values cannot be parted.
    bounds = torch.cat([sorted_needed[:1] - 1, (sorted_needed[1:] + sorted_needed[:-1]) / 2, sorted_needed[-1:] + 1])
    possible = torch.cat([torch.tensor([True]), sorted_needed[1:] > sorted_needed[:-1], torch.tensor([True])])
    running = torch.where(possible, running, -torch.inf)
    now = gain[needed < current].sum()
    if running.max() <= now + 1e-12:
        return current
    ties = (running >= running.max() - 1e-12).nonzero()[:, 0]
    return float(bounds[ties][(bounds[ties] - current).abs().argmin()])  # the least change


def _score(logits: Tensor, targets: Tensor, sizes: Sizes | None) -> float:
    resolved = columns.as_sizes(sizes, check.logits(logits).shape[1])
    return float(balanced_mean(*count_correct(logits, targets, resolved), resolved))
