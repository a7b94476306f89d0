"""How an result is shown: a table of cells, a table of labels, or a curve. Percent throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rectifier._base import check
from rectifier.report.comparison import PREFERRED
from rectifier.report.comparison import tables as comparison_tables
from rectifier.reproduce.experiment import Cell
from rectifier.reproduce.result import ExperimentResult

Show = Callable[[ExperimentResult], str]
RULE_WORDS = {
    "argmax": "Argmax",
    "prior": "After the log prior is taken off the logits",
    "tuned": "With offsets tuned on validation",
    PREFERRED: "Under the rule that validation prefers, run by run",
}
"""The decision rules; the paper's is argmax."""


def table(beside: str = "paper") -> Show:
    """Show rows and columns as the cells say, under each decision rule, with gains below the rows that have any.

    ``beside`` is what the cells' own numbers are called, which stand beside ours by argmax.
    """

    def show(result: ExperimentResult) -> str:
        return "\n\n".join(cells_under(result, rule, beside if rule == "argmax" else None) for rule in RULE_WORDS)

    return show


def cells_under(result: ExperimentResult, rule: str, beside: str | None) -> str:
    cells = result.experiment.cells
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = list(dict.fromkeys(cell.row for cell in cells))
    width = 1 if beside is None else 2  # ours alone, or with the other number
    heads = ["", *(head for column in columns for head in (column or "ours", f"{column} {beside}".strip())[:width])]
    named: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        there = {cell.column: cell for cell in cells if cell.row == row}
        named[row] = [_pair(result, there.get(column), rule) for column in columns]
        if any(cell.against for cell in there.values()):
            named[f"{row}, gain"] = [_gain_pair(result, there.get(column), rule) for column in columns]
        for control in dict.fromkeys(cell.row for cell in cells if cell.control_of == row):
            texts = [_over_control(result, there.get(column), control, rule) for column in columns]
            if any(texts):
                named[f'{row}, over "{control}"'] = [(text, "") for text in texts]
    lines = [[name, *(text for pair in pairs for text in pair[:width])] for name, pairs in named.items()]
    return f"## {RULE_WORDS[rule]}\n\n{markdown_table(heads, lines)}"


def _pair(result: ExperimentResult, cell: Cell | None, rule: str) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return spread(result.score(cell, rule)), paper_text(cell.paper_of())


def _gain_pair(result: ExperimentResult, cell: Cell | None, rule: str) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return gain_text(result.gain(cell, rule)), paper_gain_text(result.paper_gain(cell))


def _over_control(result: ExperimentResult, cell: Cell | None, row: str, rule: str) -> str:
    if cell is None:
        return ""
    control = next((one for one in result.controls(cell) if one.row == row), None)
    return "" if control is None else gain_text(result.gain_over(cell, control, rule))


def summary_line(result: ExperimentResult) -> str:
    """Say in a line what validation likes best in each column, of what is compared, and its gain on test.

    Where that has a control, the gain over it is told, too: a gain that the control has as well is of something else.
    """
    columns = dict.fromkeys(cell.column for cell in result.experiment.cells)
    return "; ".join(filter(None, (_column_summary(result, column) for column in columns)))


def _column_summary(result: ExperimentResult, column: str) -> str:
    cells = [cell for cell in result.experiment.cells if cell.column == column]
    measured = [cell for cell in cells if result.validation_score(cell)["mean"] is not None]
    gaining = [cell for cell in measured if cell.against is not None]
    compared = [cell for cell in measured if cell in gaining or cell in map(result.base, gaining)]
    one_data = len({str(cell.settings.get("data")) for cell in compared}) == 1  # else they cannot be compared
    if not gaining or not one_data:
        return ""
    best = max(compared, key=lambda cell: result.validation_score(cell)["mean"] or 0.0)
    place = f"{column}: {best.row}" if column else best.row
    base = result.base(best)
    if base is None:
        return f"{place}, the baseline"
    others = [(base, base.row), *((one, f'"{one.row}"') for one in result.controls(best))]
    gains = [(result.gain_over(best, one, PREFERRED, result.experiment.metric), name) for one, name in others]
    told = [f"{gain_text(gain)} over {other}" for gain, other in gains if gain_text(gain)]
    lost = [seed for *where, seed in result.diverged if where in ([best.row, column], [base.row, column])]
    told += [f"{check.amount(len(lost), 'run')} of these diverged"] if lost else []
    return f"{place} {', '.join(told)}" if told else ""


# Texts.


def with_papers(ours: Iterable[str], papers: Iterable[str], rule: str) -> list[str]:
    """Return each of our texts with the paper's behind it, which is of argmax."""
    return [text for pair in zip(ours, papers, strict=True) for text in (pair[0], pair[1] * (rule == "argmax"))]


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def spread(found: Mapping[str, Any], signed: bool = False) -> str:
    """Write a mean with half of its interval; a gain whose interval excludes 0 is bold."""
    if found["mean"] is None:
        return ""
    if not found.get("excludes_zero"):
        return comparison_tables.percent(found, signed=signed)
    return f"**{comparison_tables.percent(found, signed=signed, digits=_digits(found))}**"


def _digits(found: Mapping[str, Any]) -> int:
    """Return as many digits as show that an interval excludes 0, three at most."""
    mean, half = 100 * abs(found["mean"]), 100 * (found["half_width"] or 0.0)
    return next((digits for digits in (1, 2) if round(mean, digits) > round(half, digits)), 3)


def gain_text(found: Mapping[str, Any] | None) -> str:
    """Write a gain, of which there may be none."""
    return "" if found is None else spread(found, signed=True)


def paper_gain_text(points: float | None) -> str:
    return "" if points is None else f"{points:+.1f}"


def paper_text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(heads), rule, *map(list, lines)])
