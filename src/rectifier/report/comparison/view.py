"""A comparison of runs in a terminal: means, paired differences with a verdict, rarest classes, gains per label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rectifier.report.comparison.tables import (
    HALF_WORDS,
    METRIC_WORDS,
    Comparison,
    bin_range,
    count_text,
    headline,
    label_ratio,
    others,
    percent,
    short,
    verdict,
)
from rectifier.report.layout import number_table

LABELS = 12
"""So many labels are listed, the most imbalanced, or classes, the rarest, unless every one is asked for."""

_SHOWN = ("class_balanced_accuracy", "accuracy", "rarest")
_DIFFERENCES = ("class_balanced_accuracy", "rarest")  # accuracy says little where classes are rare
_NAME, _GAIN = 20, 16  # the most columns that the name of a label or class and a difference take
_Labels = Sequence[Mapping[str, Any]]


def view(comparison: Comparison, *, width: int = 80, every: bool = False, rule: str = "argmax") -> RenderableType:
    """Return the comparison as something that rich's ``Console.print`` shows on ``width`` columns.

    ``rule`` is the decision rule of what is shown label by label, or class by class where there is one label;
    ``every`` lists all of them.
    """
    limit = None if every else LABELS
    labels = comparison["labels"][:limit]
    sections = [_header(comparison), _means(comparison), _differences(comparison)]
    if others(comparison) and comparison["rules"][rule]["halves"]:
        sections.append(_halves(comparison, rule))
    if len(comparison["labels"]) == 1:
        sections.append(_rare_classes(comparison, rule, limit, width))
    else:
        sections += [_rarest(comparison, labels, rule, width), _gains(comparison, labels, rule, width)]
    blocks = [block for section in sections for block in (*section, "")][:-1]
    return Group(*blocks, *_notes(comparison, labels, limit))


def _header(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(headline(comparison), "bold")
    yield Text("Percent, mean ± half-width of the 95 % interval over seeds.", "dim")


def _means(comparison: Comparison) -> Iterator[RenderableType]:
    rules = comparison["rules"]
    for metric in _SHOWN:
        table = number_table(_title(metric), *rules)
        for group in comparison["groups"]:
            cells = [percent(found["test"][metric]["groups"][group["name"]]) for found in rules.values()]
            table.add_row(Text(group["name"]), *cells)
        yield from (table, "") if metric != _SHOWN[-1] else (table,)


def _title(metric: str) -> str:
    words = METRIC_WORDS[metric]
    return words[:1].upper() + words[1:]


def _differences(comparison: Comparison) -> Iterator[RenderableType]:
    """Yield the paired differences to the baseline, a row for each group and rule."""
    if not others(comparison):
        yield Text("One group alone: nothing to compare it with.")
        return
    for metric in _DIFFERENCES:
        yield Text(f"{_title(metric)}: difference to {comparison['baseline']}, paired by seed", "bold")
        table = number_table("Group", "Rule", "Difference", "Seeds")
        table.add_column("Verdict")
        for name in others(comparison):
            for position, (rule, found) in enumerate(comparison["rules"].items()):
                difference = found["test"][metric]["differences"][name]
                cells = (rule, _gain(difference), str(len(difference["seeds"])), Text(verdict(difference, metric)))
                table.add_row(Text("" if position else name), *cells)
        yield from (table, "") if metric != _DIFFERENCES[-1] else (table,)


def _gain(difference: Mapping[str, Any]) -> Text:
    """Write a difference; it stands out only where its interval excludes 0."""
    return Text(percent(difference, signed=True), "bold" if difference["excludes_zero"] else "")


def _halves(comparison: Comparison, rule: str) -> Iterator[RenderableType]:
    halves = comparison["rules"][rule]["halves"]
    yield Text(f"Mean gain over {comparison['baseline']} in class-balanced accuracy, rule {rule}", "bold")
    heads = [
        f"{words} ({len(half['members'])})\n{bin_range(half)}" for words, half in zip(HALF_WORDS, halves, strict=True)
    ]
    table = number_table("Group", *heads)
    for name in others(comparison):
        table.add_row(Text(name), *(_gain(half["differences"][name]) for half in halves))
    yield table


# One row for each label or class: its name, something to know about it, the baseline's value and the gains over it.


@dataclass(frozen=True)
class _Row:
    name: str
    fact: str
    result: Mapping[str, Any] | None


def _rare_classes(comparison: Comparison, rule: str, limit: int | None, width: int) -> Iterator[RenderableType]:
    """Yield the classes of a single label, rarest first."""
    (label,) = comparison["labels"]
    results = comparison["rules"][rule]["labels"][label["name"]]["classes"]
    classes = sorted(label["counts"].items(), key=lambda item: item[1])[:limit]
    rows = [_Row(name, count_text(n), results[name]) for name, n in classes]
    yield Text(f"Rarest classes: sensitivity of {comparison['baseline']} and gains over it, rule {rule}", "bold")
    yield from _rows(comparison, ("Class", "Samples"), rows, width)


def _rarest(comparison: Comparison, labels: _Labels, rule: str, width: int) -> Iterator[RenderableType]:
    results = comparison["rules"][rule]["labels"]
    rows = [_Row(label["name"], _rarest_text(label), results[label["name"]]["rarest"]) for label in labels]
    yield Text(f"Rarest class of each label: sensitivity of {comparison['baseline']} and gains, rule {rule}", "bold")
    yield from _rows(comparison, ("Label", "Rarest"), rows, width)


def _rarest_text(label: Mapping[str, Any]) -> str:
    name = label["rarest"]
    return "-" if name is None else f"{short(name, 9)} {count_text(label['counts'][name])}"


def _gains(comparison: Comparison, labels: _Labels, rule: str, width: int) -> Iterator[RenderableType]:
    results = comparison["rules"][rule]["labels"]
    rows = [
        _Row(label["name"], label_ratio(label), results[label["name"]]["class_balanced_accuracy"]) for label in labels
    ]
    yield Text(f"Class-balanced accuracy of {comparison['baseline']} and gains, rule {rule}, by imbalance", "bold")
    yield from _rows(comparison, ("Label", "Ratio"), rows, width)


def _rows(comparison: Comparison, heads: tuple[str, str], rows: Sequence[_Row], width: int) -> Iterator[RenderableType]:
    """Yield a table, or several where the gains of all groups do not fit beside each other."""
    taken = min(_NAME, max(len(row.name) for row in rows)) + max(len(heads[1]), *(len(row.fact) for row in rows)) + 4
    fit = max((width - taken) // _GAIN, 1)
    columns = [comparison["baseline"], *others(comparison)]
    for start in range(0, len(columns), fit):
        shown = columns[start : start + fit]
        table = number_table(*heads)
        for name in shown:
            table.add_column(Text(name), justify="right", max_width=_GAIN - 2, overflow="fold")
        for row in rows:
            table.add_row(Text(short(row.name, _NAME)), Text(row.fact), *(_cell(row.result, name) for name in shown))
        yield from ("", table) if start else (table,)


def _cell(result: Mapping[str, Any] | None, name: str) -> Text:
    if result is None:
        return Text("-")
    difference = result["differences"].get(name)
    return _gain(difference) if difference else Text(percent(result["groups"][name]))


def _notes(comparison: Comparison, labels: _Labels, limit: int | None) -> Iterator[RenderableType]:
    single = len(comparison["labels"]) == 1
    noun, total = ("classes", len(labels[0]["counts"])) if single else ("labels", len(comparison["labels"]))
    shown = min(total, limit or total)
    notes = []
    if not single and any(label["ratio"] is None for label in labels):
        notes.append("* without classes that have no training sample and make the ratio infinite.")
    if shown < total:
        notes.append(f"{total - shown} more {noun} with --all, and in labels.csv.")
    intervals = shown * len(others(comparison))
    if intervals >= 20 and len(comparison["seeds"]) > 1:
        chance = f"of {intervals}, about {intervals / 20:.0f} would by chance alone."
        notes.append(f"Bold: the interval excludes 0; {chance}")
    for position, note in enumerate(notes):
        yield Text(note if position else f"\n{note}", "dim")
