"""Scores as one long table, and as the nested dictionaries of ``metrics.json``.

A row is one number: ``part`` (validation or test), ``rule``, ``label``, ``class``, ``metric`` and ``value``. Metrics
over all labels have neither ``label`` nor ``class`` (None). Metrics of a group of labels have its name as ``label``.
A value that is not defined is NaN. One row without a part, of the metric ``preferred_rule``, names the rule that
validation prefers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rectifier.evaluation.metrics.catalogue import METRICS

if TYPE_CHECKING:  # the command line starts without pandas
    from pandas import DataFrame

COLUMNS = ("part", "rule", "label", "class", "metric", "value")
PREFERRED_RULE = "preferred_rule"
_Cells = tuple[str | None, str | None, str | None, str | None, str, float | None]


def as_rows(cells: Iterable[_Cells]) -> DataFrame:
    """Return a table of tuples, one for each row."""
    from pandas import DataFrame

    # Names stay Python strings: file names may hold bytes that are no Unicode, which Arrow's strings refuse.
    return DataFrame(list(cells), columns=list(COLUMNS), dtype=object).astype({"value": "float64"})


def preferred_rule(rows: DataFrame) -> str | None:
    """Return the rule that validation prefers, or None if the table does not say."""
    found = rows.loc[rows["metric"] == PREFERRED_RULE, "rule"]
    return str(found.iloc[0]) if len(found) else None


def flatten(metrics: Mapping[str, Any]) -> DataFrame:
    """Return the rows of a ``metrics.json``. ``nest`` is the inverse.

    >>> scores = {"accuracy": 0.5, "labels": {"kind": {"accuracy": 0.5, "sensitivity": {"cat": 1.0, "dog": 0.0}}}}
    >>> rows = flatten({"test": {**scores, "rules": {"argmax": scores}}, "preferred_rule": "argmax"})
    >>> rows.loc[rows["metric"] == "sensitivity", ["class", "value"]].values.tolist()
    [['cat', 1.0], ['dog', 0.0]]
    """
    return as_rows(_cells(metrics))


def _cells(metrics: Mapping[str, Any]) -> Iterator[_Cells]:
    for part, found in metrics.items():
        if part == PREFERRED_RULE:
            yield None, found, None, None, PREFERRED_RULE, 1.0
            continue
        for rule, scores in ((found or {}).get("rules") or {}).items():
            for label, own in ((None, scores), *scores.get("labels", {}).items()):
                for metric, value in own.items():
                    if not isinstance(value, Mapping):
                        yield part, rule, label, None, metric, value
                    elif label is not None:
                        yield from ((part, rule, label, name, metric, one) for name, one in value.items())
                    elif metric != "labels":
                        yield from ((part, rule, group, None, metric, one) for group, one in value.items())


def nest(rows: DataFrame) -> dict[str, Any]:
    """Return the content of ``metrics.json``: for each part the scores of ``argmax``, and ``rules`` with those of all.

    Keys come in the order of the rows. A value that is not defined becomes None.
    """
    parts: dict[str, dict[str, Any]] = {}
    for part, rule, label, name, metric, value in rows.itertuples(index=False, name=None):
        if part is None:
            continue
        scores = parts.setdefault(part, {}).setdefault(rule, {})
        known = METRICS.get(metric)
        if label is not None and known is not None and "group" in known.levels:
            scores, metric = scores.setdefault(metric, {}), label
        elif label is not None:
            scores = scores.setdefault("labels", {}).setdefault(label, {})
        if name is not None:
            scores, metric = scores.setdefault(metric, {}), name
        whole = known is not None and known.unit == "classes"
        scores[metric] = None if value != value else int(value) if whole else value  # NaN differs from itself
    found = {part: {**rules.get("argmax", {}), "rules": rules} for part, rules in parts.items()}
    preferred = preferred_rule(rows)
    return found if preferred is None else {**found, PREFERRED_RULE: preferred}
