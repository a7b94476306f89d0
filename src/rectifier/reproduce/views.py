"""How a result is shown: the table of its cells, its one-line summary, and numbers as text. Percent throughout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rectifier._base import check
from rectifier.report.comparison import PREFERRED
from rectifier.report.comparison import tables as comparison_tables
from rectifier.reproduce.experiment import Cell
from rectifier.reproduce.result import ExperimentResult

Show = Callable[[ExperimentResult], str]
RULE_WORDS = {
    "argmax": "Argmax",
    "prior": "Prior: log prior subtracted from the logits",
    "tuned": "Tuned: offsets tuned on validation",
    PREFERRED: "Preferred: each run's best rule on validation",
}
"""Headings of the decision rules; the paper uses argmax."""


def table(reference: str = "paper") -> Show:
    """Show the cells in rows and columns under each decision rule, with gains below the rows that have any.

    ``reference`` names the numbers of the cells' ``paper``, which are shown next to ours under argmax.
    """

    def show(result: ExperimentResult) -> str:
        return "\n\n".join(cells_under(result, rule, reference if rule == "argmax" else None) for rule in RULE_WORDS)

    return show


def cells_under(result: ExperimentResult, rule: str, reference: str | None) -> str:
    """Return the table of one decision rule with its heading."""
    cells = result.experiment.cells
    columns = list(dict.fromkeys(cell.column for cell in cells))
    width = 1 if reference is None else 2  # ours alone, or ours and the paper's
    pairs = [(column or "ours", f"{column} {reference}".strip()) for column in columns]
    heads = ["class-balanced accuracy, %", *(head for pair in pairs for head in pair[:width])]
    lines = []
    for row in dict.fromkeys(cell.row for cell in cells):
        there = {cell.column: cell for cell in cells if cell.row == row}
        for name, by_column in _lines_of(result, row, there, rule).items():
            lines.append([name, *(text for column in columns for text in by_column.get(column, ("", ""))[:width])])
    return f"## {RULE_WORDS[rule]}\n\n{markdown_table(heads, lines)}"


def _lines_of(
    result: ExperimentResult, row: str, cells: Mapping[str, Cell], rule: str
) -> dict[str, dict[str, tuple[str, str]]]:
    """Return scores, gains and gains over controls of a row: our text and the paper's by column."""
    lines = {row: {c: (spread(result.score(cell, rule)), paper_text(cell.paper_of())) for c, cell in cells.items()}}
    if any(cell.against for cell in cells.values()):
        lines[f"{row}, gain"] = {
            column: (gain_text(result.gain(cell, rule)), paper_gain_text(result.paper_gain(cell)))
            for column, cell in cells.items()
        }
    for name in dict.fromkeys(cell.row for cell in result.experiment.cells if cell.control_of == row):
        gains = {
            column: gain_text(result.gain_over(cell, control, rule))
            for column, cell in cells.items()
            for control in result.controls(cell)
            if control.row == name
        }
        if any(gains.values()):
            lines[f'{row}, over "{name}"'] = {column: (text, "") for column, text in gains.items()}
    return lines


def summary_line(result: ExperimentResult) -> str:
    """Return in one line the cell of each column with the best validation score, and its gain on test.

    If the cell has a control, its gain over that is included: a gain that the control shares has another cause.
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
    facts = [f"{gain_text(gain)} over {other}" for gain, other in gains if gain_text(gain)]
    lost = [seed for *where, seed in result.diverged if where in ([best.row, column], [base.row, column])]
    facts += [f"{check.amount(len(lost), 'run')} diverged"] if lost else []
    return f"{place} {', '.join(facts)}" if facts else ""


def spread(found: Mapping[str, Any], signed: bool = False) -> str:
    """Return a mean with half of its interval; a gain whose interval excludes 0 is bold."""
    if found["mean"] is None:
        return ""
    if not found.get("excludes_zero"):
        return comparison_tables.percent(found, signed=signed)
    return f"**{comparison_tables.percent(found, signed=signed, digits=_digits(found))}**"


def _digits(found: Mapping[str, Any]) -> int:
    """Return the number of digits, at most three, that shows that an interval excludes 0."""
    mean, half = 100 * abs(found["mean"]), 100 * (found["half_width"] or 0.0)
    return next((digits for digits in (1, 2) if round(mean, digits) > round(half, digits)), 3)


def gain_text(found: Mapping[str, Any] | None) -> str:
    return "" if found is None else spread(found, signed=True)


def paper_gain_text(points: float | None) -> str:
    return "" if points is None else f"{points:+.1f}"


def paper_text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose other columns are numbers."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(heads), rule, *map(list, lines)])
