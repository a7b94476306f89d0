"""The metrics of a run in a terminal: every decision rule side by side, then label by label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rectifier.evaluation.metrics.catalogue import COMPARED_METRICS, METRICS
from rectifier.evaluation.rows import preferred_rule
from rectifier.report.layout import number_table

if TYPE_CHECKING:
    from pandas import DataFrame

LABELS = 12
"""The view lists this many labels, those with the lowest class-balanced accuracy, unless all are requested."""


def view(
    rows: DataFrame,
    part: str = "test",
    *,
    every: bool = False,
    note: str | None = None,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    kept: str | None = None,
) -> RenderableType:
    """Return the metrics of one part, from the rows of a run, as something that rich prints.

    Args:
        rows: The metrics of the run.
        part: ``"test"`` or ``"validation"``.
        every: List all labels, or all classes if there is one label.
        note: A sentence for the end.
        baselines: For each part, class-balanced accuracy by name of the baseline. They are shown below that of the run.
        kept: A sentence that says which epoch was kept.
    """
    own = rows[rows["part"] == part]
    head = Text(f"Metrics on {part} (%) under each decision rule", "bold")
    chosen = f"Validation prefers the rule {preferred_rule(rows)}. rectifier predict uses it by default."
    end = "\n".join(["", *filter(None, [kept, note]), chosen])
    return Group(head, _overall(own, (baselines or {}).get(part, {})), "", *_details(own, every), Text(end, "dim"))


def _by_rule(rows: DataFrame, key: str) -> DataFrame:
    """Return one column per rule, both rules and rows in the order in which they come."""
    wide = rows.pivot(index=key, columns="rule", values="value")
    return wide.reindex(index=rows[key].unique(), columns=rows["rule"].unique())


def _overall(rows: DataFrame, baselines: Mapping[str, float]) -> Table:
    found = _by_rule(rows[rows["label"].isna()], "metric")
    table = number_table("Metric", *found.columns)
    for metric in COMPARED_METRICS:
        if metric in found.index and found.loc[metric].notna().any():
            direction = "" if METRICS[metric].higher_is_better else " (lower is better)"
            table.add_row(METRICS[metric].words + direction, *map(_percent, found.loc[metric]))
        if metric == "class_balanced_accuracy":
            for name, value in baselines.items():  # a baseline has no rule, so it has one value
                table.add_row(f"  {name}", _percent(value))
    if (absent := found.loc["absent"].astype(int)).any():
        table.add_row(f"{METRICS['absent'].words} (count, left out)", *map(str, absent))
    return table


def _details(rows: DataFrame, every: bool) -> Iterator[RenderableType]:
    """Yield a row for each label, or for each class of a single label, lowest first."""
    labels = rows.loc[rows["metric"] == "class_balanced_accuracy", "label"].dropna().unique()
    if len(labels) == 1:
        noun, title = "Class", f"Recall (%) of each class of {labels[0]}"
        found = _by_rule(rows[rows["metric"] == "sensitivity"], "class")
    else:
        noun, title = "Label", "Class-balanced accuracy (%) of each label"
        found = _by_rule(rows[(rows["metric"] == "class_balanced_accuracy") & rows["label"].notna()], "label")
    # A class or label without samples has no value and comes last.
    ordered = found.sort_values(found.columns[0], na_position="last", kind="stable")
    shown = ordered if every else ordered[:LABELS]
    table = number_table(noun, *found.columns)
    for name, values in shown.iterrows():
        table.add_row(Text(str(name)), *map(_percent, values))
    yield Text(title, "bold")
    yield table
    if len(shown) < len(ordered):
        yield Text(f"{len(ordered) - len(shown)} more, with higher values: --all shows them.", "dim")


def _percent(value: float) -> str:
    return "-" if value != value else f"{100 * value:.1f}"  # NaN differs from itself
