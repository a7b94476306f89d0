"""How an outcome is shown: a table of cells, a table of labels, or a curve. Percent throughout."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from rectifier._base import check
from rectifier.report.comparison import PREFERRED
from rectifier.report.comparison import tables as comparison_tables
from rectifier.reproduce import figures
from rectifier.reproduce.experiment import GROUPS, Cell
from rectifier.reproduce.outcome import Outcome

Show = Callable[[Outcome], str]
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

    def show(outcome: Outcome) -> str:
        return "\n\n".join(_cells(outcome, rule, beside if rule == "argmax" else None) for rule in RULE_WORDS)

    return show


def _cells(outcome: Outcome, rule: str, beside: str | None) -> str:
    cells = outcome.experiment.cells
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = list(dict.fromkeys(cell.row for cell in cells))
    width = 1 if beside is None else 2  # ours alone, or with the other number
    heads = ["", *(head for column in columns for head in (column or "ours", f"{column} {beside}".strip())[:width])]
    named: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        there = {cell.column: cell for cell in cells if cell.row == row}
        named[row] = [_pair(outcome, there.get(column), rule) for column in columns]
        if any(cell.against for cell in there.values()):
            named[f"{row}, gain"] = [_gain_pair(outcome, there.get(column), rule) for column in columns]
        for control in dict.fromkeys(cell.row for cell in cells if cell.control_of == row):
            texts = [_over_control(outcome, there.get(column), control, rule) for column in columns]
            if any(texts):
                named[f'{row}, over "{control}"'] = [(text, "") for text in texts]
    lines = [[name, *(text for pair in pairs for text in pair[:width])] for name, pairs in named.items()]
    return f"## {RULE_WORDS[rule]}\n\n{markdown_table(heads, lines)}"


def _pair(outcome: Outcome, cell: Cell | None, rule: str) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return spread(outcome.score(cell, rule)), paper_text(cell.paper_of())


def _gain_pair(outcome: Outcome, cell: Cell | None, rule: str) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return gain_text(outcome.gain(cell, rule)), paper_gain_text(outcome.paper_gain(cell))


def _over_control(outcome: Outcome, cell: Cell | None, row: str, rule: str) -> str:
    if cell is None:
        return ""
    control = next((one for one in outcome.controls(cell) if one.row == row), None)
    return "" if control is None else gain_text(outcome.gain_over(cell, control, rule))


def ranking() -> Show:
    """Show every cell in a line, the one that validation likes best first, with its gains on test."""

    def show(outcome: Outcome) -> str:
        cells = [cell for cell in outcome.experiment.cells if outcome.liking(cell)["mean"] is not None]
        if not cells:
            return "Nothing is recorded yet."
        cells.sort(key=lambda cell: outcome.liking(cell)["mean"] or 0, reverse=True)
        heads = ["", "validation", *RULE_WORDS, "gain by argmax", "gain, preferred", "over"]
        lines = []
        for cell in cells:
            scores = [spread(outcome.liking(cell)), *(spread(outcome.score(cell, rule)) for rule in RULE_WORDS)]
            texts = [gain_text(outcome.gain(cell, rule)) for rule in ("argmax", PREFERRED)]
            base = outcome.base(cell)
            lines.append([cell.name, *scores, *texts, "" if base is None else base.row])
        figures.draw_ranking(outcome, cells)
        picture = f"![scores and gains of all]({outcome.name}.png)"
        ranked = "In the order of validation's liking, under the rule that it prefers; the other numbers are of test."
        left = [cell.name for cell in outcome.experiment.cells if cell not in cells]
        missing = f"Not measured yet: {', '.join(left)}." if left else ""
        return "\n\n".join(filter(None, [picture, ranked, markdown_table(heads, lines), missing]))

    return show


def validation(taken: Mapping[str, str]) -> Show:
    """Show what validation thinks of each cell and nothing of test: for what is chosen before anything is compared.

    ``taken`` names the row that was chosen in each column.
    """

    def show(outcome: Outcome) -> str:
        parts = []
        for column in dict.fromkeys(cell.column for cell in outcome.experiment.cells):
            cells = [cell for cell in outcome.experiment.cells if cell.column == column]
            likings = {cell.row: outcome.liking(cell) for cell in cells}
            lines = [
                [row, spread(liking), "taken" if row == taken.get(column) else ""] for row, liking in likings.items()
            ]
            parts.append(f"## {column}\n\n{markdown_table(['', 'validation', ''], lines)}")
        return "\n\n".join(parts)

    return show


def groups() -> Show:
    """Show groups of labels in columns: class-balanced accuracy of the five likeliest of each group, and gains."""

    def show(outcome: Outcome) -> str:
        records = outcome.all_records
        names = list(records[0]["test"]["argmax"][GROUPS]) if records else []
        if not names:
            told = "No labels that come in groups: of all labels together, which the paper's numbers are not of."
            return "\n\n".join([told, *(_cells(outcome, rule, None) for rule in RULE_WORDS)])
        heads = ["", "rule", *(head for name in (*names, "mean") for head in (name, "paper"))]
        lines = []
        for cell in outcome.experiment.cells:
            for rule in RULE_WORDS:
                columns: list[str | None] = [*names, None]  # the last is their mean
                scores = [spread(outcome.score(cell, rule, name, GROUPS)) for name in columns]
                papers = [paper_text(cell.paper_of(name or "mean")) for name in columns]
                lines.append([cell.row, rule, *_with_papers(scores, papers, rule)])
                if cell.against is not None:
                    gains = [outcome.gain(cell, rule, name, GROUPS) for name in columns]
                    papers = [paper_gain_text(outcome.paper_gain(cell, (name or "mean",))) for name in columns]
                    lines.append([f"{cell.row}, gain", rule, *_with_papers(map(gain_text, gains), papers, rule)])
        return markdown_table(heads, lines)

    return show


def labels(groups: Mapping[str, tuple[float, float]] | None = None, drawn: Collection[str] | None = None) -> Show:
    """Show methods side by side: means under every rule, gains by groups of labels, then label by label.

    ``groups`` names ranges of imbalance ratios, from and to; without it, labels are halved by imbalance. ``drawn``
    names the rows whose gains are drawn, for bars of many cannot be told apart; without it, all are.
    """

    def show(outcome: Outcome) -> str:
        parts = [_means(outcome), _group_gains(outcome, groups), _label_by_label(outcome)]
        rows = [cell.row for cell in outcome.experiment.cells] if drawn is None else drawn
        if figures.draw_gains(outcome, rows):
            arrows = "Where an interval goes on beyond its panel, an arrow says so."
            parts.insert(2, f"![gain of each label by its imbalance]({outcome.name}.png)\n\n{arrows}")
        return "\n\n".join(part for part in parts if part)

    return show


def _means(outcome: Outcome) -> str:
    heads = ["mean of all labels", *RULE_WORDS, "paper"]
    lines = []
    for cell in outcome.experiment.cells:
        scores = [spread(outcome.score(cell, rule)) for rule in RULE_WORDS]
        lines.append([cell.row, *scores, paper_text(cell.paper_of())])
    return f"## Class-balanced accuracy under each rule\n\n{markdown_table(heads, lines)}"


def _group_gains(outcome: Outcome, groups: Mapping[str, tuple[float, float]] | None) -> str:
    ratios = outcome.ratios()
    members = _members(ratios, groups)
    members = {"all": list(ratios), **members} if ratios else {}
    lines = []
    for cell in outcome.experiment.cells:
        if cell.against is None:
            continue
        papers = [outcome.paper_gain(cell, names) for names in members.values()]
        if papers and papers[0] is None:  # of all labels the paper may have the mean alone
            papers[0] = outcome.paper_gain(cell)
        for rule in RULE_WORDS:
            gains = [outcome.gain_of(cell, rule, names) for names in members.values()]
            texts = map(paper_gain_text, papers)
            lines.append([cell.row, rule, *_with_papers(map(gain_text, gains), texts, rule)])
    heads = ["gain", "rule", *(head for name, names in members.items() for head in (_group_head(name, names), "paper"))]
    return f"## Gains by imbalance\n\n{markdown_table(heads, lines)}" if lines and members else ""


def _with_papers(ours: Iterable[str], papers: Iterable[str], rule: str) -> list[str]:
    """Return each of our texts with the paper's behind it, which is of argmax."""
    return [text for pair in zip(ours, papers, strict=True) for text in (pair[0], pair[1] * (rule == "argmax"))]


