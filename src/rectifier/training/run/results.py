"""Score what a run predicted: fit rules on validation, then score validation and test under each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rectifier.evaluation.rows import PREFERRED_RULE, flatten, nest
from rectifier.evaluation.scoring import fit_rules, score_rules
from rectifier.methods import find_method
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions

if TYPE_CHECKING:
    from pandas import DataFrame


def rows(run: Run | str | Path) -> DataFrame:
    """Return the metrics of a finished run as one table: part, rule, label, class, metric, value."""
    return flatten(Run.open(run).metrics)


def evaluate(run: Run | str | Path, posthoc: str | None = None) -> DataFrame:
    """Score a run again from its saved predictions, without its network: part, rule, label, class, metric, value.

    ``posthoc`` adds one more rule. The folder does not change. ``rows`` reads the metrics that are saved there.
    """
    opened = Run.open(run)
    found = {part: opened.predictions(part) for part in ("validation", "test")}
    extra = [] if posthoc is None else [posthoc]
    return flatten(score_predictions(found, opened.train_counts, opened.config.method, extra)[1])


def score_predictions(
    found: Mapping[str, Predictions], train_counts: Sequence[Tensor], method: str, extra: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of ``rules.json`` and ``metrics.json`` for predictions of ``validation`` and ``test``."""
    from pandas import concat

    fitted, space = found["validation"], found["validation"].space
    posthoc = find_method(method).posthoc
    rules = fit_rules(fitted.logits, fitted.targets, space, train_counts, posthoc, extra=extra)
    scored = [score_rules(part, p.logits, p.targets, space, train_counts, rules) for part, p in found.items()]
    return rules, {**nest(concat(scored, ignore_index=True)), PREFERRED_RULE: rules["preferred"]}
