"""Fit decision rules on validation and score saved predictions under them. No rule ever sees test.

Every rule adds one number per class to the logits before the argmax:

- ``argmax``: nothing, or what the method itself adds after training;
- ``prior``: take the log prior of the training classes off; nothing where training has already corrected for it;
- ``tuned``: maximise class-balanced accuracy on validation, label by label and class by class.

Calibration is separate from the rules: one temperature per label turns the plain logits into probabilities. It changes
no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.evaluation.metrics.score import score
from rectifier.evaluation.rows import as_rows
from rectifier.evaluation.rules import PriorRule, TemperatureScaling, ThresholdAdjustment, TunedThresholds
from rectifier.evaluation.rules.prior import prior_offsets
from rectifier.evaluation.rules.rule import OffsetRule
from rectifier.evaluation.rules.thresholds import PAPER_STRENGTHS
from rectifier.labels.space import LabelSpace

if TYPE_CHECKING:
    from pandas import DataFrame

RULES = ("argmax", "prior", "tuned")
PREFERRED = "preferred"
"""Stands for the rule with the best validation score, chosen for each run."""
COMPARED = (*RULES, PREFERRED)
POSTHOC: dict[str, Callable[[list[Tensor], LabelSpace], OffsetRule]] = {
    # The paper's baseline has no T = 0, and must stay the paper's.
    "threshold-adjustment": lambda counts, space: ThresholdAdjustment(counts, sizes=space, strengths=PAPER_STRENGTHS),
    "logit-adjustment": lambda counts, space: PriorRule(counts, sizes=space),
}
FOLDS = 5


def fit_rules(
    logits: Tensor,
    targets: Tensor,
    space: LabelSpace,
    train_counts: Sequence[Tensor],
    posthoc: str | None = None,
    *,
    moves_threshold: bool = False,
) -> dict[str, Any]:
    """Fit the rules on validation's logits ``(N, K)`` and targets ``(N, A)``: plain values for JSON.

    ``posthoc`` is the method's own last step and belongs to its ``argmax``. If training already corrects for class
    frequencies (``moves_threshold``), ``prior`` adds nothing and ``tuned`` starts from zeros: a second correction would
    be too much. ``validation`` holds the class-balanced accuracy of each rule; for ``tuned`` it is cross-validated (5
    folds). ``preferred`` is the best of the three rules; the simpler rule wins a tie. ``calibration`` holds the
    arguments of a ``TemperatureScaling`` of the plain logits, for all rules.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> logits, targets = torch.tensor([[3.0, 0.0], [2.0, 1.0], [1.0, 0.5]]), torch.tensor([[0], [1], [0]])
    >>> fit_rules(logits, targets, space, [torch.tensor([20, 10])])["preferred"]
    'argmax'
    """
    counts, nothing = list(train_counts), torch.zeros(space.columns)
    tuned = TunedThresholds(space, class_counts=None if moves_threshold else counts)
    offsets = {
        "argmax": nothing if posthoc is None else _posthoc_offsets(posthoc, logits, targets, space, counts),
        "prior": nothing if moves_threshold else prior_offsets(counts),
        "tuned": _fitted(tuned, logits, targets),
    }
    adjusted = {name: logits + offset for name, offset in offsets.items()}
    adjusted["tuned"] = _held_out(tuned, logits, targets)
    scores = {name: float(class_balanced_accuracy(own, targets, space)) for name, own in adjusted.items()}
    calibration = TemperatureScaling(space)
    calibration.fit_checked(logits, targets)
    return {
        "preferred": max(RULES, key=lambda name: scores[name]),
        "validation": {name: _plain(value) for name, value in scores.items()},
        "offsets": {name: offset.tolist() for name, offset in offsets.items()},
        "calibration": {"temperatures": calibration.temperatures.tolist(), "sizes": list(space.sizes)},
    }


def with_posthoc(
    rules: dict[str, Any],
    name: str,
    logits: Tensor,
    targets: Tensor,
    space: LabelSpace,
    train_counts: Sequence[Tensor],
) -> dict[str, Any]:
    """Return fitted rules and one more: a step of ``POSTHOC``, fitted on the same validation data."""
    offsets = _posthoc_offsets(name, logits, targets, space, train_counts)
    score = _plain(float(class_balanced_accuracy(logits + offsets, targets, space)))
    more = {"validation": score, "offsets": offsets.tolist()}
    return {**rules, **{part: {**rules[part], name: value} for part, value in more.items()}}


def score_rules(
    part: str, logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor], rules: dict[str, Any]
) -> DataFrame:
    """Score the predictions of one part under fitted rules: the rows of every rule (see ``rows``).

    ``nll`` and ``expected_calibration_error`` use the probabilities that the rule's offsets give. With ``calibrated_``
    before their names, they use the calibrated probabilities.
    """
    calibrated = TemperatureScaling(**rules["calibration"])(logits.double())
    return as_rows(
        (part, rule, *found)
        for rule, offsets in rules["offsets"].items()
        for found in score(logits, targets, space, train_counts, offsets=torch.tensor(offsets), calibrated=calibrated)
    )


def unused_prior(methods: Sequence[str]) -> str:
    """Say that the rule ``prior`` adds nothing for some methods, and why.

    >>> unused_prior(["over-sampling"])
    'The rule prior adds nothing for over-sampling: training already corrects for class frequencies.'
    """
    return f"The rule prior adds nothing for {', '.join(methods)}: training already corrects for class frequencies."


def _posthoc_offsets(
    name: str, logits: Tensor, targets: Tensor, space: LabelSpace, train_counts: Sequence[Tensor]
) -> Tensor:
    check.raise_all([check.choice("posthoc", name, tuple(POSTHOC))])
    return _fitted(POSTHOC[name](list(train_counts), space), logits, targets)


def _fitted(rule: OffsetRule, logits: Tensor, targets: Tensor) -> Tensor:
    # Not fit: after a training nothing may fail, not even for a validation part without a single label.
    rule.fit_checked(logits, targets)
    return rule.offsets


def _held_out(tuned: TunedThresholds, logits: Tensor, targets: Tensor) -> Tensor:
    """Return logits with tuned offsets; those of a sample are tuned on the other folds only.

    Tuned and scored on the same samples, the rule would always win.
    """
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))
    adjusted = logits.clone()
    for fold in range(min(FOLDS, len(logits))):
        inside = order % FOLDS == fold
        others = ~inside if bool((~inside).any()) else inside
        adjusted[inside] += _fitted(tuned, logits[others], targets[others])
    return adjusted


def _plain(score: float) -> float | None:
    return score if isfinite(score) else None
