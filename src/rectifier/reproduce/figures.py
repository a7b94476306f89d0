"""Figures of experiments: gains by imbalance, curves over a setting, and readings one below the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from math import nan
from typing import TYPE_CHECKING, Any

from rectifier.compare import RULES
from rectifier.report.layout import COLOURS, INK, light_grid, plain, save_figure
from rectifier.reproduce.experiment import Cell
from rectifier.reproduce.outcome import PREFERRED, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Found = Mapping[str, Any] | None
"""An estimate or a difference, of which there may be none."""

_BAR = 0.8


def draw_gains(outcome: Outcome, rows: Collection[str], rule: str = "argmax") -> bool:
    """Draw the gain of each label over the baseline, ordered by imbalance, of some rows; say whether there was any."""
    from matplotlib.figure import Figure

    ratios = outcome.ratios()
    drawn = [cell for cell in outcome.experiment.cells if cell.row in rows]
    cells = [cell for cell in drawn if _percent(outcome.gain(cell, rule)) is not None]
    if not cells or len(ratios) < 2:
        return False
    figure = Figure((max(7.0, 0.32 * len(ratios) + 2), 4.2), layout="constrained")
    axis = figure.subplots()
    width = _BAR / len(cells)
    for number, cell in enumerate(cells):
        found = [outcome.gain(cell, rule, label) for label in ratios]
        means, halves = zip(*(_percent(one) or (nan, nan) for one in found), strict=True)
        places = [i + (number - (len(cells) - 1) / 2) * width for i in range(len(means))]
        axis.bar(places, means, width, color=COLOURS[number % len(COLOURS)], label=plain(cell.row))
        axis.errorbar(places, means, halves, fmt="none", ecolor=INK, elinewidth=0.6)
        papers = {place: outcome.paper_gain(cell, [label]) for place, label in zip(places, ratios, strict=True)}
        known = {place: gain for place, gain in papers.items() if gain is not None}
        if known:
            name = plain(f"{cell.row}, paper")
            axis.plot(list(known), list(known.values()), "_", color=INK, markersize=4, label=name)
    axis.axhline(0, color=INK, linewidth=0.8)
    names = [f"{label.replace('_', ' ')} 1:{ratio:,.0f}" for label, ratio in ratios.items()]
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    base = outcome.base(cells[0])
    axis.set_ylabel(plain(f"gain over {base.row if base else ''}, points ({rule})"), color=INK, fontsize=9)
    _finish(axis)
    save_figure(figure, outcome.folder / f"{outcome.name}.png")
    return True


def draw_curve(outcome: Outcome, parameter: str, logarithmic: bool = False) -> None:
    """Draw the score over a setting, under every rule; rows that are no numbers are level lines."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 4.2), layout="constrained")
    axis, beside = figure.subplots(1, 2)
    columns = list(dict.fromkeys(cell.column for cell in outcome.experiment.cells))
    for number, rule in enumerate(RULES):
        colour = COLOURS[number % len(COLOURS)]
        for style, column in zip(cycle(("-o", "--s", ":^")), columns, strict=False):
            _line(axis, outcome, rule, column, colour, style)
    for number, rule in enumerate(("argmax", PREFERRED)):
        _gains(beside, outcome, rule, COLOURS[-1 - number])
    beside.axhline(0, color=INK, linewidth=0.8)
    axis.set_ylabel("class-balanced accuracy, %", color=INK, fontsize=9)
    beside.set_ylabel("gain, points, paired by seed", color=INK, fontsize=9)
    for one in (axis, beside):
        if logarithmic:
            one.set_xscale("log")
        one.set_xlabel(parameter, color=INK, fontsize=9)
        _finish(one)
    save_figure(figure, outcome.folder / f"{outcome.name}.png")


def draw_ranking(outcome: Outcome, cells: Sequence[Cell]) -> None:
    """Draw the score on test of every cell, one below the other in this order, and its gain beside it."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 0.3 * len(cells) + 1.2), layout="constrained")
    axis, beside = figure.subplots(1, 2, sharey=True)
    for number, (rule, marker) in enumerate((("argmax", "s"), (PREFERRED, "o"))):
        shift = 0.16 * (2 * number - 1)
        _level(axis, [outcome.score(cell, rule) for cell in cells], shift, rule, marker, COLOURS[-1 - number])
        _level(beside, [outcome.gain(cell, rule) for cell in cells], shift, rule, marker, COLOURS[-1 - number])
    beside.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(cells)), [plain(_ranked_name(outcome, cell)) for cell in cells], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlabel("class-balanced accuracy on test, %", color=INK, fontsize=9)
    beside.set_xlabel("gain, points, paired by seed", color=INK, fontsize=9)
    light_grid(beside)
    _finish(axis)
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


def _line(axis: Axes, outcome: Outcome, rule: str, column: str, colour: str, style: str) -> None:
    points: list[tuple[float, float, float]] = []
    for cell in outcome.experiment.cells:
        known, value = _percent(outcome.score(cell, rule)), _number(cell.row)
        if cell.column != column or known is None:
            continue
        if value is None:
            axis.axhline(known[0], color=colour, linewidth=0.8, linestyle=":", label=plain(f"{cell.row}, {rule}"))
        else:
            points.append((value, *known))
    _joined(axis, points, style, colour, plain(f"{column} {rule}".strip()))


def _gains(axis: Axes, outcome: Outcome, rule: str, colour: str) -> None:
    points: list[tuple[float, float, float]] = []
    for cell in outcome.experiment.cells:
        known, value = _percent(outcome.gain(cell, rule)), _number(cell.row)
        if known is not None and value is not None:
            points.append((value, *known))
    _joined(axis, points, "-o", colour, rule)


def _joined(axis: Axes, points: Sequence[tuple[float, float, float]], style: str, colour: str, name: str) -> None:
    """Draw points with their intervals in the order of their places, and a line through them."""
    if points:
        x, y, halves = zip(*sorted(points), strict=True)
        axis.errorbar(x, y, halves, fmt=style, color=colour, capsize=2, markersize=4, linewidth=1.2, label=name)


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


def _finish(axis: Axes) -> None:
    light_grid(axis)
    if axis.get_legend_handles_labels()[0]:
        # Above: there are lines, points or bars everywhere inside.
        axis.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
