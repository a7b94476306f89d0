"""Figures of experiments: gains by imbalance, curves over a setting, and readings one below the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import cycle
from math import nan
from typing import TYPE_CHECKING, Any

from rectifier.compare import PREFERRED, RULES
from rectifier.report.layout import COLOURS, INK, light_grid, plain, save_figure
from rectifier.reproduce.experiment import Cell, place_name
from rectifier.reproduce.outcome import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

Found = Mapping[str, Any] | None
"""An estimate or a difference, of which there may be none."""

_PAPERS_RULE = "argmax"
_PAPERS_COLOUR = COLOURS[0]
# In every panel and every figure the same; the two that are nearest to each other, blues, share no panel.
_RULE_COLOURS = {"argmax": COLOURS[5], "prior": COLOURS[0], "tuned": COLOURS[2], PREFERRED: COLOURS[4]}
_STEP = 6  # points between neighbours at the same place: more than the caps of their intervals and markers are wide


def draw_gains(outcome: Outcome, rows: Collection[str]) -> bool:
    """Draw the gain of each label over the baseline, ordered by imbalance, of some rows; say whether there was any.

    Every row has a panel with a scale of its own: beside gains of 20 points those of one point could not be read.
    """
    from matplotlib.figure import Figure

    ratios = outcome.ratios()
    drawn = [cell for cell in outcome.experiment.cells if cell.row in rows]
    cells = [cell for cell in drawn if _percent(outcome.gain(cell, _PAPERS_RULE)) is not None]
    if not cells or len(ratios) < 2:
        return False
    figure = Figure((max(7.0, 0.22 * len(ratios) + 1.2), 1.7 * len(cells) + 1.8), layout="constrained")
    panels = list(figure.subplots(len(cells), 1, sharex=True, squeeze=False)[:, 0])
    for axis, cell in zip(panels, cells, strict=True):
        _draw_gain_panel(axis, outcome, cell, list(ratios))
    _name_papers_mark(panels)
    names = [plain(f"{label.replace('_', ' ')} 1:{ratio:,.0f}") for label, ratio in ratios.items()]
    panels[-1].set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    panels[-1].set_xlim(-0.7, len(names) - 0.3)
    figure.align_ylabels(panels)
    save_figure(figure, outcome.folder / f"{outcome.name}.png")
    return True


def _draw_gain_panel(axis: Axes, outcome: Outcome, cell: Cell, labels: Sequence[str]) -> None:
    """Draw a bar with its interval for each label, and the paper's gains where it has them."""
    found = [outcome.gain(cell, _PAPERS_RULE, label) for label in labels]
    means, halves = zip(*(_percent(one) or (nan, nan) for one in found), strict=True)
    axis.bar(range(len(labels)), means, 0.7, color=_RULE_COLOURS[_PAPERS_RULE])
    axis.errorbar(range(len(labels)), means, halves, fmt="none", ecolor=INK, elinewidth=0.8)
    papers = {place: outcome.paper_gain(cell, [label]) for place, label in enumerate(labels)}
    known = {place: gain for place, gain in papers.items() if gain is not None}
    if known:
        axis.plot(list(known), list(known.values()), "D", color=_PAPERS_COLOUR, markersize=3.5, label="paper")
    axis.axhline(0, color=INK, linewidth=0.8)
    base = outcome.base(cell)
    title = cell.row if base is None else f"{cell.row}: gain over {base.row}"
    axis.set_title(plain(title), loc="left", color=INK, fontsize=9)
    axis.set_ylabel(f"points ({_PAPERS_RULE})", color=INK, fontsize=9)
    light_grid(axis)


def _name_papers_mark(panels: Sequence[Axes]) -> None:
    """Say once, above all panels, what the mark is that some of them have."""
    handles = [handle for axis in panels for handle in axis.get_legend_handles_labels()[0]]
    if handles:
        panels[0].legend(handles=handles[:1], frameon=False, fontsize=8, loc="lower right", bbox_to_anchor=(1, 1))


