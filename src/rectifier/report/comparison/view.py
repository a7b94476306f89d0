"""A comparison of runs in a terminal: conclusion, means, paired differences, rarest classes, gains per label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rectifier.evaluation.metrics.catalogue import METRICS
from rectifier.evaluation.scoring import COMPARED, PREFERRED
from rectifier.report.comparison import tables
from rectifier.report.comparison.compare import BALANCED, ComparisonResult
from rectifier.report.comparison.statistics import Estimate
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
    sections = [[*_header(comparison)]]
    for metric in _SHOWN:
        caption, heads, rows = tables.metric_table(comparison, metric)
        own = rows[: len(comparison.groups)] + (tables.reference_rows(comparison) if metric == BALANCED else [])
        sections.append(_grid(caption, heads, own))
    if comparison.others:
        sections += [_differences(comparison, metric) for metric in _DIFFERENCES]
    else:
        sections.append([Text("There is only one group: nothing to compare it with.")])
    halves = tables.halves_table(comparison, rule)
    sections += [_grid(*halves)] if halves[2] else []
    single = len(comparison.labels) == 1
    for table in (tables.class_table,) if single else (tables.rarest_table, tables.label_table):
        sections += _gains(table(comparison, rule), len(comparison.groups), limit, width)
    blocks = [block for section in sections for block in (*section, "")][:-1]
    return Group(*blocks, *_notes(comparison, limit))


def _header(comparison: ComparisonResult) -> Iterator[RenderableType]:
    """Yield what the differences under the preferred rule show, the groups of one verdict in one line."""
    yield Text(tables.summary(comparison), "bold")
    if comparison.others:
        yield Text(f"Compared with {comparison.baseline} (class-balanced accuracy, rule that validation prefers):")
    by_verdict: dict[str, list[str]] = {}
    for name, found in comparison.overall(PREFERRED, BALANCED)["differences"].items():
        by_verdict.setdefault(tables.verdict(found), []).append(name)
    for words, names in by_verdict.items():
        yield Text(f"- {words}: {', '.join(names)}")
    yield Text("Tables show the mean ± half-width of the 95 % interval over seeds.", "dim")


def _grid(caption: str, heads: Sequence[str], rows: tables.Rows) -> list[RenderableType]:
    grid = number_table(*heads)
    for facts, cells in rows:
        grid.add_row(*map(Text, facts), *map(_cell, cells))
    return [Text(caption, "bold"), grid]


def _cell(found: Estimate) -> Text:
    """Write an estimate or difference; a difference is bold only if its interval excludes 0."""
    return Text(tables.cell_text(found), "bold" if found.get("excludes_zero") else "")


def _differences(comparison: ComparisonResult, metric: str) -> list[RenderableType]:
    """Return the paired differences to the baseline, a row for each group and rule."""
    words = METRICS[metric].words
    caption = f"{words[:1].upper()}{words[1:]}: difference to {comparison.baseline} (points), paired by seed"
    table = number_table("Group", "Rule", "Difference", "Seeds")
    table.add_column("Verdict")
    results = {rule: comparison.overall(rule, metric)["differences"] for rule in COMPARED}
    for name in comparison.others:
        for rule, differences in results.items():
            found = differences[name]
            cells = (rule, _cell(found), str(len(found["seeds"])), Text(tables.verdict(found, metric)))
            table.add_row(Text(name if rule == COMPARED[0] else ""), *cells)
    return [Text(caption, "bold"), table]


def _gains(table: tables.Table, groups: int, limit: int | None, width: int) -> Iterator[list[RenderableType]]:
    """Yield a table of gains, or several if the gains of all groups do not fit into one."""
    caption, heads, every = table
    rows = [([short(fact, _NAME) for fact in facts], cells) for facts, cells in every[:limit]]
    facts = len(heads) - groups
    taken = sum(2 + max(map(len, column)) for column in zip(heads[:facts], *(own for own, _ in rows), strict=True))
    fit = max((width - taken) // _GAIN, 1)
    for start in range(0, groups, fit):
        grid = number_table(*heads[:facts])
        for name in heads[facts:][start : start + fit]:
            grid.add_column(Text(name), justify="right", max_width=_GAIN - 2, overflow="fold")
        for own, cells in rows:
            grid.add_row(*map(Text, own), *map(_cell, cells[start : start + fit]))
        yield [grid] if start else [Text(caption, "bold"), grid]


def _notes(comparison: ComparisonResult, limit: int | None) -> Iterator[RenderableType]:
    labels = comparison.labels[:limit]
    single = len(comparison.labels) == 1
    noun, total = ("classes", len(labels[0]["counts"])) if single else ("labels", len(comparison.labels))
    shown = min(total, limit or total)
    notes = [] if comparison.note is None else [comparison.note]
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
