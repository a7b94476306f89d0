"""A comparison of runs as files: CSV for machines, Markdown and LaTeX for people; and its numbers as text.

The comparison is what ``compare.compare_entries`` returns, or the same read back from JSON.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier._base.files import replacing
from rectifier.report.profile.counts import ratio_text

Comparison = Mapping[str, Any]
Result = Mapping[str, Any]

METRIC_WORDS = {
    "class_balanced_accuracy": "class-balanced accuracy",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "g_mean": "G-mean",
    "mean_average_precision": "mean average precision",
    "top5_class_balanced_accuracy": "top-5 class-balanced accuracy",
    "expected_calibration_error": "expected calibration error",
    "many": "classes of more than 100",
    "medium": "classes of 20 to 100",
    "few": "classes of fewer than 20",
    "rarest": "rarest class of each label",
}
HALF_WORDS = ("least imbalanced half", "most imbalanced half")
_LOWER_IS_BETTER = ("expected_calibration_error", "calibrated_expected_calibration_error", "nll", "calibrated_nll")


def percent(estimate: Mapping[str, Any], *, signed: bool = False, digits: int = 1) -> str:
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


def verdict(difference: Mapping[str, Any], metric: str = "class_balanced_accuracy") -> str:
    """Say in plain words what a paired difference to the baseline shows.

    >>> verdict({"mean": 0.02, "half_width": 0.03, "excludes_zero": False, "seeds": [0, 1]})
    'no evidence of a difference'
    """
    mean = difference["mean"]
    if mean is None:
        return "no common seed has a value"
    if difference["half_width"] is None:
        return "one seed: no interval"
    if not difference["excludes_zero"]:
        return "the same in all seeds" if abs(mean) > difference["half_width"] else "no evidence of a difference"
    return "better" if (mean > 0) != (metric in _LOWER_IS_BETTER) else "worse"


def label_ratio(label: Mapping[str, Any]) -> str:
    """Write a label's imbalance ratio, starred where empty classes, which make it infinite, are left out."""
    return ratio_text(label["ratio_nonempty"]) + "*" * (label["ratio"] is None and label["ratio_nonempty"] is not None)


def bin_range(part: Mapping[str, Any]) -> str:
    """Write the ratios between which the labels of a bin lie."""
    low, high = ratio_text(part["low"]), ratio_text(part["high"])
    return low if low == high else f"{low} to {high}"


def count_text(count: float) -> str:
    """Write a training count, which is no whole number where it is the mean over several splits."""
    return f"{count:,.1f}" if count % 1 else f"{count:,.0f}"


def short(name: str, length: int) -> str:
    """Cut a name in its middle, since names often differ at their end.

    >>> short("Wearing_Necklace", 10)
    'Weari…lace'
    """
    return name if len(name) <= length else f"{name[: length // 2]}…{name[len(name) - (length - 1) // 2 :]}"


def others(comparison: Comparison) -> list[str]:
    """Return the names of all groups but the baseline."""
    return [group["name"] for group in comparison["groups"] if group["name"] != comparison["baseline"]]


def headline(comparison: Comparison) -> str:
    """Say in one line what was compared."""
    seeds, samples = comparison["seeds"], comparison["samples"].get("test")
    listed = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    tested = f", {samples:,} test samples" if samples is not None else ""
    redrawn = ", each with a split of its own" if comparison["resplit"] and len(seeds) > 1 else ""
    return f"{comparison['data']}{tested}, {listed}{redrawn}; baseline {comparison['baseline']}"


