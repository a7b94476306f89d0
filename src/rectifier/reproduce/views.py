"""How an outcome is shown: a table of cells, a table of labels, or a curve. Percent throughout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rectifier import check
from rectifier.report import comparison_tables
from rectifier.reproduce import figures
from rectifier.reproduce.experiment import Cell
from rectifier.reproduce.outcome import BALANCED, GROUPS, PREFERRED, Outcome

Show = Callable[[Outcome], str]
RULE_WORDS = {
    "argmax": "Argmax",
    "prior": "After the log prior is taken off the logits",
    "tuned": "With offsets tuned on validation",
    PREFERRED: "Under the rule that validation prefers, run by run",
}
"""The decision rules; the paper's is argmax."""


def table(metric: str = BALANCED, beside: str = "paper") -> Show:
    """Show rows and columns as the cells say, under each decision rule, with gains below the rows that have any.

    ``beside`` is what the cells' own numbers are called, which stand beside ours by argmax.
    """

    def show(outcome: Outcome) -> str:
        return "\n\n".join(_cells(outcome, rule, metric, beside if rule == "argmax" else None) for rule in RULE_WORDS)

    return show


def _cells(outcome: Outcome, rule: str, metric: str, beside: str | None) -> str:
    cells = outcome.experiment.cells
    columns = list(dict.fromkeys(cell.column for cell in cells))
    rows = list(dict.fromkeys(cell.row for cell in cells))
    width = 1 if beside is None else 2  # ours alone, or with the other number
    heads = ["", *(head for column in columns for head in (column or "ours", f"{column} {beside}".strip())[:width])]
    lines = []
    for row in rows:
        there = {cell.column: cell for cell in cells if cell.row == row}
        pairs = [_pair(outcome, there.get(column), rule, metric) for column in columns]
        lines.append([row, *(text for pair in pairs for text in pair[:width])])
        if any(cell.against for cell in there.values()):
            pairs = [_gain_pair(outcome, there.get(column), rule, metric) for column in columns]
            lines.append([f"{row}, gain", *(text for pair in pairs for text in pair[:width])])
    return f"## {RULE_WORDS[rule]}\n\n{markdown_table(heads, lines)}"


def _pair(outcome: Outcome, cell: Cell | None, rule: str, metric: str) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return spread(outcome.score(cell, rule, None, metric)), paper_text(paper_of(cell))


def _gain_pair(outcome: Outcome, cell: Cell | None, rule: str, metric: str) -> tuple[str, str]:
    if cell is None or cell.against is None:
        return "", ""
    found, base = outcome.gain(cell, rule, None, metric), outcome.base(cell)
    ours, theirs = paper_of(cell), None if base is None else paper_of(base)
    paper = "" if ours is None or theirs is None else f"{ours - theirs:+.1f}"
    return ("" if found is None else spread(found, signed=True)), paper


def paper_of(cell: Cell, label: str = "mean") -> float | None:
    """Return what the paper has for a cell, or for one of its labels."""
    if isinstance(cell.paper, Mapping):
        return cell.paper.get(label)
    return cell.paper if label == "mean" else None


def ranking(remark: str = "") -> Show:
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
            gains = [outcome.gain(cell, rule) for rule in ("argmax", PREFERRED)]
            texts = ["" if gain is None else spread(gain, signed=True) for gain in gains]
            base = outcome.base(cell)
            lines.append([cell.name, *scores, *texts, "" if base is None else base.row])
        figures.draw_ranking(outcome, cells)
        picture = f"![scores and gains of all]({outcome.name}.png)"
        ranked = "In the order of validation's liking, under the rule that it prefers; the other numbers are of test."
        left = [cell.name for cell in outcome.experiment.cells if cell not in cells]
        missing = f"Not measured yet: {', '.join(left)}." if left else ""
        return "\n\n".join(filter(None, [picture, ranked, markdown_table(heads, lines), missing, remark]))

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
            return f"No labels that come in groups: of all labels together.\n\n{table()(outcome)}"
        heads = ["", "rule", *(head for name in (*names, "mean") for head in (name, "paper"))]
        lines = []
        for cell in outcome.experiment.cells:
            for rule in RULE_WORDS:
                columns: list[str | None] = [*names, None]  # the last is their mean
                scores = [spread(outcome.score(cell, rule, name, GROUPS)) for name in columns]
                papers = [paper_text(paper_of(cell, name or "mean")) * (rule == "argmax") for name in columns]
                lines.append([cell.row, rule, *(text for pair in zip(scores, papers, strict=True) for text in pair)])
                if cell.against is not None:
                    gains = [outcome.gain(cell, rule, name, GROUPS) for name in columns]
                    texts = [text for gain in gains for text in (spread(gain, signed=True) if gain else "", "")]
                    lines.append([f"{cell.row}, gain", rule, *texts])
        return markdown_table(heads, lines)

    return show


