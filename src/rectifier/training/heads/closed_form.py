"""Heads without training: balanced ridge regression and shrunken discriminant analysis, label by label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, one_hot

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels.imbalance import log_prior
from rectifier.training.heads.prepared import Prepared
from rectifier.training.heads.spec import FeatureTable

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Ridge strengths relative to the total weight of the samples, for features of deviation 1."""
STRENGTH = 1.0


class Line(NamedTuple):
    """A linear classifier: weight ``(C, D)`` and bias ``(C,)``."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class ClosedFormHead:
    """A linear head for raw features: weight ``(K, D)``, bias ``(K,)``, and what was chosen for each label."""

    weight: Tensor
    bias: Tensor
    chosen: tuple[float, ...]  # ridge: the strength; discriminant analysis: the share of shrinkage

    @property
    def weights(self) -> dict[str, Tensor]:
        """The state dict of a linear ``FeatureHead`` or ``MultiLabelHead``."""
        return {"classifier.weight": self.weight, "classifier.bias": self.bias}

    def logits(self, x: Tensor) -> Tensor:
        """Return ``(N, K)``. Those of ridge are regressions on 0 and 1, those of discriminant analysis log-odds."""
        return linear(x, self.weight, self.bias)


def ridge_head(
    table: FeatureTable,
    *,
    strengths: float | Sequence[float] | None = None,
    validation: FeatureTable | None = None,
) -> ClosedFormHead:
    """Return class-balanced ridge regression on indicators of the classes.

    Every class of a label has the same total weight. For each label one eigen-decomposition serves all strengths, and
    validation chooses by class-balanced accuracy; the first wins a tie. Several strengths need validation. None is
    ``STRENGTHS`` with validation, and the strength 1 without.

    >>> from rectifier.labels.space import LabelSpace
    >>> x = torch.tensor([[0.0], [1.0], [2.0], [6.0]])
    >>> table = FeatureTable(x, torch.tensor([[0], [0], [0], [1]]), LabelSpace.from_sizes([2]))
    >>> ridge_head(table, strengths=0.1).logits(x).argmax(1)
    tensor([0, 0, 0, 1])
    """
    if strengths is None:
        strengths = STRENGTHS if validation is not None else STRENGTH
    strengths = [strengths] if isinstance(strengths, int | float) else list(strengths)
    check.raise_all([check.positive("strengths", strength) for strength in strengths])
    if not strengths or (len(strengths) > 1 and validation is None):
        check.fail("strengths", "one number, or several together with validation", strengths)

    def fit(x: Tensor, targets: Tensor, classes: int) -> list[tuple[float, Line]]:
        counts = targets.bincount(minlength=classes)
        weight = (len(targets) / ((counts > 0).sum() * counts.clamp(min=1)))[targets].to(x.dtype)
        lines = _ridge_lines(x, one_hot(targets, classes).to(x.dtype), weight, [s * len(targets) for s in strengths])
        return list(zip(strengths, lines, strict=True))

    return _label_by_label(table, fit, validation)


def discriminant_head(
    table: FeatureTable, *, shrinkage: float | None = None, prior_samples: float = 0.0, balanced: bool = True
) -> ClosedFormHead:
    """Return linear discriminant analysis with a pooled covariance.

    Args:
        table: The training features.
        shrinkage: Share of a multiple of the identity in the covariance. None is Ledoit and Wolf's.
        prior_samples: The mean of a class of n samples is shrunk towards the mean of all, which has the share
            k / (n + k).
        balanced: Decide as if all classes were equally frequent. A class without samples keeps its low prior.

    >>> from rectifier.labels.space import LabelSpace
    >>> x = torch.tensor([[0.0], [1.0], [2.0], [6.0], [7.0]])
    >>> table = FeatureTable(x, torch.tensor([[0], [0], [0], [1], [1]]), LabelSpace.from_sizes([2]))
    >>> discriminant_head(table).logits(torch.tensor([[3.5], [4.0]])).argmax(1)
    tensor([0, 1])
    """
    wanted = "a share from 0 to 1, or None"
    whole = shrinkage is None or check.portion("shrinkage", shrinkage) is None
    check.raise_all(
        [check.that("shrinkage", shrinkage, wanted, whole), check.not_negative("prior_samples", prior_samples)]
    )

    def fit(x: Tensor, targets: Tensor, classes: int) -> list[tuple[float, Line]]:
        marked = one_hot(targets, classes).to(x.dtype)
        counts, common = marked.sum(0), x.mean(0)
        means = torch.where(counts[:, None] > 0, marked.T @ x / counts.clamp(min=1)[:, None], common)
        within = x - means[targets]
        covariance = within.T @ within / len(x)
        share = ledoit_wolf_share(within, covariance) if shrinkage is None else shrinkage
        size = covariance.diagonal().mean()
        identity = torch.eye(len(covariance), dtype=x.dtype, device=x.device)
        shrunk = (1 - share) * covariance + share * size * identity
        kept = (counts / (counts + prior_samples).clamp(min=1e-12))[:, None]
        means = kept * means + (1 - kept) * common
        weight = (torch.linalg.pinv(shrunk, hermitian=True) @ means.T).T
        prior = log_prior(counts.long()).to(x.dtype)
        prior = torch.where(counts > 0, 0, prior) if balanced else prior
        return [(float(share), Line(weight, prior - (weight * means).sum(1) / 2))]

    return _label_by_label(table, fit)


def ledoit_wolf_share(centred: Tensor, covariance: Tensor) -> float:
    """Return the share of the identity that Ledoit and Wolf (2004) find best for the covariance of ``(N, D)``."""
    samples, features = centred.shape
    spread = covariance.square().sum()
    far = (spread - features * covariance.diagonal().mean() ** 2) / features
    error = (centred.square().sum(1).square().sum() / samples - spread) / (features * samples)
    return float(error.clamp(min=0).minimum(far) / far) if far > 0 else 0.0


def _ridge_lines(x: Tensor, y: Tensor, weight: Tensor, strengths: Sequence[float]) -> list[Line]:
    """Return the minima of sum_i w_i |y_i - W x_i - b|^2 + strength |W|^2, from one decomposition."""
    total = weight.sum()
    x_mean, y_mean = weight @ x / total, weight @ y / total
    root = weight.sqrt()[:, None]
    x, y = root * (x - x_mean), root * (y - y_mean)
    if len(x) < x.shape[1]:  # the smaller of both products has the same eigenvalues
        values, vectors = torch.linalg.eigh(x @ x.T)
        solved = [x.T @ (vectors @ ((vectors.T @ y) / (values.clamp(min=0) + s)[:, None])) for s in strengths]
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
        projected = vectors.T @ (x.T @ y)
        solved = [vectors @ (projected / (values.clamp(min=0) + s)[:, None]) for s in strengths]
    return [Line(found.T, y_mean - x_mean @ found) for found in solved]


Fit = Callable[[Tensor, Tensor, int], list[tuple[float, Line]]]


def _label_by_label(table: FeatureTable, fit: Fit, validation: FeatureTable | None = None) -> ClosedFormHead:
    """Fit every label on the standardised features of the samples that have it, and return a head for raw features."""
    data, lines, chosen = Prepared(table), [], []
    rows, targets = data.rows, table.targets.repeat(table.views, 1)
    held_out = None if validation is None else data.standardised(validation.first_view.to(rows))
    for a, classes in enumerate(table.space.sizes):
        labelled = targets[:, a] >= 0
        if not bool(labelled.any()):
            check.fail(f"label {table.space.names[a]!r}", "one that some training samples have", "missing targets only")
        candidates = fit(rows[labelled], targets[labelled, a], classes)
        option, line = candidates[0]
        if held_out is not None and validation is not None and len(candidates) > 1:
            own = validation.targets[:, a : a + 1].to(rows.device)
            scores = [float(class_balanced_accuracy(linear(held_out, *line), own)) for _, line in candidates]
            option, line = candidates[scores.index(max(scores))]
        lines.append(line)
        chosen.append(option)
    weight = torch.cat([line.weight for line in lines]) / data.deviation
    bias = torch.cat([line.bias for line in lines]) - weight @ data.mean
    return ClosedFormHead(weight, bias, tuple(chosen))
