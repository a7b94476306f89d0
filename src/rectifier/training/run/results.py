"""Score what was predicted: rules fitted on validation, every metric of validation and test under each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rectifier.evaluation.scoring import fit_rules, score_rules
from rectifier.methods import find_method
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions


def score_predictions(
    found: Mapping[str, Predictions], train_counts: Sequence[Tensor], method: str, extra: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what goes into ``rules.json`` and ``metrics.json`` for predictions of ``validation`` and ``test``."""
    fitted, space = found["validation"], found["validation"].space
    posthoc = find_method(method).posthoc
    rules = fit_rules(fitted.logits, fitted.targets, space, train_counts, posthoc, extra=extra)
    scored = {part: score_rules(p.logits, p.targets, space, train_counts, rules) for part, p in found.items()}
    return rules, {**scored, "preferred_rule": rules["preferred"]}


def evaluate(run: Run | str | Path, posthoc: str | None = None) -> dict[str, Any]:
    """Score a run again from its saved predictions, without its network; with ``posthoc`` under one more rule.

    Returns the content of ``metrics.json``; the folder is left as it is.
    """
    opened = Run.open(run)
    found = {part: opened.predictions(part) for part in ("validation", "test")}
    extra = [] if posthoc is None else [posthoc]
    return score_predictions(found, opened.train_counts, opened.config.method, extra)[1]