def labels(groups: Mapping[str, tuple[float, float]] | None = None) -> Show:
    """Show methods side by side: means under every rule, gains by groups of labels, then label by label.

    ``groups`` names ranges of imbalance ratios, from and to; without it, labels are halved by imbalance.
    """

    def show(outcome: Outcome) -> str:
        parts = [_means(outcome), _group_gains(outcome, groups), _label_by_label(outcome)]
        if figures.draw_gains(outcome):
            parts.insert(2, f"![gain of each label by its imbalance]({outcome.name}.png)")
        return "\n\n".join(part for part in parts if part)

    return show


def _means(outcome: Outcome) -> str:
    heads = ["mean of all labels", *RULE_WORDS, "paper"]
    lines = []
    for cell in outcome.experiment.cells:
        scores = [spread(outcome.score(cell, rule)) for rule in RULE_WORDS]
        lines.append([cell.row, *scores, paper_text(paper_of(cell))])
    return f"## Class-balanced accuracy under each rule\n\n{markdown_table(heads, lines)}"


def _group_gains(outcome: Outcome, groups: Mapping[str, tuple[float, float]] | None) -> str:
    ratios = outcome.ratios()
    members = _members(ratios, groups)
    members = {"all": list(ratios), **members} if ratios else {}
    lines = []
    for cell in outcome.experiment.cells:
        base = outcome.base(cell)
        if base is None:
            continue
        for rule in RULE_WORDS:
            found = [outcome.gain_of(cell, rule, names) for names in members.values()]
            gains = [spread(one, signed=True) if one else "" for one in found]
            paper = (
                [
                    _paper_gain(cell, base, names) or (_paper_gain(cell, base, ["mean"]) if name == "all" else "")
                    for name, names in members.items()
                ]
                if rule == "argmax"
                else [""] * len(gains)
            )
            pairs = [text for pair in zip(gains, paper, strict=True) for text in pair]
            lines.append([cell.row, rule, *pairs])
    heads = ["gain", "rule", *(head for name, names in members.items() for head in (_group_head(name, names), "paper"))]
    return f"## Gains by imbalance\n\n{markdown_table(heads, lines)}" if lines and members else ""


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


def _paper_gain(cell: Cell, base: Cell, names: Sequence[str]) -> str:
    pairs = [(paper_of(cell, name), paper_of(base, name)) for name in names]
    known = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    return f"{sum(known) / len(known):+.1f}" if known and len(known) == len(names) else ""


def _label_by_label(outcome: Outcome) -> str:
    cells = outcome.experiment.cells
    heads = ["label", "1 : x", *(cell.row for cell in cells)]
    lines = []
    for label, ratio in outcome.ratios().items():
        texts = []
        for cell in cells:
            mean, paper = outcome.score(cell, "argmax", label)["mean"], paper_of(cell, label)
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
                gain = outcome.gain(cell, rule)
                texts += [spread(outcome.score(cell, rule)), spread(gain, signed=True) if gain else ""]
            lines.append([cell.name, *texts, paper_text(paper_of(cell))])
        picture = f"![class-balanced accuracy over {parameter}]({outcome.name}.png)"
        return "\n\n".join(filter(None, [picture, markdown_table(heads, lines), remark]))

    return show


def headline(outcome: Outcome) -> str:
    """Say in a line what validation likes best in each column, of all that have a gain, and that gain on test."""
    told = []
    for column in dict.fromkeys(cell.column for cell in outcome.experiment.cells):
        known = [(outcome.liking(cell)["mean"], cell) for cell in outcome.experiment.cells if cell.column == column]
        liked = [(mean, cell) for mean, cell in known if mean is not None and cell.against is not None]
        one_data = len({str(cell.settings.get("data")) for _, cell in liked}) == 1  # else they cannot be compared
        if one_data:
            _, best = max(liked, key=lambda pair: pair[0])
            gain = outcome.gain(best, PREFERRED)
            if gain is not None and gain["mean"] is not None:
                told.append(f"{f'{column}: ' if column else ''}{best.row} {spread(gain, signed=True)}")
    return "; ".join(told)


# Texts.


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def spread(found: Mapping[str, Any], signed: bool = False) -> str:
    """Write a mean with half of its interval; a gain whose interval excludes 0 is bold."""
    if found["mean"] is None:
        return ""
    text = comparison_tables.percent(found, signed=signed)
    return f"**{text}**" if found.get("excludes_zero") else text


def paper_text(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def markdown_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is text and whose others are numbers."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(heads), rule, *map(list, lines)])
