"""Fit decision rules on validation and score saved predictions under them. No rule ever sees test.

Every rule adds one number per class to the logits before the argmax:

- ``argmax``: nothing, or what the method itself adds after training;
- ``prior``: take the log prior of the training classes off;
- ``tuned``: maximise class-balanced accuracy on validation, label by label and class by class.

Calibration is separate from the rules: one temperature per label turns the plain logits into probabilities. It changes
no decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.evaluation.metrics.score import score
from rectifier.evaluation.rows import as_rows
from rectifier.evaluation.rules import LogitAdjustment, ThresholdAdjustment, prior_offsets
from rectifier.evaluation.rules.calibration import TemperatureScaling
from rectifier.evaluation.rules.tuning import tuned_offsets
from rectifier.labels.space import LabelSpace

if TYPE_CHECKING:
    from pandas import DataFrame

RULES = ("argmax", "prior", "tuned")
PREFERRED = "preferred"
"""Stands for the rule with the best validation score, chosen for each run."""
COMPARED = (*RULES, PREFERRED)
POSTHOC: dict[str, type[ThresholdAdjustment] | type[LogitAdjustment]] = {
    "threshold-adjustment": ThresholdAdjustment,
    "logit-adjustment": LogitAdjustment,
}
FOLDS = 5


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
    rules of their own. ``validation`` holds the class-balanced accuracy of each rule; for ``tuned`` it is
    cross-validated (5 folds). ``preferred`` is the best of the three rules; the simpler rule wins a tie.
    ``calibration`` is a ``TemperatureScaling`` of the plain logits, for all rules.

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
    adjusted = {name: logits + offset for name, offset in offsets.items()}
    adjusted["tuned"] = _held_out(logits, targets, space, train_counts)
    scores = {name: float(class_balanced_accuracy(own, targets, space)) for name, own in adjusted.items()}
    return {
        "preferred": max(RULES, key=lambda name: scores[name]),
        "validation": {name: value if isfinite(value) else None for name, value in scores.items()},
        "offsets": {name: offset.tolist() for name, offset in offsets.items()},
        "calibration": TemperatureScaling.fit(logits, targets, space).as_dict(),
    }


def score_rules(
    part: str, logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor], rules: dict[str, Any]
) -> DataFrame:
    """Score the predictions of one part under fitted rules: the rows of every rule (see ``rows``).

    ``nll`` and ``expected_calibration_error`` use the probabilities that the rule's offsets give. With ``calibrated_``
    before their names, they use the calibrated probabilities.
    """
    calibrated = TemperatureScaling.from_dict(rules["calibration"])(logits.double())
    return as_rows(
        (part, rule, *found)
        for rule, offsets in rules["offsets"].items()
        for found in score(logits, targets, space, train_counts, offsets=torch.tensor(offsets), calibrated=calibrated)
    )


def _posthoc_offsets(
    name: str | None, logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]
) -> Tensor:
    if name is None:
        return torch.zeros(space.columns)
    check.raise_all([check.choice("posthoc", name, tuple(POSTHOC))])
    return POSTHOC[name].fit(logits, targets, space, counts=list(train_counts)).offsets


def _tuned(logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]) -> Tensor:
    # Start from the prior's offsets, so that a class without validation samples has a sensible one.
    found = tuned_offsets(logits, targets, space, start=prior_offsets(list(train_counts)))
    if max(space.sizes) == 2:  # exact, wherever it starts
        return found
    plain = tuned_offsets(logits, targets, space)
    for a, (first, size) in enumerate(zip(space.offsets, space.sizes, strict=True)):
        own = slice(first, first + size)
        # A climb from the prior may end lower than one from zeros.
        wide = [(logits[:, own] + offset[own]).double() for offset in (found, plain)]
        before, after = (class_balanced_accuracy(one, targets[:, a]) for one in wide)
        if after > before:
            found[own] = plain[own]
    return found


def _held_out(logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]) -> Tensor:
    """Return logits with tuned offsets; those of a sample are tuned on the other folds only.

    Tuned and scored on the same samples, the rule would always win.
    """
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))
    adjusted = logits.clone()
    for fold in range(min(FOLDS, len(logits))):
        inside = order % FOLDS == fold
        others = ~inside if bool((~inside).any()) else inside
        adjusted[inside] += _tuned(logits[others], targets[others], space, train_counts)
    return adjusted
