"""Score what a run predicted: fit rules on validation, then score validation and test under each rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rectifier.evaluation.rows import PREFERRED_RULE, flatten, nest
from rectifier.evaluation.scoring import fit_rules, score_rules, unused_prior, with_posthoc
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

    The rules are those of the run; ``posthoc`` adds one more. The folder does not change. ``rows`` reads the metrics
    that are saved there.
    """
    opened = Run.open(run)
    found = {part: opened.predictions(part) for part in ("validation", "test")}
    counts, fitted, rules = opened.train_counts, found["validation"], opened.rules
    if posthoc is not None:
        rules = with_posthoc(rules, posthoc, fitted.logits, fitted.targets, fitted.space, counts)
    return flatten(_metrics(found, counts, rules))


def prior_note(run: Run) -> str | None:
    """Return a sentence that says why the rule prior adds nothing to the logits of this run, or None where it does."""
    method = run.config.method
    moved = find_method(method).moves_threshold and not any(run.rules["offsets"]["prior"])
    return unused_prior([method]) if moved else None


def score_predictions(
    found: Mapping[str, Predictions], train_counts: Sequence[Tensor], method: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the content of ``rules.json`` and ``metrics.json`` for predictions of ``validation`` and ``test``."""
    fitted, own = found["validation"], find_method(method)
    given = fitted.logits, fitted.targets, fitted.space, train_counts
    rules = fit_rules(*given, own.posthoc, moves_threshold=own.moves_threshold)
    return rules, _metrics(found, train_counts, rules)


def _metrics(found: Mapping[str, Predictions], train_counts: Sequence[Tensor], rules: dict[str, Any]) -> dict[str, Any]:
    """Return the content of ``metrics.json`` under fitted rules."""
    from pandas import concat

    scored = [score_rules(part, p.logits, p.targets, p.space, train_counts, rules) for part, p in found.items()]
    return {**nest(concat(scored, ignore_index=True)), PREFERRED_RULE: rules["preferred"]}
