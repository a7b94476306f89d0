"""A comparison of runs as files: CSV for machines, Markdown and LaTeX for people; and its numbers as text."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rectifier._base.files import replacing
from rectifier.evaluation.metrics.catalogue import COMPARED_METRICS, METRICS
from rectifier.evaluation.scoring import COMPARED
from rectifier.report.comparison.compare import BALANCED, ComparisonResult
from rectifier.report.comparison.statistics import Bin, Difference, Estimate, Result
from rectifier.report.profile.counts import label_ratio, rarest, ratio_text

HALVES = ("least imbalanced half", "most imbalanced half")


def percent(estimate: Estimate | Mapping[str, Any], *, signed: bool = False, digits: int = 1) -> str:
    """Write a fraction with its interval in percent.

    >>> percent({"mean": 0.4213, "half_width": 0.011}), percent({"mean": 0.0213, "half_width": None}, signed=True)
    ('42.1 ± 1.1', '+2.1')
    >>> percent({"mean": None, "half_width": None})
    '-'
    """
    mean, half_width = estimate["mean"], estimate["half_width"]
    if mean is None:
        return "-"
    number = f"{round(100 * mean, digits) + 0.0:{'+' if signed else ''}.{digits}f}"  # adding 0 turns -0.0 into 0.0
    return number if half_width is None else f"{number} ± {100 * half_width:.{digits}f}"


def verdict(difference: Difference | Mapping[str, Any], metric: str = BALANCED) -> str:
    """Say in plain words what a paired difference to the baseline shows.

    >>> verdict({"mean": 0.02, "half_width": 0.03, "excludes_zero": False, "seeds": [0, 1]})
    'no evidence of a difference'
    """
    mean, half_width = difference["mean"], difference["half_width"]
    if mean is None:
        return "no common seed has a value"
    if half_width is None:
        return "one seed, no interval"
    if not difference["excludes_zero"]:
        return "the same in all seeds" if abs(mean) > half_width else "no evidence of a difference"
    return "better" if (mean > 0) == METRICS[metric].higher_is_better else "worse"


def range_text(part: Bin, write: Callable[[float | None], str] = ratio_text) -> str:
    """Write the range of a bin: imbalance ratios of labels, or with ``count_text`` training counts of classes."""
    low, high = write(part["low"]), write(part["high"])
    return low if low == high else f"{low} to {high}"


def count_text(count: float | None) -> str:
    """Write a training count; a mean over several splits may have a fraction."""
    return f"{count or 0:,.{1 if count and count % 1 else 0}f}"


def summary(comparison: ComparisonResult) -> str:
    """Say in one line what was compared."""
    seeds, samples = comparison.seeds, comparison.samples.get("test")
    listed = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    tested = f", {samples:,} test samples" if samples is not None else ""
    redrawn = ", each with its own split" if comparison.resplit and len(seeds) > 1 else ""
    return f"{comparison.data}{tested}, {listed}{redrawn}; baseline {comparison.baseline}"


def write_tables(comparison: ComparisonResult, folder: str | Path) -> list[Path]:
    """Write comparison.csv, labels.csv, comparison.md and comparison.tex into the folder and return their paths.

    The CSV files hold fractions, one value a row. The other two hold percent, with the half-width of the 95 % interval.
    """
    folder = Path(folder)
    tables = list(_text_tables(comparison))
    contents = {
        "comparison.csv": _csv(_metric_rows(comparison)),
        "labels.csv": _csv(_label_rows(comparison)),
        "comparison.md": "\n".join(_markdown(comparison, tables)) + "\n",
        "comparison.tex": "% needs \\usepackage{booktabs}\n\n" + "\n".join(_latex(*table) for table in tables),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        with replacing(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in contents]


# CSV.

Row = tuple[object, ...]


def _csv(rows: Iterable[Row]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _metric_rows(comparison: ComparisonResult) -> Iterator[Row]:
    yield "rule", "part", "metric", "quantity", "group", "seed", "value", "half_width", "excludes_zero"
    for rule in COMPARED:
        for part, metric in (*(("test", metric) for metric in COMPARED_METRICS), ("validation", BALANCED)):
            result = comparison.overall(rule, metric, part)
            for quantity, members in (("value", result["groups"]), ("difference", result["differences"])):
                for group, found in members.items():
                    facts = (rule, part, metric, quantity, group)
                    yield from ((*facts, seed, value, None, None) for seed, value in found["values"].items())
                    yield (*facts, "mean", found["mean"], found["half_width"], found.get("excludes_zero"))


def _label_rows(comparison: ComparisonResult) -> Iterator[Row]:
    measures = ("ratio", "ratio_nonempty", "omega")
    means = ("value", "half_width", "difference", "difference_half_width", "seeds", "excludes_zero")
    yield ("rule", "label", *measures, "metric", "class", "train_count", "is_rarest", "group", *means)
    for rule in COMPARED:
        for label in comparison.labels:
            name = label["name"]
            facts = (rule, name, *(label[measure] for measure in measures))
            for row in _mean_rows(comparison.label(rule, name)):
                yield (*facts, BALANCED, None, None, None, *row)
            for member, count in label["counts"].items():
                for row in _mean_rows(comparison.recall(rule, name, member)):
                    yield (*facts, "sensitivity", member, count, member == label["rarest"], *row)


def _mean_rows(result: Result) -> Iterator[Row]:
    for group, estimate in result["groups"].items():
        found: Mapping[str, Any] = result["differences"].get(group) or {}
        seeds = " ".join(map(str, found.get("seeds", [])))
        gain = (found.get("mean"), found.get("half_width"), seeds, found.get("excludes_zero"))
        yield (group, estimate["mean"], estimate["half_width"], *gain)


# Tables that the terminal shares with Markdown and LaTeX.

Rows = list[tuple[Sequence[str], Sequence[Estimate]]]  # the texts of each row, then its estimates or differences
Table = tuple[str, Sequence[str], Rows]  # with caption and heads


def cell_text(found: Estimate) -> str:
    """Write an estimate in percent, or a difference in points with its sign."""
    return percent(found, signed="excludes_zero" in found)


def metric_table(comparison: ComparisonResult, metric: str) -> Table:
    """Return a metric of every group under every rule, then the differences of the groups."""
    results = [comparison.overall(rule, metric) for rule in COMPARED]
    rows: Rows = [([group.name], [found["groups"][group.name] for found in results]) for group in comparison.groups]
    for name in comparison.others:
        rows.append(([f"{name}, difference"], [found["differences"][name] for found in results]))
    return METRICS[metric].title, ["Group", *COMPARED], rows


def reference_rows(comparison: ComparisonResult) -> Rows:
    """Return the rows of a constant answer and of HOG, which no rule decides: their one value stands under argmax."""
    nothing: Estimate = {"values": {}, "mean": None, "half_width": None}
    return [([name], [found, *[nothing] * (len(COMPARED) - 1)]) for name, found in comparison.reference.items()]


def halves_table(comparison: ComparisonResult, rule: str) -> Table:
    """Return the gains of every group in both halves of the labels; no row if there is one label or group."""
    halves = dict(zip(HALVES, comparison.halves(rule), strict=False))
    heads = [f"{words} ({len(half['members'])})\n{range_text(half)}" for words, half in halves.items()]
    rows: Rows = [([name], [half["differences"][name] for half in halves.values()]) for name in comparison.others]
    caption = f"Mean gain over {comparison.baseline} in class-balanced accuracy (points), rule {rule}"
    return caption, ["Group", *heads], rows if halves else []


def label_table(comparison: ComparisonResult, rule: str) -> Table:
    """Return the class-balanced accuracy of every label, the most imbalanced first."""
    labels = comparison.labels
    results = [((label["name"], label_ratio(label)), comparison.label(rule, label["name"])) for label in labels]
    return _gain_table("Class-balanced accuracy", comparison, rule, ["Label", "Imbalance"], results)


def rarest_table(comparison: ComparisonResult, rule: str) -> Table:
    """Return the recall of the rarest class of every label."""
    results = [
        ((label["name"], label["rarest"], count_text(label["counts"][label["rarest"]])), result)
        for label in comparison.labels
        if (result := comparison.rarest(rule, label))
    ]
    heads = ["Label", "Rarest class", "Samples"]
    return _gain_table("Rarest class of each label: recall", comparison, rule, heads, results)


def class_table(comparison: ComparisonResult, rule: str) -> Table:
    """Return the recall of every class of the first label, the rarest first."""
    label, classes = comparison.labels[0]["name"], rarest(comparison.labels[0]["counts"])
    results = [((name, count_text(n)), comparison.recall(rule, label, name)) for name, n in classes]
    return _gain_table("Rarest classes: recall", comparison, rule, ["Class", "Samples"], results)


_Results = Iterable[tuple[Sequence[str], Result]]


def _gain_table(what: str, comparison: ComparisonResult, rule: str, heads: list[str], results: _Results) -> Table:
    base = comparison.baseline
    rows: Rows = [(facts, [found["groups"][base], *found["differences"].values()]) for facts, found in results]
    caption = f"{what} (%) of {base} and gains over it (points), rule {rule}"
    return caption, [*heads, base, *comparison.others], rows


# Markdown and LaTeX: the same tables, each a caption and rows of text, the first row the heads.

_TextTable = tuple[str, list[list[str]]]


def _text_tables(comparison: ComparisonResult) -> Iterator[_TextTable]:
    tables: list[Table] = []
    for metric in COMPARED_METRICS:
        caption, heads, rows = metric_table(comparison, metric)
        rows += reference_rows(comparison) if metric == BALANCED else []
        if any(cell["mean"] is not None for _, cells in rows for cell in cells):
            tables.append((f"{caption} under each decision rule", heads, rows))
    tables += [table for rule in COMPARED if (table := halves_table(comparison, rule))[2]]
    tables += [make(comparison, rule) for rule in COMPARED for make in (label_table, rarest_table)]
    for caption, heads, rows in tables:
        yield caption, [list(heads), *([*facts, *map(cell_text, cells)] for facts, cells in rows)]


_NOTE = "Mean ± half-width of the 95 % Student interval over seeds; differences to the baseline are paired by seed."


def _markdown(comparison: ComparisonResult, tables: Iterable[_TextTable]) -> Iterator[str]:
    from tabulate import tabulate  # type: ignore[import-untyped]

    notes = [_NOTE] if comparison.note is None else [_NOTE, comparison.note.translate(_MARKDOWN)]
    yield from (f"# {summary(comparison).translate(_MARKDOWN)}", "", " ".join(notes))
    for caption, rows in tables:
        head, *body = [[cell.translate(_MARKDOWN) for cell in row] for row in rows]
        aligned = ["left", *["right"] * (len(head) - 1)] if body else None
        yield from ("", f"## {caption}", "")
        yield tabulate(body, head, tablefmt="pipe", disable_numparse=True, colalign=aligned)
    if comparison.others:
        yield from ("", "## In words", "")
    for name in comparison.others:
        for rule in COMPARED:
            found = comparison.overall(rule, BALANCED)["differences"][name]
            shown = percent(found, signed=True)
            yield f"- {name.translate(_MARKDOWN)}, {rule}: {shown} class-balanced accuracy, {verdict(found)}"


def _latex(caption: str, rows: Sequence[Sequence[str]]) -> str:
    heads, *body = [" & ".join([row[0].translate(_LATEX), *map(_latex_number, row[1:])]) + r" \\" for row in rows]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption.translate(_LATEX)}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
        *(r"\toprule", heads, r"\midrule", *body, r"\bottomrule"),
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_MARKDOWN = str.maketrans({**{sign: f"\\{sign}" for sign in "\\|*_`[]<>#$"}, "\n": " "})
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "\n": " ",
    }
)
_NUMBER = re.compile(r"[+-]?[\d.]+( ± [\d.]+)?")


def _latex_number(cell: str) -> str:
    if cell == "-":
        return "--"
    # Mathematics has a true minus sign; a name or a ratio is text.
    return f"${cell.replace('±', chr(92) + 'pm')}$" if _NUMBER.fullmatch(cell) else cell.translate(_LATEX)
