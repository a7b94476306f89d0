"""Score saved predictions under decision rules. Rules are fitted on validation; test is scored and never looked at.

Every rule adds one number per class to the logits before the largest is taken:

- ``argmax``: nothing, or what the method itself adds after training;
- ``prior``: the log prior of the training classes is taken off;
- ``tuned``: what gives validation the best class-balanced accuracy, label by label and class by class.

Beside the rules stands a calibration, one temperature per label: what a rule decides is its own affair, how probable
that is follows from the plain logits over their temperature. No decision changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.evaluation.metrics.score import score
from rectifier.evaluation.rules.calibration import TemperatureScaling
from rectifier.evaluation.rules.prior import LogitAdjustment, prior_offsets
from rectifier.evaluation.rules.thresholds import ThresholdAdjustment
from rectifier.evaluation.rules.tuning import tuned_offsets
from rectifier.labels.space import LabelSpace

RULES = ("argmax", "prior", "tuned")
PREFERRED = "preferred"
"""Stands for the rule that validation likes best, run by run: what one would use."""
COMPARED = (*RULES, PREFERRED)
POSTHOC: dict[str, type[ThresholdAdjustment] | type[LogitAdjustment]] = {
    "threshold-adjustment": ThresholdAdjustment,
    "logit-adjustment": LogitAdjustment,
}
FOLDS = 5


def own_rule(rule: str, preferred: str) -> str:
    """Return the rule that is meant, of a run whose validation prefers this one."""
    return preferred if rule == PREFERRED else rule


def fit_rules(
    logits: Tensor,
    targets: Tensor,
    space: LabelSpace,
    train_counts: Sequence[Tensor],
    posthoc: str | None = None,
    *,
    extra: Sequence[str] = (),
) -> dict[str, Any]:
    """Fit the rules on validation's logits ``(N, K)`` and targets ``(N, A)``: plain values for JSON.

    ``posthoc`` is the method's own last step and belongs to its ``argmax``; ``extra`` names further steps that become
    rules of their own. ``validation`` holds the class-balanced accuracy of each rule, for ``tuned`` that of samples it
    was not tuned on (5 folds); a post-hoc step chooses a single number, and is scored on what it chose it by.
    ``preferred`` is the best of the three, ties go to the simpler rule. ``calibration`` is a ``TemperatureScaling`` of
    the plain logits, whatever the rule.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> logits, targets = torch.tensor([[3.0, 0.0], [2.0, 1.0], [1.0, 0.5]]), torch.tensor([[0], [1], [0]])
    >>> fit_rules(logits, targets, space, [torch.tensor([20, 10])])["preferred"]
    'argmax'
    """
    offsets = {
        "argmax": _posthoc_offsets(posthoc, logits, targets, space, train_counts),
        "prior": prior_offsets(list(train_counts)),
        "tuned": _tuned(logits, targets, space, train_counts),
    }
    offsets |= {name: _posthoc_offsets(name, logits, targets, space, train_counts) for name in extra}
    scores = {name: _balanced(logits + offset, targets, space) for name, offset in offsets.items()}
    scores["tuned"] = _balanced(_held_out(logits, targets, space, train_counts), targets, space)
    return {
        "preferred": max(RULES, key=lambda name: scores[name]),
        "validation": {name: value if isfinite(value) else None for name, value in scores.items()},
        "offsets": {name: offset.tolist() for name, offset in offsets.items()},
        "calibration": TemperatureScaling.fit(logits, targets, space).as_dict(),
    }


def score_rules(
    logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor], rules: dict[str, Any]
) -> dict[str, Any]:
    """Score one part's predictions under fitted rules: the metrics of ``argmax``, and in ``rules`` those of each.

    ``nll`` and ``expected_calibration_error`` are of the probabilities that the rule's offsets give, and with
    ``calibrated_`` before their names of the calibrated ones.
    """
    calibrated = TemperatureScaling.from_dict(rules["calibration"])(logits.double())

    def scores(offsets: list[float]) -> dict[str, Any]:
        rule = torch.tensor(offsets)
        return score(logits, targets, space, train_counts=train_counts, offsets=rule, calibrated=calibrated)

    scored = {name: scores(offsets) for name, offsets in rules["offsets"].items()}
    return {**scored["argmax"], "rules": scored}


def _posthoc_offsets(
    name: str | None, logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]
) -> Tensor:
    if name is None:
        return torch.zeros(space.columns)
    check.raise_all([check.choice("posthoc", name, tuple(POSTHOC))])
    return POSTHOC[name].fit(logits, targets, space, counts=list(train_counts)).offsets


def _tuned(logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]) -> Tensor:
    # From the prior's offsets, so that a class that validation lacks has a sensible one.
    found = tuned_offsets(logits, targets, space, start=prior_offsets(list(train_counts)))
    if max(space.sizes) == 2:  # the best of all, wherever it was begun
        return found
    plain = tuned_offsets(logits, targets, space)
    for a, (first, size) in enumerate(zip(space.offsets, space.sizes, strict=True)):
        own = slice(first, first + size)
        # A climb from the prior may end lower than one from nothing.
        before, after = (_label_balanced(logits[:, own] + offset[own], targets[:, a]) for offset in (found, plain))
        if after > before:
            found[own] = plain[own]
    return found


def _label_balanced(logits: Tensor, targets: Tensor) -> float:
    return float(class_balanced_accuracy(logits.double(), targets))


def _held_out(logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]) -> Tensor:
    """Return logits with tuned offsets, each sample's tuned on the other folds alone.

    Tuned and scored on the same samples the rule would always win.
    """
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))
    adjusted = logits.clone()
    for fold in range(min(FOLDS, len(logits))):
        inside = order % FOLDS == fold
        others = ~inside if bool((~inside).any()) else inside
        adjusted[inside] += _tuned(logits[others], targets[others], space, train_counts)
    return adjusted


def _balanced(logits: Tensor, targets: Tensor, space: LabelSpace) -> float:
    return float(class_balanced_accuracy(logits, targets, space))
