"""Decide by linear support vector machines on features, all fitted at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from rectifier._base import check, console
from rectifier._base.distances import widest
from rectifier.evaluation.by_features.decision import NEVER, Decision, FitData
from rectifier.labels import columns
from rectifier.labels.counts import column_counts
from rectifier.labels.space import LabelSpace

_NUMBERS = 2**22  # entries of a matrix (samples, machines); about ten such matrices need 300 megabytes
_EXACT = 1e-7  # stop when the gradient has shrunk to this share of its first value
_NEWTON_STEPS, _CG_STEPS, _HALVINGS = 100, 500, 30  # upper limits; a tenth is common


@dataclass(frozen=True, eq=False)
class SVMDecision(Decision):
    """Linear support vector machines: one class against the others of its label. Validation chooses nothing.

    ``fit`` minimises half of the squared weights (including the bias) plus its option ``strength`` times the squared
    hinges, like scikit-learn's ``LinearSVC`` with C = ``strength``. Features are standardised first; weights include
    that scaling. A label of two classes has one machine: the scores of its classes differ by its value. A class without
    a sample scores ``NEVER``; a label without any sample scores 0.

    >>> features, targets = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> found = SVMDecision.fit(features, targets, LabelSpace.from_sizes([2]), features, targets)
    >>> (found.bias / found.weight[:, 0]).round().tolist()  # both change sign in the middle, at 2
    [-2.0, -2.0]
    """

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)

    @classmethod
    def fit_checked(cls, space: LabelSpace, given: FitData, *, strength: float = 1.0) -> Self:
        check.raise_all([check.positive("strength", strength)])
        features, wide = given.features, widest(given.features.device)
        x = features if wide == torch.float64 else features.cpu()
        own = given.targets.to(x.device)
        if features.dim() == 2:
            found = [_machines(x, own, space.sizes, strength)]
        else:
            parts = zip(x.unbind(1), own.split(1, 1), space.sizes, strict=True)
            found = [_machines(its, answers, (size,), strength) for its, answers, size in parts]
        weight, bias = (torch.cat(part).to(features.device, wide) for part in zip(*found, strict=True))
        return cls(space.sizes, tuple(features.shape[1:]), weight, bias)

    def scores(self, features: Tensor) -> Tensor:
        wide = widest(features.device)  # weights and bias cancel if a feature's mean far exceeds its deviation
        x, weight, bias = (part.to(features.device, wide) for part in (features, self.weight, self.bias))
        if features.dim() == 2:
            return x @ weight.T + bias
        by_label = zip(x.unbind(1), weight.split(self.sizes), strict=True)
        return torch.cat([one @ own.T for one, own in by_label], 1) + bias


def _machines(features: Tensor, targets: Tensor, sizes: tuple[int, ...], strength: float) -> tuple[Tensor, Tensor]:
    """Return weights ``(K, D)`` and biases ``(K,)`` of labels that share features ``(n, D)``."""
    features = features.double()
    largest = features.abs().amax(0)
    unit = torch.where(largest > 0, largest, 1.0)  # so that squares neither overflow nor vanish
    features = features / unit
    mean, deviation = features.mean(0), features.std(0, correction=0)
    # By rounding, the deviation of a constant is not 0.
    deviation = torch.where(features.amax(0) > features.amin(0), deviation, 1.0)
    scaled = torch.cat([(features - mean) / deviation, features.new_ones(len(features), 1)], 1)
    label, own = columns.label_of_column(sizes, features.device), columns.own_columns(targets, sizes)
    shown = column_counts(own, sum(sizes)) > 0
    classes = columns.sum_by_label(shown.int(), sizes)[label]
    number = torch.arange(sum(sizes), device=features.device)
    # Only used where a label has two classes with samples.
    other = columns.sum_by_label(torch.where(shown, number, 0), sizes)[label] - number
    opposite = shown & (classes == 2) & (number < other)
    weight = scaled.new_zeros(scaled.shape[1], sum(sizes))
    for some in (shown & (classes > 1) & ~opposite).nonzero()[:, 0].split(max(1, _NUMBERS // len(scaled))):
        belongs = own[:, label[some]]
        sides = torch.where(belongs < 0, 0.0, torch.where(belongs == some, 1.0, -1.0)).double()
        weight[:, some] = _least(scaled, sides, strength)
    weight[:, opposite] = -weight[:, other[opposite]]
    weight[:, classes == 2] /= 2  # half for one class, half against the other
    slopes = weight[:-1].T / deviation
    bias = torch.where(shown | (classes == 0), weight[-1] - slopes @ mean, NEVER)
    return slopes / unit, bias


def _least(x: Tensor, sides: Tensor, strength: float) -> Tensor:
    """Return the weights ``(D, K)`` that minimise half of ``|w|^2`` plus the squared hinges.

    ``sides`` ``(n, K)`` is 1 or -1, and 0 for samples that do not count. Newton's method with conjugate gradients and
    step halving (Keerthi and DeCoste 2005); columns are independent.
    """
    w, values, first = x.new_zeros(x.shape[1], sides.shape[1]), torch.zeros_like(sides), None
    for _ in range(_NEWTON_STEPS):
        short = _short(sides, values)
        gradient = w - 2 * strength * x.T @ (sides * short)
        left = gradient.norm(dim=0)
        first = left if first is None else first
        part = left / first.clamp(min=torch.finfo(x.dtype).tiny)
        if bool((part <= _EXACT).all()):
            break
        way = _newton_step(x, short > 0, gradient, strength, part.sqrt().clamp(max=0.1))
        moved = x @ way
        step = _step_length(w, way, sides, values, moved, gradient, strength)
        w, values = w + step * way, values + step * moved
    else:
        console.say("Support vector machines did not converge fully: their scores are approximate.")
    return w


def _short(sides: Tensor, values: Tensor) -> Tensor:
    """Return how far each sample is short of the margin; 0 beyond it and for samples that do not count."""
    return (1 - sides * values).clamp(min=0) * sides.abs()


def _newton_step(x: Tensor, counts: Tensor, gradient: Tensor, strength: float, exact: Tensor) -> Tensor:
    """Solve ``(1 + 2 C x' diag(counts) x) way = -gradient`` for each column, to the relative accuracy ``exact``."""
    way, rest = torch.zeros_like(gradient), -gradient
    along, size = rest, rest.square().sum(0)
    wanted = size * exact.square()
    for _ in range(_CG_STEPS):
        going = size > wanted
        if not bool(going.any()):
            break
        bent = along + 2 * strength * x.T @ (counts * (x @ along))
        far = torch.where(going, size / (along * bent).sum(0), 0.0)
        way, rest = way + far * along, rest - far * bent
        now = rest.square().sum(0)
        along = rest + torch.where(going, now / size, 0.0) * along
        size = torch.where(going, now, size)
    return way


def _step_length(
    w: Tensor, way: Tensor, sides: Tensor, values: Tensor, moved: Tensor, gradient: Tensor, strength: float
) -> Tensor:
    """Return ``(K,)``: step sizes, halved from 1 until the cost of the column falls enough (Armijo's rule)."""

    def total(step: Tensor) -> Tensor:
        short = _short(sides, values + step * moved)
        return (w + step * way).square().sum(0) / 2 + strength * short.square().sum(0)

    step = w.new_ones(w.shape[1])
    before, slope = total(0 * step), (gradient * way).sum(0)
    for _ in range(_HALVINGS):
        pays = total(step) <= before + 1e-4 * step * slope
        if bool(pays.all()):
            break
        step = torch.where(pays, step, step / 2)
    return step
