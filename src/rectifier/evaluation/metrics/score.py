"""All metrics of saved predictions, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics.confusion import ClassScores, confusion_counts
from rectifier.evaluation.metrics.ranking import (
    average_precision,
    calibration_error,
    group_top_k,
    negative_log_likelihood,
    top_k_sensitivity,
)
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace

MANY, FEW = 100, 20
"""More than 100 training samples of a class are "many", fewer than 20 "few", others "medium" (Liu et al. 2019)."""


def score(
    logits: Tensor,
    targets: Tensor,
    space: LabelSpace,
    *,
    train_counts: Sequence[Tensor],
    offsets: Tensor | None = None,
    calibrated: Tensor | None = None,
) -> dict[str, Any]:
    """Score predictions under one decision rule: metrics over all labels, and ``labels`` with those of each.

    A rule is given by its ``offsets`` ``(K,)`` (see ``posthoc``); None is the plain argmax. Means leave out classes
    without a sample, which ``absent`` counts, and what is not defined is None. With ``calibrated`` logits ``(N, K)``
    beside the others, ``calibrated_nll`` and ``calibrated_expected_calibration_error`` take probabilities from them;
    the rule still decides.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> logits, targets = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]]), torch.tensor([[0], [1], [1]])
    >>> found = score(logits, targets, space, train_counts=[torch.tensor([200, 10])])
    >>> found["class_balanced_accuracy"], found["many"], found["few"], found["labels"]["kind"]["sensitivity"]
    (0.75, 1.0, 0.5, {'cat': 1.0, 'dog': 0.5})
    """
    sizes = space.sizes
    canonical = columns.targets_beside(check.logits(logits), targets, sizes, space.names)
    decided = logits.double() if offsets is None else logits.double() + offsets.to(logits.device).double()
    predicted = columns.argmax(decided, sizes)
    classes = ClassScores.of(confusion_counts(predicted, canonical, sizes), sizes)
    sensitivity = classes.sensitivity
    precision = average_precision(columns.softmax(decided, sizes), canonical, sizes)
    top5 = top_k_sensitivity(decided, canonical, sizes)
    by_label = {
        "class_balanced_accuracy": classes.label_mean(sensitivity),
        "accuracy": classes.accuracy,
        "macro_f1": classes.label_mean(classes.f1),
        "g_mean": classes.g_mean,
        "mean_average_precision": classes.label_mean(precision),
        "top5_class_balanced_accuracy": classes.label_mean(top5),
        "nll": negative_log_likelihood(decided, canonical, sizes),
        "expected_calibration_error": calibration_error(decided, canonical, sizes),
    }
    if calibrated is not None:
        error = calibration_error(calibrated, canonical, sizes, predicted=predicted)
        by_label["calibrated_nll"] = negative_log_likelihood(calibrated, canonical, sizes)
        by_label["calibrated_expected_calibration_error"] = error
    shots = _shots(sensitivity, torch.cat([torch.as_tensor(c) for c in train_counts]).to(sensitivity.device))
    result: dict[str, Any] = {name: _plain(values.nanmean()) for name, values in by_label.items()}
    result |= {name: _plain(sensitivity[members].nanmean()) for name, members in shots.items()}
    result["absent"] = int((classes.samples == 0).sum())
    if len(groups := _groups(space)) > 1:
        result["group_top5"] = _group_scores(decided, canonical, groups)
    result["labels"] = {
        name: {
            **{metric: _plain(values[a]) for metric, values in by_label.items()},
            "sensitivity": _by_class(space, a, sensitivity),
            "average_precision": _by_class(space, a, precision),
            "samples": _by_class(space, a, classes.samples),
        }
        for a, name in enumerate(space.names)
    }
    return result


def _shots(sensitivity: Tensor, counts: Tensor) -> dict[str, Tensor]:
    if len(counts) != len(sensitivity):
        check.fail("train_counts", f"a count for each of the {len(sensitivity)} classes", f"{len(counts)}")
    return {"many": counts > MANY, "medium": (counts >= FEW) & (counts <= MANY), "few": counts < FEW}


def _groups(space: LabelSpace) -> dict[str, list[int]]:
    """Return the binary labels of each group, by their names ``group/label``; nothing where there are other labels."""
    groups: dict[str, list[int]] = {}
    if set(space.sizes) == {2} and all("/" in name for name in space.names):
        for a, name in enumerate(space.names):
            groups.setdefault(name.partition("/")[0], []).append(a)
    return groups


def _group_scores(logits: Tensor, targets: Tensor, groups: dict[str, list[int]]) -> dict[str, float | None]:
    number = torch.empty(targets.shape[1], dtype=torch.int64, device=targets.device)
    for position, members in enumerate(groups.values()):
        number[members] = position
    found = group_top_k(logits, targets, number)
    return {name: _plain(found[members].nanmean()) for name, members in groups.items()}


def _by_class(space: LabelSpace, a: int, values: Tensor) -> dict[str, float | None]:
    first = space.offsets[a]
    own = values[first : first + space.sizes[a]]
    return {name: _plain(value) for name, value in zip(space.classes[a], own, strict=True)}


def _plain(value: Tensor) -> float | None:
    number = float(value)
    return number if isfinite(number) else None