def _group_head(name: str, names: Sequence[str]) -> str:
    return f"{name} ({check.amount(len(names), 'label')})"


def _members(ratios: Mapping[str, float], groups: Mapping[str, tuple[float, float]] | None) -> dict[str, list[str]]:
    if groups is not None:
        found = {
            name: [label for label, r in ratios.items() if low <= r < high] for name, (low, high) in groups.items()
        }
        return {name: names for name, names in found.items() if names}
    order, half = list(ratios), len(ratios) // 2
    return {"less imbalanced": order[:half], "more imbalanced": order[half:]} if half else {}


def _label_by_label(outcome: Outcome) -> str:
    cells = outcome.experiment.cells
    heads = ["label", "1 : x", *(cell.row for cell in cells)]
    lines = []
    for label, ratio in outcome.ratios().items():
        texts = []
        for cell in cells:
            mean, paper = outcome.score(cell, "argmax", label)["mean"], cell.paper_of(label)
            texts.append(f"{percent(mean)}{'' if paper is None else f' ({paper:g})'}")
        lines.append([label, f"{ratio:,.0f}", *texts])
    return f"## Label by label, argmax (paper in brackets)\n\n{markdown_table(heads, lines)}" if lines else ""


def curve(parameter: str, remark: str = "", logarithmic: bool = False) -> Show:
    """Show the score over one setting: each row is a value of it; rows that are no numbers are drawn as level lines."""

    def show(outcome: Outcome) -> str:
        figures.draw_curve(outcome, parameter, logarithmic)
        heads = [parameter, *(f"{rule}{', gain' * gains}" for rule in RULE_WORDS for gains in (False, True)), "paper"]
        lines = []
        for cell in outcome.experiment.cells:
            texts = []
            for rule in RULE_WORDS:
                texts += [spread(outcome.score(cell, rule)), gain_text(outcome.gain(cell, rule))]
            lines.append([cell.name, *texts, paper_text(cell.paper_of())])
        picture = f"![class-balanced accuracy over {parameter}]({outcome.name}.png)"
        return "\n\n".join(filter(None, [picture, markdown_table(heads, lines), remark]))

    return show


