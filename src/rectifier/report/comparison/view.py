"""A comparison of runs in a terminal: conclusion, means, paired differences, rarest classes, gains per label."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from rectifier.evaluation.metrics.catalogue import METRICS
from rectifier.evaluation.scoring import COMPARED, PREFERRED
from rectifier.report.comparison.compare import BALANCED, ComparisonResult
from rectifier.report.comparison.statistics import Difference, Result
from rectifier.report.comparison.tables import (
    HALVES,
    GainTable,
    class_table,
    label_table,
    percent,
    range_text,
    rarest_table,
    summary,
    verdict,
)
from rectifier.report.layout import number_table, short

LABELS = 12
"""The view lists this many labels (the most imbalanced) or classes (the rarest), unless all are requested."""

_SHOWN = (BALANCED, "accuracy", "rarest")
_DIFFERENCES = (BALANCED, "rarest")  # accuracy says little if classes are rare
_NAME, _GAIN = 20, 16  # maximal width of the name of a label or class, and of a difference


def view(comparison: ComparisonResult, *, width: int = 80, every: bool = False, rule: str = "argmax") -> RenderableType:
    """Return the comparison as something that rich's ``Console.print`` shows on ``width`` columns.

    ``rule`` is the decision rule of the per-label tables, or per-class tables if there is one label. ``every`` lists
    all labels or classes.
    """
    limit = None if every else LABELS
    sections = [[*_header(comparison)], *(_means(comparison, metric) for metric in _SHOWN)]
    if comparison.others:
        sections += [_differences(comparison, metric) for metric in _DIFFERENCES]
        sections += [_halves(comparison, rule)] if comparison.halves(rule) else []
    else:
        sections += [[Text("There is only one group: nothing to compare it with.")]]
    tables = (class_table,) if len(comparison.labels) == 1 else (rarest_table, label_table)
    for table in tables:
        sections += _gains(comparison, table(comparison, rule), limit, width)
    blocks = [block for section in sections for block in (*section, "")][:-1]
    return Group(*blocks, *_notes(comparison, limit))


def _header(comparison: ComparisonResult) -> Iterator[RenderableType]:
    """Yield what the differences under the preferred rule show, the groups of one verdict in one line."""
    yield Text(summary(comparison), "bold")
    if comparison.others:
        yield Text(f"Compared with {comparison.baseline} (class-balanced accuracy, rule that validation prefers):")
    by_verdict: dict[str, list[str]] = {}
    for name, found in comparison.overall(PREFERRED, BALANCED)["differences"].items():
        by_verdict.setdefault(verdict(found), []).append(name)
    for words, names in by_verdict.items():
        yield Text(f"- {words}: {', '.join(names)}")
    yield Text("Tables show the mean ± half-width of the 95 % interval over seeds.", "dim")


def _means(comparison: ComparisonResult, metric: str) -> list[RenderableType]:
    results = [comparison.overall(rule, metric)["groups"] for rule in COMPARED]
    table = number_table("Group", *COMPARED)
    for group in comparison.groups:
        table.add_row(Text(group.name), *(percent(found[group.name]) for found in results))
    return [Text(METRICS[metric].title, "bold"), table]


def _differences(comparison: ComparisonResult, metric: str) -> list[RenderableType]:
    """Return the paired differences to the baseline, a row for each group and rule."""
    words = METRICS[metric].words
    caption = f"{words[:1].upper()}{words[1:]}: difference to {comparison.baseline} (points), paired by seed"
    table = number_table("Group", "Rule", "Difference", "Seeds")
    table.add_column("Verdict")
    results = {rule: comparison.overall(rule, metric)["differences"] for rule in COMPARED}
    for name in comparison.others:
        for rule, found in results.items():
            cells = (rule, _gain(found[name]), str(len(found[name]["seeds"])), Text(verdict(found[name], metric)))
            table.add_row(Text(name if rule == COMPARED[0] else ""), *cells)
    return [Text(caption, "bold"), table]


def _gain(difference: Difference) -> Text:
    """Write a difference, in bold only if its interval excludes 0."""
    return Text(percent(difference, signed=True), "bold" if difference["excludes_zero"] else "")


def _halves(comparison: ComparisonResult, rule: str) -> list[RenderableType]:
    halves = dict(zip(HALVES, comparison.halves(rule), strict=True))
    heads = [f"{words} ({len(half['members'])})\n{range_text(half)}" for words, half in halves.items()]
    table = number_table("Group", *heads)
    for name in comparison.others:
        table.add_row(Text(name), *(_gain(half["differences"][name]) for half in halves.values()))
    caption = f"Mean gain over {comparison.baseline} in class-balanced accuracy (points), rule {rule}"
    return [Text(caption, "bold"), table]


def _gains(
    comparison: ComparisonResult, table: GainTable, limit: int | None, width: int
) -> Iterator[list[RenderableType]]:
    """Yield a table of gains, or several if the gains of all groups do not fit into one."""
    caption, heads, every = table
    rows = [([short(fact, _NAME) for fact in facts], result) for facts, result in every[:limit]]
    taken = sum(2 + max(map(len, column)) for column in zip(heads, *(facts for facts, _ in rows), strict=True))
    fit = max((width - taken) // _GAIN, 1)
    columns = [comparison.baseline, *comparison.others]
    for start in range(0, len(columns), fit):
        shown = columns[start : start + fit]
        grid = number_table(*heads)
        for name in shown:
            grid.add_column(Text(name), justify="right", max_width=_GAIN - 2, overflow="fold")
        for facts, result in rows:
            grid.add_row(*map(Text, facts), *(_cell(result, name) for name in shown))
        yield [grid] if start else [Text(caption, "bold"), grid]


def _cell(result: Result, name: str) -> Text:
    difference = result["differences"].get(name)
    return _gain(difference) if difference else Text(percent(result["groups"][name]))


def _notes(comparison: ComparisonResult, limit: int | None) -> Iterator[RenderableType]:
    labels = comparison.labels[:limit]
    single = len(comparison.labels) == 1
    noun, total = ("classes", len(labels[0]["counts"])) if single else ("labels", len(comparison.labels))
    shown = min(total, limit or total)
    notes = []
    if not single and any(label["ratio"] is None for label in labels):
        notes.append("* This ratio leaves out classes without a training sample; with them it is infinite.")
    if shown < total:
        notes.append(f"{total - shown} more {noun} with --all, and in labels.csv.")
    intervals = shown * len(comparison.others)
    if intervals >= 20 and len(comparison.seeds) > 1:
        chance = f"Of {intervals} intervals, about {intervals / 20:.0f} would by chance alone."
        notes.append(f"Bold: the interval excludes 0. {chance}")
    if notes:
        yield Text("\n" + "\n".join(notes), "dim")