def draw_curve(outcome: Outcome, parameter: str, logarithmic: bool = False) -> None:
    """Draw the score over a setting, under every rule; rows that are no numbers are level lines."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 4.2), layout="constrained")
    axis, beside = figure.subplots(1, 2)
    _draw_levels(axis, outcome)
    _draw_lines(axis, outcome.experiment.cells, outcome.score, RULES)
    _draw_lines(beside, outcome.experiment.cells, outcome.gain, ("argmax", PREFERRED))
    beside.axhline(0, color=INK, linewidth=0.8)
    axis.set_ylabel("class-balanced accuracy, %", color=INK, fontsize=9)
    beside.set_ylabel("gain, points, paired by seed", color=INK, fontsize=9)
    for one in (axis, beside):
        if logarithmic:
            one.set_xscale("log")
        _mark_values(one, outcome.experiment.cells)
        one.set_xlabel(parameter, color=INK, fontsize=9)
        light_grid(one)
        _legend_by_rule(one)
    save_figure(figure, outcome.folder / f"{outcome.name}.png")


def _draw_levels(axis: Axes, outcome: Outcome) -> None:
    """Draw the scores of rows that are no numbers, under every rule."""
    for cell in outcome.experiment.cells:
        for rule in RULES:
            known = _percent(outcome.score(cell, rule))
            if known is not None and _number(cell.row) is None:
                name = plain(f"{cell.row}, {rule}")
                axis.axhline(known[0], color=_RULE_COLOURS[rule], linewidth=1, linestyle=":", label=name)


def _draw_lines(axis: Axes, cells: Sequence[Cell], ask: Callable[[Cell, str], Found], rules: Sequence[str]) -> None:
    """Draw a line with intervals for each rule and column: rules have a colour each, columns a style and a marker."""
    styles = dict(zip(dict.fromkeys(cell.column for cell in cells), cycle(("-o", "--s", ":^")), strict=False))
    lines = {
        (rule, column): points
        for rule in rules
        for column in styles
        if (points := _points([cell for cell in cells if cell.column == column], ask, rule))
    }
    for number, ((rule, column), points) in enumerate(lines.items()):
        x, y, halves = zip(*points, strict=True)
        drawn = axis.errorbar(
            x,
            y,
            halves,
            fmt=styles[column],
            color=_RULE_COLOURS[rule],
            linewidth=1.2,
            capsize=2,
            markersize=4,
            label=plain(place_name((column, rule))),
        )
        _move_aside(axis, drawn, number - (len(lines) - 1) / 2)


def _points(cells: Sequence[Cell], ask: Callable[[Cell, str], Found], rule: str) -> list[tuple[float, float, float]]:
    """Return place, mean and half of the interval of every cell that has them, in the order of their places."""
    found = [(_number(cell.row), _percent(ask(cell, rule))) for cell in cells]
    return sorted((place, *known) for place, known in found if place is not None and known is not None)


def _move_aside(axis: Axes, drawn: ErrorbarContainer, steps: float) -> None:
    """Move a line along x, so that intervals at the same place do not cover each other.

    It is moved on the paper and not in its values, so by as much on a logarithmic scale as on any other; and after it
    is drawn, for the limits of the axis are those of the values.
    """
    from matplotlib.transforms import ScaledTranslation

    aside = axis.transData + ScaledTranslation(steps * _STEP / 72, 0, axis.figure.dpi_scale_trans)
    for part in drawn.get_children():
        part.set_transform(aside)


def _mark_values(axis: Axes, cells: Sequence[Cell]) -> None:
    """Name the values that were measured, since lines that are moved aside do not stand quite there."""
    places = {place: cell.row for cell in cells if (place := _number(cell.row)) is not None}
    axis.set_xticks(list(places), list(places.values()))
    axis.minorticks_off()
    axis.margins(x=0.08)  # room for the first line and the last


def _legend_by_rule(axis: Axes) -> None:
    """Name what is drawn, with every rule in a column of its own."""
    rules = list(_RULE_COLOURS)
    entries = list(zip(*axis.get_legend_handles_labels(), strict=True))
    entries.sort(key=lambda entry: rules.index(entry[1].split()[-1]))  # a name ends with its rule
    _legend_above(axis, [handle for handle, _ in entries], [name for _, name in entries])


def draw_ranking(outcome: Outcome, cells: Sequence[Cell]) -> None:
    """Draw the score on test of every cell, one below the other in this order, and its gain beside it."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 0.3 * len(cells) + 1.2), layout="constrained")
    axis, beside = figure.subplots(1, 2, sharey=True)
    for number, (rule, marker) in enumerate((("argmax", "s"), (PREFERRED, "o"))):
        shift = 0.16 * (2 * number - 1)
        _level(axis, [outcome.score(cell, rule) for cell in cells], shift, rule, marker, _RULE_COLOURS[rule])
        _level(beside, [outcome.gain(cell, rule) for cell in cells], shift, rule, marker, _RULE_COLOURS[rule])
    beside.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(cells)), [plain(_ranked_name(outcome, cell)) for cell in cells], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("class-balanced accuracy on test, %", color=INK, fontsize=9)
    beside.set_xlabel("gain, points, paired by seed", color=INK, fontsize=9)
    for one in (axis, beside):
        light_grid(one)
    _legend_above(axis, *axis.get_legend_handles_labels())
    save_figure(figure, outcome.folder / f"{outcome.name}.png")


def _ranked_name(outcome: Outcome, cell: Cell) -> str:
    """Return a cell's name; gains are counted from the first cell, where nothing else is said."""
    base = outcome.base(cell)
    return cell.name if base in (None, outcome.experiment.cells[0]) else f"{cell.name}\n(gain over {base.row})"


def _level(axis: Axes, found: Sequence[Found], shift: float, name: str, marker: str, colour: str) -> None:
    """Draw one point for each line, with its interval."""
    points = [(place + shift, *known) for place, one in enumerate(found) if (known := _percent(one)) is not None]
    if points:
        places, means, halves = zip(*points, strict=True)
        axis.errorbar(means, places, xerr=halves, fmt=marker, color=colour, capsize=2, markersize=4, label=name)


def _percent(found: Found) -> tuple[float, float] | None:
    """Return a mean and half of its interval in percent, or None where there is no mean."""
    if found is None or found["mean"] is None:
        return None
    return 100 * found["mean"], 100 * (found["half_width"] or 0)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _legend_above(axis: Axes, handles: Sequence[Any], names: Sequence[str]) -> None:
    if handles:
        # Above: there are lines, points or bars everywhere inside.
        axis.legend(handles, names, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
