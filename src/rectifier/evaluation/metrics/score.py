"""Score saved predictions by all metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics.ranking import (
    average_precision,
    calibration_error,
    group_top_k,
    negative_log_likelihood,
    top_k_sensitivity,
)
from rectifier.labels import columns
from rectifier.labels.counts import column_counts
from rectifier.labels.space import LabelSpace

MANY, FEW = 100, 20
"""A class with more than 100 training samples has "many", with fewer than 20 "few", else "medium" (Liu et al. 2019)."""

Score = tuple[str | None, str | None, str, float]
"""Label, class, metric and value."""


@dataclass(frozen=True)
class ClassScores:
    """Scores of every class, float64 ``(K,)``, NaN where they are not defined.

    ``samples`` counts the samples of the class, ``predicted`` its predictions. ``sensitivity`` is recall. A class
    without a sample has no recall or F1. A class that is never predicted has an F1 of 0.
    """

    sizes: tuple[int, ...]
    samples: Tensor
    predicted: Tensor
    correct: Tensor

    @classmethod
    def of(cls, predicted: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> ClassScores:
        """Count predictions and targets, both ``(N, A)``; negative targets do not count."""
        own = columns.own_columns(targets, sizes)
        guessed = torch.where(own >= 0, predicted + columns.offsets(sizes, own.device), -1)
        counted = (own, guessed, torch.where(own == guessed, own, -1))
        return cls(sizes, *(column_counts(found, sum(sizes)).double() for found in counted))

    @property
    def sensitivity(self) -> Tensor:
        return self.correct / self.samples

    @property
    def f1(self) -> Tensor:
        return torch.where(self.samples > 0, 2 * self.correct / (self.samples + self.predicted), torch.nan)

    def label_mean(self, values: Tensor) -> Tensor:
        """Average over the classes of each label that have a value: ``(A,)``, NaN if none has."""
        defined = ~values.isnan()
        total = columns.sum_by_label(torch.where(defined, values, 0), self.sizes)
        return total / columns.sum_by_label(defined.double(), self.sizes)

    @property
    def accuracy(self) -> Tensor:
        """The share of correct samples of each label, ``(A,)``."""
        return columns.sum_by_label(self.correct, self.sizes) / columns.sum_by_label(self.samples, self.sizes)

    @property
    def g_mean(self) -> Tensor:
        """The geometric mean of the recall of each label's classes, ``(A,)``: 0 if one class is never right."""
        return self.label_mean(self.sensitivity.log()).exp()


def score(
    logits: Tensor,
    targets: Tensor,
    space: LabelSpace,
    train_counts: Sequence[Tensor],
    *,
    offsets: Tensor | None = None,
    calibrated: Tensor | None = None,
) -> Iterator[Score]:
    """Score predictions under one decision rule: yield label, class, metric and value of every number.

    The metrics are those of ``METRICS``; label and class are None where the metric is over all of them. A rule is given
    by its ``offsets`` ``(K,)``; None is the plain argmax. Means leave out classes without a sample, which ``absent``
    counts. NaN stands for a value that is not defined. With ``calibrated`` logits ``(N, K)``, ``calibrated_nll`` and
    ``calibrated_expected_calibration_error`` take probabilities from them; the rule still decides.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> logits, targets = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0], [1], [1]])
    >>> found = list(score(logits, targets, space, train_counts=[torch.tensor([200, 10])]))
    >>> found[0], found[-6]
    ((None, None, 'class_balanced_accuracy', 0.75), ('kind', 'cat', 'sensitivity', 1.0))
    """
    sizes = space.sizes
    canonical = columns.targets_beside(check.logits(logits), targets, sizes, space.names)
    decided = logits.double() if offsets is None else logits.double() + offsets.to(logits.device).double()
    predicted = columns.argmax(decided, sizes)
    classes = ClassScores.of(predicted, canonical, sizes)
    precision = average_precision(columns.softmax(decided, sizes), canonical, sizes)
    by_label = {
        "class_balanced_accuracy": classes.label_mean(classes.sensitivity),
        "accuracy": classes.accuracy,
        "macro_f1": classes.label_mean(classes.f1),
        "g_mean": classes.g_mean,
        "mean_average_precision": classes.label_mean(precision),
        "top5_class_balanced_accuracy": classes.label_mean(top_k_sensitivity(decided, canonical, sizes)),
        "nll": negative_log_likelihood(decided, canonical, sizes),
        "expected_calibration_error": calibration_error(decided, canonical, sizes),
    }
    if calibrated is not None:
        error = calibration_error(calibrated, canonical, sizes, predicted=predicted)
        by_label["calibrated_nll"] = negative_log_likelihood(calibrated, canonical, sizes)
        by_label["calibrated_expected_calibration_error"] = error
    by_class = {"sensitivity": classes.sensitivity, "average_precision": precision, "samples": classes.samples}

    yield from ((None, None, metric, _plain(values.nanmean())) for metric, values in by_label.items())
    for metric, members in _shots(train_counts, classes.samples).items():
        yield None, None, metric, _plain(classes.sensitivity[members].nanmean())
    yield None, None, "absent", int((classes.samples == 0).sum())
    for group, value in _group_scores(decided, canonical, space).items():
        yield group, None, "group_top5", value
    for a, label in enumerate(space.names):
        own = slice(space.offsets[a], space.offsets[a] + sizes[a])
        yield from ((label, None, metric, _plain(values[a])) for metric, values in by_label.items())
        for metric, values in by_class.items():
            for name, value in zip(space.classes[a], values[own], strict=True):
                yield label, name, metric, _plain(value)


def _shots(train_counts: Sequence[Tensor], samples: Tensor) -> dict[str, Tensor]:
    """Return which classes have many, a medium number of, or few training samples."""
    counts = torch.cat([torch.as_tensor(c) for c in train_counts]).to(samples.device)
    if len(counts) != len(samples):
        check.fail("train_counts", f"a count for each of the {len(samples)} classes", f"{len(counts)}")
    return {"many": counts > MANY, "medium": (counts >= FEW) & (counts <= MANY), "few": counts < FEW}


def _group_scores(logits: Tensor, targets: Tensor, space: LabelSpace) -> dict[str, float]:
    """Return the top-5 recall of each group of binary labels named ``group/label``; empty if there are other labels."""
    groups = [name.partition("/")[0] for name in space.names]
    names = list(dict.fromkeys(groups))
    if set(space.sizes) != {2} or not all("/" in name for name in space.names) or len(names) < 2:
        return {}
    number = torch.tensor([names.index(group) for group in groups], device=targets.device)
    found = group_top_k(logits, targets, number)
    return {name: _plain(found[number == position].nanmean()) for position, name in enumerate(names)}


def _plain(value: Tensor) -> float:
    number = float(value)
    return number if isfinite(number) else nan
