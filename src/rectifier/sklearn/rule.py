"""The decision rule of an estimator. It follows from the method, so that no prior is corrected for twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.rules import LogitAdjustment, ThresholdAdjustment, prior_offsets, tuned_offsets
from rectifier.labels.space import LabelSpace
from rectifier.methods import METHODS, find_method

RULES = ("auto", "argmax", "prior", "tuned")
_POSTHOC: dict[str, type[ThresholdAdjustment] | type[LogitAdjustment]] = {
    "threshold-adjustment": ThresholdAdjustment,
    "logit-adjustment": LogitAdjustment,
}
# Losses and mixings that prefer rare classes. Class weights, samplers and retrained classifiers always do.
_PREFER_RARE = {"asymmetric", "balanced-softmax", "ldam", "ldam-drw", "logit-adjustment", "remix"}


@dataclass(frozen=True, eq=False)
class Rule:
    """A decision rule: its name, and the numbers ``(K,)`` that it adds to the logits."""

    name: str
    offsets: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """Return adjusted logits, float64 ``(N, K)``."""
        return logits.double() + self.offsets.double()


def corrects_prior(method: str) -> bool:
    """Tell whether training with a method already corrects for the frequencies of the classes.

    >>> corrects_prior("crl"), corrects_prior("crl+balanced-softmax"), corrects_prior("over-sampling")
    (False, True, True)
    """
    parts = {name: METHODS[name] for name in method.split("+")}
    balanced = any(part.weights or part.sampler or part.afterwards for part in parts.values())
    return balanced or not _PREFER_RARE.isdisjoint(parts)


def rule_of(method: str, asked: str) -> str:
    """Return the name of the rule to use: the one asked for, or for ``"auto"`` the method's own.

    >>> rule_of("ce", "auto"), rule_of("balanced-softmax", "auto"), rule_of("threshold-adjustment", "auto")
    ('prior', 'argmax', 'threshold-adjustment')
    """
    own = find_method(method).posthoc
    if asked == "auto":
        return own or ("argmax" if corrects_prior(method) else "prior")
    if own is not None:
        check.fail("decision_rule", f"'auto' for method {method!r}, which has its own rule", repr(asked))
    if asked == "prior" and corrects_prior(method):
        wanted = f"'auto', 'argmax' or 'tuned' for method {method!r}, which corrects for the prior in training"
        check.fail("decision_rule", wanted, "'prior', a second correction")
    return asked


def needs_validation(rule: str) -> bool:
    return rule not in ("argmax", "prior")


def fit_rule(
    rule: str, method: str, counts: Sequence[Tensor], space: LabelSpace, logits: Tensor, targets: Tensor
) -> Rule:
    """Fit a rule. ``counts`` are those of training, ``logits`` and ``targets`` those of validation."""
    if rule == "argmax":
        return Rule(rule, torch.zeros(space.columns))
    if rule == "prior":
        return Rule(rule, prior_offsets(list(counts)))
    if rule == "tuned":
        start = None if corrects_prior(method) else prior_offsets(list(counts))
        return Rule(rule, tuned_offsets(logits, targets, space, start))
    return Rule(rule, _POSTHOC[rule].fit(logits, targets, space, counts=list(counts)).offsets)
