"""Linear support vector machines on features, one for each class against the others, all of them fitted at once.

They give scores ``(Q, K)`` in the columns of the logits, so that metrics and decision rules serve them too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check, console
from rectifier._base.distances import widest
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.imbalance import column_counts

NEVER = -1e4
"""The score of a class without a training sample."""

_NUMBERS = 2**22  # that a matrix of samples and machines may have; some ten of them are held, 300 megabytes
_EXACT = 1e-7  # the gradient that is left, as a part of that at the beginning
_NEWTON_STEPS, _CG_STEPS, _HALVINGS = 100, 500, 30  # at most; a tenth of them is common


class LinearScores(NamedTuple):
    """One linear function for each column: its score is ``weight @ features + bias``."""

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)

    def __call__(self, queries: Tensor, sizes: Sizes) -> Tensor:
        """Score queries ``(Q, D)``, or ``(Q, A, D)`` where each label has its own features: ``(Q, K)``."""
        wide = widest(queries.device)  # weights and bias cancel where a feature's mean is far larger than its deviation
        x, weight, bias = (part.to(queries.device, wide) for part in (queries, self.weight, self.bias))
        if queries.dim() == 2:
            return (x @ weight.T + bias).float()
        by_label = zip(x.unbind(1), weight.split(columns.as_sizes(sizes)), strict=True)
        return (torch.cat([one @ own.T for one, own in by_label], 1) + bias).float()


@torch.no_grad()
def linear_svm(features: Tensor, targets: Tensor, sizes: Sizes, *, strength: float = 1.0) -> LinearScores:
    """Fit linear support vector machines: one class against the others of its label.

    Half of the squared weights (the bias among them) and ``strength`` times the squared hinges are made least, as
    scikit-learn's ``LinearSVC`` does it, on features brought to mean 0 and deviation 1, which the weights contain. For
    a label of two classes there is one machine: their scores differ by its value. A class without a sample scores
    ``NEVER``, a label that nobody has 0.

    Args:
        features: ``(n, D)``, or ``(n, A, D)`` where each label has its own features. They are fitted where they lie.
        targets: ``(n, A)``; negative where missing.
        sizes: Classes of each label, or a LabelSpace.
        strength: Of the errors beside the margin, scikit-learn's C.

    >>> features, targets = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> weight, bias = linear_svm(features, targets, [2])
    >>> (bias / weight[:, 0]).round().tolist()  # both change sign in the middle, at 2
    [-2.0, -2.0]
    """
    strength_ok = check.is_real(strength) and strength > 0
    check.raise_all([check.that("strength", strength, "a positive number", strength_ok)])
    known = columns.as_sizes(sizes)
    if not (features.dim() == 2 or (features.dim() == 3 and features.shape[1] == len(known))):
        check.fail("features", f"of shape (n, D) or (n, {len(known)}, D)", f"{tuple(features.shape)}")
    if not len(features) or not bool(features.isfinite().all()):
        got = "NaN or infinity among them" if len(features) else "none"
        check.fail("features", "finite, of one sample or more", got)
    x = features if widest(features.device) == torch.float64 else features.cpu()
    own = columns.as_targets(targets, known, columns.label_names(sizes)).to(x.device)
    check.same_length("targets", own, "features", features)
    if features.dim() == 2:
        found = [_machines(x, own, known, strength)]
    else:
        parts = zip(x.unbind(1), own.split(1, 1), known, strict=True)
        found = [_machines(its, answers, (size,), strength) for its, answers, size in parts]
    wide = widest(features.device)
    return LinearScores(*(torch.cat(part).to(features.device, wide) for part in zip(*found, strict=True)))


def linear_svm_scores(
    train_features: Tensor, train_targets: Tensor, queries: Tensor, sizes: Sizes, *, strength: float = 1.0
) -> Tensor:
    """Fit linear support vector machines and return their values of the queries, ``(Q, K)``.

    ``queries`` are ``(Q, D)`` or ``(Q, A, D)``, as the features; everything else as in ``linear_svm``.

    >>> features, targets = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([[0], [0], [1], [1]])
    >>> linear_svm_scores(features, targets, torch.tensor([[0.5], [3.5]]), [2]).argmax(1)
    tensor([0, 1])
    """
    if queries.shape[1:] != train_features.shape[1:]:
        wanted = "both of shape (·, D) or (·, A, D)"
        check.fail("queries and train_features", wanted, f"{tuple(queries.shape)} and {tuple(train_features.shape)}")
    return linear_svm(train_features, train_targets, sizes, strength=strength)(queries, sizes)


def _machines(features: Tensor, targets: Tensor, sizes: tuple[int, ...], strength: float) -> LinearScores:
    """Fit the machines of labels that share their features ``(n, D)``."""
    features = features.double()
    largest = features.abs().amax(0)
    unit = torch.where(largest > 0, largest, 1.0)  # whose square neither overflows nor vanishes
    features = features / unit
    mean, deviation = features.mean(0), features.std(0, correction=0)
    deviation = torch.where(features.amax(0) > features.amin(0), deviation, 1.0)  # rounded, a constant's is not 0
    scaled = torch.cat([(features - mean) / deviation, features.new_ones(len(features), 1)], 1)
    label, own = columns.label_of_column(sizes, features.device), columns.own_columns(targets, sizes)
    shown = column_counts(own, sum(sizes)) > 0
    classes = columns.sum_by_label(shown.int(), sizes)[label]
    number = torch.arange(sum(sizes), device=features.device)
    other = columns.sum_by_label(torch.where(shown, number, 0), sizes)[label] - number  # where a label shows two
    opposite = shown & (classes == 2) & (number < other)
    weight = scaled.new_zeros(scaled.shape[1], sum(sizes))
    for some in (shown & (classes > 1) & ~opposite).nonzero()[:, 0].split(max(1, _NUMBERS // len(scaled))):
        belongs = own[:, label[some]]
        sides = torch.where(belongs < 0, 0.0, torch.where(belongs == some, 1.0, -1.0)).double()
        weight[:, some] = _least(scaled, sides, strength)
    weight[:, opposite] = -weight[:, other[opposite]]
    weight[:, classes == 2] /= 2  # half for the one, half against the other
    slopes = weight[:-1].T / deviation
    bias = torch.where(shown | (classes == 0), weight[-1] - slopes @ mean, NEVER)
    return LinearScores(slopes / unit, bias)


def _least(x: Tensor, sides: Tensor, strength: float) -> Tensor:
    """Return ``(D, K)``: where half of ``|w|^2`` and the squares of what is short of the margin are least.

    ``sides`` ``(n, K)`` are 1 and -1, or 0 where a sample says nothing. By Newton's method, whose steps are found by
    conjugate gradients and halved until they pay (Keerthi and DeCoste 2005); columns know nothing of each other.
    """
    w, values, begun = x.new_zeros(x.shape[1], sides.shape[1]), torch.zeros_like(sides), None
    for _ in range(_NEWTON_STEPS):
        short = _short(sides, values)
        gradient = w - 2 * strength * x.T @ (sides * short)
        left = gradient.norm(dim=0)
        begun = left if begun is None else begun
        part = left / begun.clamp(min=torch.finfo(x.dtype).tiny)
        if bool((part <= _EXACT).all()):
            break
        way = _newton_step(x, short > 0, gradient, strength, part.sqrt().clamp(max=0.1))
        moved = x @ way
        step = _step_length(w, way, sides, values, moved, gradient, strength)
        w, values = w + step * way, values + step * moved
    else:
        console.say("Support vector machines are not at their minimum yet: scores are close to theirs there.")
    return w


def _short(sides: Tensor, values: Tensor) -> Tensor:
    """Return how much each sample is short of the margin, 0 where it is beyond it or says nothing."""
    return (1 - sides * values).clamp(min=0) * sides.abs()


def _newton_step(x: Tensor, counts: Tensor, gradient: Tensor, strength: float, exact: Tensor) -> Tensor:
    """Solve ``(1 + 2 C x' diag(counts) x) way = -gradient`` for each column, up to the part ``exact`` of it."""
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
    """Return ``(K,)``: 1, halved for each column until its sum falls by a part of what its slope promises."""

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
