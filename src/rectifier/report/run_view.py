"""The metrics of a run in a terminal: every decision rule side by side, then label by label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rectifier.report.comparison.tables import METRIC_WORDS
from rectifier.report.layout import number_table

LABELS = 12
"""So many labels are listed, those with the lowest class-balanced accuracy, unless every one is asked for."""

_METRICS = {name: words for name, words in METRIC_WORDS.items() if name != "rarest"}


def view(metrics: Mapping[str, Any], part: str = "test", *, every: bool = False) -> RenderableType:
    """Return the metrics of one part, as ``metrics.json`` holds them, as something that rich prints.

    ``every`` lists all labels, or all classes where there is one label.
    """
    rules = metrics[part]["rules"]
    head = Text(f"{part.capitalize()}, percent, under each decision rule", "bold")
    preferred = f"Validation prefers {metrics['preferred_rule']}: rectifier predict uses it unless told otherwise."
    return Group(head, _overall(rules), "", *_details(rules, every), Text(f"\n{preferred}", "dim"))


def _overall(rules: Mapping[str, Any]) -> Table:
    table = number_table("", *rules)
    for metric, words in _METRICS.items():
        values = [found.get(metric) for found in rules.values()]
        if any(value is not None for value in values):
            table.add_row(words, *map(_percent, values))
    absent = next(iter(rules.values()))["absent"]
    if absent:
        table.add_row("classes without a sample, left out", *[str(absent)] * len(rules))
    return table


def _details(rules: Mapping[str, Any], every: bool) -> Iterator[RenderableType]:
    """Yield a row for each label, or for each class of a single label, lowest first."""
    labels = next(iter(rules.values()))["labels"]
    if len(labels) == 1:
        (name,) = labels
        noun, rows = f"Sensitivity of each class of {name}", labels[name]["sensitivity"]
        values = {one: [found["labels"][name]["sensitivity"][one] for found in rules.values()] for one in rows}
    else:
        noun = "Class-balanced accuracy of each label"
        values = {one: [found["labels"][one]["class_balanced_accuracy"] for found in rules.values()] for one in labels}
    # What has no sample has no value, and comes last.
    ordered = sorted(values, key=lambda one: (values[one][0] is None, values[one][0] or 0.0))
    shown = ordered if every else ordered[:LABELS]
    table = number_table(noun, *rules)
    for one in shown:
        table.add_row(Text(one), *map(_percent, values[one]))
    yield table
    if len(shown) < len(ordered):
        yield Text(f"{len(ordered) - len(shown)} more, which are higher, with --all", "dim")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