def write_tables(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write comparison.csv, labels.csv, comparison.md and comparison.tex into the folder and return their paths.

    The CSV files hold fractions, one value a row; the other two percent, with the half-width of the 95 % interval.
    """
    folder = Path(folder)
    contents = {
        "comparison.csv": _csv(_METRIC_COLUMNS, _metric_rows(comparison)),
        "labels.csv": _csv(_LABEL_COLUMNS, _label_rows(comparison)),
        "comparison.md": "\n".join(_markdown(comparison)) + "\n",
        "comparison.tex": "\n".join(_latex(comparison)) + "\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        with replacing(folder / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8", newline="")
    return [folder / name for name in contents]


# CSV.

_METRIC_COLUMNS = ("rule", "part", "metric", "quantity", "group", "seed", "value", "half_width", "excludes_zero")
_LABEL_COLUMNS = (
    *("rule", "label", "ratio", "ratio_nonempty", "omega", "metric", "class", "train_count", "is_rarest", "group"),
    *("value", "half_width", "difference", "difference_half_width", "seeds", "excludes_zero"),
)
Row = tuple[object, ...]


def _csv(head: Sequence[str], rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def _metric_rows(comparison: Comparison) -> Iterator[Row]:
    for rule, found in comparison["rules"].items():
        for part in ("test", "validation"):
            for metric, result in found[part].items():
                for row in _result_rows(result):
                    yield (rule, part, metric, *row)


def _result_rows(result: Result) -> Iterator[Row]:
    for quantity, members in (("value", result["groups"]), ("difference", result["differences"])):
        for group, estimate in members.items():
            for seed, value in estimate["values"].items():
                yield (quantity, group, seed, value, None, None)
            yield (quantity, group, "mean", estimate["mean"], estimate["half_width"], estimate.get("excludes_zero"))


def _label_rows(comparison: Comparison) -> Iterator[Row]:
    for rule, found in comparison["rules"].items():
        for label in comparison["labels"]:
            result = found["labels"][label["name"]]
            facts = (rule, *(label[key] for key in ("name", "ratio", "ratio_nonempty", "omega")))
            for row in _mean_rows(result["class_balanced_accuracy"]):
                yield (*facts, "class_balanced_accuracy", None, None, None, *row)
            for name, sensitivity in result["classes"].items():
                for row in _mean_rows(sensitivity):
                    yield (*facts, "sensitivity", name, label["counts"][name], name == label["rarest"], *row)


def _mean_rows(result: Result) -> Iterator[Row]:
    for group, estimate in result["groups"].items():
        difference = result["differences"].get(group, {})
        seeds = " ".join(map(str, difference.get("seeds", [])))
        gain = (difference.get("mean"), difference.get("half_width"), seeds, difference.get("excludes_zero"))
        yield (group, estimate["mean"], estimate["half_width"], *gain)


# Markdown and LaTeX: the same tables, each a head and rows of text.

Table = tuple[str, list[str], list[list[str]]]


def _tables(comparison: Comparison) -> Iterator[Table]:
    """Yield caption, head and rows of the tables that both formats share."""
    rules = comparison["rules"]
    for metric in next(iter(rules.values()))["test"]:
        results = {rule: found["test"][metric] for rule, found in rules.items()}
        if any(estimate["mean"] is not None for found in results.values() for estimate in found["groups"].values()):
            yield _metric_table(METRIC_WORDS.get(metric, metric), results)
    for rule, found in rules.items():
        if found["halves"]:
            yield _halves_table(rule, found["halves"], others(comparison))


def _metric_table(words: str, results: Mapping[str, Result]) -> Table:
    first = next(iter(results.values()))
    rows = [[name, *(percent(found["groups"][name]) for found in results.values())] for name in first["groups"]]
    rows += [
        [f"{name}, difference", *(percent(found["differences"][name], signed=True) for found in results.values())]
        for name in first["differences"]
    ]
    return f"{words[:1].upper()}{words[1:]} (%) under each decision rule", ["group", *results], rows


def _halves_table(rule: str, halves: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> Table:
    heads = [f"{words} ({bin_range(half)})" for words, half in zip(HALF_WORDS, halves, strict=True)]
    rows = [[name, *(percent(half["differences"][name], signed=True) for half in halves)] for name in groups]
    return f"Gain over the baseline in class-balanced accuracy (%), rule {rule}", ["group", *heads], rows


_NOTE = "Mean ± half-width of the 95 % Student interval over seeds; differences to the baseline are paired by seed."


def _markdown(comparison: Comparison) -> Iterator[str]:
    yield from (f"# {_escape_markdown(headline(comparison))}", "", _NOTE)
    for caption, head, rows in [*_tables(comparison), *_label_tables(comparison)]:
        yield from ("", f"## {caption}", "")
        yield _markdown_row(head)
        yield "|---|" + "---:|" * (len(head) - 1)
        yield from map(_markdown_row, rows)
    yield from ("", "## In words", "") if others(comparison) else ()
    for name in others(comparison):
        for rule, found in comparison["rules"].items():
            difference = found["test"]["class_balanced_accuracy"]["differences"][name]
            shown = percent(difference, signed=True)
            yield f"- {_escape_markdown(name)}, {rule}: {shown} class-balanced accuracy, {verdict(difference)}"


def _label_tables(comparison: Comparison) -> Iterator[Table]:
    for rule, found in comparison["rules"].items():
        head = ["label", "ratio", comparison["baseline"], *others(comparison)]
        rows = [
            [label["name"], label_ratio(label), *_cells(found["labels"][label["name"]]["class_balanced_accuracy"])]
            for label in comparison["labels"]
        ]
        yield f"Class-balanced accuracy (%) of the baseline, and gains over it, rule {rule}", head, rows
        head = ["label", "rarest class", "training samples", *head[2:]]
        rows = [
            [label["name"], label["rarest"], count_text(label["counts"][label["rarest"]]), *_cells(result)]
            for label in comparison["labels"]
            if (result := found["labels"][label["name"]]["rarest"])
        ]
        yield f"Sensitivity (%) of the rarest classes, and gains, rule {rule}", head, rows


def _cells(result: Result) -> list[str]:
    first = next(iter(result["groups"].values()))  # the baseline
    return [percent(first), *(percent(difference, signed=True) for difference in result["differences"].values())]


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escape_markdown, cells))} |"


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


def _escape_markdown(text: str) -> str:
    return text.translate(_MARKDOWN)


def _escape_latex(text: str) -> str:
    return text.translate(_LATEX)


def _latex(comparison: Comparison) -> Iterator[str]:
    yield "% needs \\usepackage{booktabs}"
    for caption, head, rows in [*_tables(comparison), *_label_tables(comparison)]:
        yield from ("", r"\begin{table}", r"\centering", rf"\caption{{{_escape_latex(caption)}}}")
        yield from (rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", _latex_row(head), r"\midrule")
        yield from (_latex_row(row, _latex_number) for row in rows)
        yield from (r"\bottomrule", r"\end{tabular}", r"\end{table}")


def _latex_row(cells: Sequence[str], write: Callable[[str], str] = _escape_latex) -> str:
    return " & ".join([_escape_latex(cells[0]), *map(write, cells[1:])]) + r" \\"


_NUMBER = re.compile(r"[+-]?[\d.]+( ± [\d.]+)?")


def _latex_number(cell: str) -> str:
    if cell == "-":
        return "--"
    # As mathematics a minus sign is a true one; a name or a ratio is text.
    return f"${cell.replace('±', chr(92) + 'pm')}$" if _NUMBER.fullmatch(cell) else _escape_latex(cell)