def headline(outcome: Outcome) -> str:
    """Say in a line what validation likes best in each column, of what is compared, and its gain on test.

    Where that has a control, the gain over it is told, too: a gain that the control has as well is of something else.
    """
    columns = dict.fromkeys(cell.column for cell in outcome.experiment.cells)
    return "; ".join(filter(None, (_headline_of(outcome, column) for column in columns)))


def _headline_of(outcome: Outcome, column: str) -> str:
    cells = [cell for cell in outcome.experiment.cells if cell.column == column]
    measured = [cell for cell in cells if outcome.liking(cell)["mean"] is not None]
    gaining = [cell for cell in measured if cell.against is not None]
    compared = [cell for cell in measured if cell in gaining or cell in map(outcome.base, gaining)]
    one_data = len({str(cell.settings.get("data")) for cell in compared}) == 1  # else they cannot be compared
    if not gaining or not one_data:
        return ""
    best = max(compared, key=lambda cell: outcome.liking(cell)["mean"] or 0.0)
    place = f"{column}: {best.row}" if column else best.row
    base = outcome.base(best)
    if base is None:
        return f"{place}, the baseline"
    others = [(base, base.row), *((one, f'"{one.row}"') for one in outcome.controls(best))]
    gains = [(outcome.gain_over(best, one, PREFERRED, outcome.experiment.metric), name) for one, name in others]
    told = [f"{gain_text(gain)} over {other}" for gain, other in gains if gain_text(gain)]
    lost = [seed for *where, seed in outcome.diverged if where in ([best.row, column], [base.row, column])]
    told += [f"{check.amount(len(lost), 'run')} of these diverged"] if lost else []
    return f"{place} {', '.join(told)}" if told else ""


# Texts.


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
