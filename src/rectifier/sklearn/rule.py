"""The decision rule of an estimator. It follows from the method, so that no prior is corrected for twice."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.rules import PriorRule, Rule, TunedThresholds
from rectifier.evaluation.scoring import POSTHOC
from rectifier.labels.space import LabelSpace
from rectifier.methods import find_method

RULES = ("auto", "argmax", "prior", "tuned")


def rule_of(method: str, asked: str) -> str:
    """Return the name of the rule to use: the one asked for, or for ``"auto"`` the method's own.

    >>> rule_of("ce", "auto"), rule_of("balanced-softmax", "auto"), rule_of("posthoc-logit-adjustment", "auto")
    ('prior', 'argmax', 'logit-adjustment')
    """
    own = find_method(method).posthoc
    if asked == "auto":
        return own or ("argmax" if find_method(method).moves_threshold else "prior")
    if own is not None:
        check.fail("decision_rule", f"'auto' for method {method!r}, which has its own rule", repr(asked))
    if asked == "prior" and find_method(method).moves_threshold:
        wanted = f"'auto', 'argmax' or 'tuned' for method {method!r}, which corrects for the prior in training"
        check.fail("decision_rule", wanted, "'prior', a second correction")
    return asked


def needs_validation(rule: str) -> bool:
    return rule not in ("argmax", "prior")


def fit_rule(
    rule: str, method: str, counts: Sequence[Tensor], space: LabelSpace, logits: Tensor, targets: Tensor
) -> Rule:
    """Fit a rule. ``counts`` are those of training, ``logits`` and ``targets`` those of validation."""
    known = list(counts)
    if rule in ("argmax", "prior"):
        return PriorRule(known, tau=float(rule == "prior"), sizes=space)
    if rule == "tuned":
        start = None if find_method(method).moves_threshold else known
        return TunedThresholds(space, class_counts=start).fit(logits, targets)
    return POSTHOC[rule](known, space).fit(logits, targets)
