"""Figures of experiments: gains by imbalance, curves over a setting, and readings one below the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING, Any

from rectifier.report.comparison import PREFERRED
from rectifier.report.layout import COLOURS, INK, light_grid, plain, save_figure
from rectifier.reproduce.experiment import Cell, place_name
from rectifier.reproduce.outcome import Outcome

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure

Found = Mapping[str, Any] | None
"""An estimate or a difference, of which there may be none."""

Point = tuple[float, float, float]
"""A place, a mean there and half of its interval."""

Limits = tuple[float, float]

# The rule by which gains count, and the paper's; in every panel and every figure a rule has the same colour.
_RULE_COLOURS = {PREFERRED: COLOURS[0], "argmax": COLOURS[5]}
_RULE_MARKERS = {PREFERRED: "o", "argmax": "s"}
_PAPER = "paper, argmax"

_STEP = 2.5  # points between neighbours at the same place: intervals can be told apart
_SPREAD = 8.0  # points that all at the same place may take together, so that they are seen to be of one place
_LABEL_STEP = 5.0  # points between the rules of a label, which have no line to be followed by
_WIDEST = 4.0  # times the median: a wider interval is cut before it sets a scale
_ALIKE = 2.0  # times the smallest: panels of no larger scale share theirs


def draw_gains(outcome: Outcome, rows: Collection[str]) -> bool:
    """Draw the gain of each label over the baseline, ordered by imbalance, of some rows; say whether there was any.

    Every row has a panel. Panels share their scale, but for those with much larger gains, beside which those of one
    point could not be read; these say so.
    """
    from matplotlib.figure import Figure

    ratios = outcome.ratios()
    drawn = [cell for cell in outcome.experiment.cells if cell.row in rows]
    cells = [cell for cell in drawn if _percent(outcome.gain(cell, PREFERRED)) is not None]
    if not cells or len(ratios) < 2:
        return False
    figure = Figure((max(7.0, 0.22 * len(ratios) + 1.2), 2.0 * len(cells) + 1.8), layout="constrained")
    panels = list(figure.subplots(len(cells), 1, sharex=True, squeeze=False)[:, 0])
    gains = [_gains_of_labels(outcome, cell, list(ratios)) for cell in cells]
    limits = [_limits_of_most(series) for series in gains]
    shared = _limits_of_the_alike(limits)
    for axis, cell, series, own in zip(panels, cells, gains, limits, strict=True):
        alike = _are_alike(own, limits)
        _draw_gain_panel(axis, series, shared if alike else own)
        remark = "" if alike else ", on a scale of its own"
        axis.set_title(plain(f"{_gain_title(outcome, cell)}{remark}"), loc="left", color=INK, fontsize=9)
    _name_marks_once(figure)
    names = [plain(f"{label.replace('_', ' ')} 1:{ratio:,.0f}") for label, ratio in ratios.items()]
    panels[-1].set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    panels[-1].set_xlim(-0.7, len(names) - 0.3)
    figure.align_ylabels(panels)
    save_figure(figure, outcome.folder / f"{outcome.name}.png")
    return True


def _gain_title(outcome: Outcome, cell: Cell) -> str:
    base = outcome.base(cell)
    return cell.row if base is None else f"{cell.row}: gain over {base.row}"


def _gains_of_labels(outcome: Outcome, cell: Cell, labels: Sequence[str]) -> dict[str, list[Point]]:
    """Return the gains in points of the labels that have any, under each rule, and the paper's."""
    found: dict[str, list[Point]] = {}
    for rule in _RULE_COLOURS:
        gains = [_percent(outcome.gain(cell, rule, label)) for label in labels]
        found[rule] = [(place, *known) for place, known in enumerate(gains) if known is not None]
    papers = [outcome.paper_gain(cell, [label]) for label in labels]
    found[_PAPER] = [(place, known, 0.0) for place, known in enumerate(papers) if known is not None]
    return found


def _limits_of_most(series: Mapping[str, Sequence[Point]]) -> Limits:
    """Return limits that hold 0, every mean, and every interval but for the ends of the few that are far too wide."""
    points = [point for points in series.values() for point in points]
    halves = [half for _, _, half in points if half > 0]
    widest = _WIDEST * median(halves) if halves else 0.0
    low = min([0.0, *(mean - min(half, widest) for _, mean, half in points)])
    high = max([0.0, *(mean + min(half, widest) for _, mean, half in points)])
    room = 0.05 * (high - low) or 1.0
    return low - room, high + room


def _limits_of_the_alike(limits: Sequence[Limits]) -> Limits:
    alike = [own for own in limits if _are_alike(own, limits)]
    return min(low for low, _ in alike), max(high for _, high in alike)


def _are_alike(own: Limits, limits: Sequence[Limits]) -> bool:
    """Say whether limits are not much wider than the narrowest."""
    return _span(own) <= _ALIKE * min(map(_span, limits))


def _span(limits: Limits) -> float:
    return limits[1] - limits[0]


def _draw_gain_panel(axis: Axes, series: Mapping[str, Sequence[Point]], limits: Limits) -> None:
    """Draw the gains of each label with their intervals side by side, and the paper's where it has them."""
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_ylim(limits)
    for rule, aside in zip(_RULE_COLOURS, _asides(len(_RULE_COLOURS), _LABEL_STEP), strict=True):
        if series[rule]:
            places, means, halves = zip(*series[rule], strict=True)
            drawn = axis.errorbar(places, means, halves, fmt=_RULE_MARKERS[rule], **_look(rule), label=rule)
            _faint_intervals(drawn)
            arrows = _mark_cut_intervals(axis, series[rule], limits, _RULE_COLOURS[rule])
            _move_aside(axis, [*drawn.get_children(), *arrows], aside)
    if series[_PAPER]:
        places, gains, _ = zip(*series[_PAPER], strict=True)
        axis.plot(places, gains, "D", color=INK, markerfacecolor="none", markersize=4, label=_PAPER)
    axis.set_ylabel("gain, points", color=INK, fontsize=9)
    light_grid(axis, "both")


def _mark_cut_intervals(axis: Axes, points: Sequence[Point], limits: Limits, colour: str) -> list[Artist]:
    """Put an arrow where an interval goes on beyond the panel."""
    below = [place for place, mean, half in points if mean - half < limits[0]]
    above = [place for place, mean, half in points if mean + half > limits[1]]
    arrows: list[Artist] = []
    for places, limit, arrow in ((below, limits[0], "v"), (above, limits[1], "^")):
        if places:
            look: dict[str, Any] = {"color": colour, "markersize": 5, "clip_on": False, "zorder": 3}
            arrows += axis.plot(places, [limit] * len(places), arrow, **look)
    return arrows


def _name_marks_once(figure: Figure) -> None:
    """Say once, above all panels, what the marks are, some of which are in some panels alone."""
    entries = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in figure.axes)
    handles = {name: handle for panel in entries for handle, name in panel}
    names = [name for name in (*_RULE_COLOURS, _PAPER) if name in handles]
    if names:
        marks = [handles[name] for name in names]
        figure.legend(marks, names, loc="outside upper right", ncols=len(names), frameon=False, fontsize=8)


def draw_curve(outcome: Outcome, parameter: str, logarithmic: bool = False) -> None:
    """Draw score and gain over a setting; rows that are no numbers are level lines."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 4.2), layout="constrained")
    axis, beside = figure.subplots(1, 2)
    _draw_levels(axis, outcome)
    _draw_lines(axis, outcome.experiment.cells, outcome.score)
    _draw_lines(beside, outcome.experiment.cells, outcome.gain)
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
    """Draw the scores of rows that are no numbers, each with a band for its interval."""
    for cell in outcome.experiment.cells:
        for rule, colour in _RULE_COLOURS.items():
            known = _percent(outcome.score(cell, rule))
            if known is not None and _number(cell.row) is None:
                mean, half = known
                name = plain(f"{cell.row}, {rule}")
                axis.axhspan(mean - half, mean + half, color=colour, alpha=0.12, linewidth=0)
                axis.axhline(mean, color=colour, linewidth=1, linestyle=":", label=name)


def _draw_lines(axis: Axes, cells: Sequence[Cell], ask: Callable[[Cell, str], Found]) -> None:
    """Draw a line with intervals for each rule and column: rules have a colour each, columns a style and a marker."""
    styles = dict(zip(dict.fromkeys(cell.column for cell in cells), cycle(("-o", "--s", ":^")), strict=False))
    lines = {
        (rule, column): points
        for rule in _RULE_COLOURS
        for column in styles
        if (points := _points([cell for cell in cells if cell.column == column], ask, rule))
    }
    for ((rule, column), points), aside in zip(lines.items(), _asides(len(lines)), strict=True):
        x, y, halves = zip(*points, strict=True)
        name = plain(place_name((column, rule)))
        drawn = axis.errorbar(x, y, halves, fmt=styles[column], **_look(rule), label=name)
        _faint_intervals(drawn)
        _move_aside(axis, drawn.get_children(), aside)


def _points(cells: Sequence[Cell], ask: Callable[[Cell, str], Found], rule: str) -> list[Point]:
    """Return place, mean and half of the interval of every cell that has them, in the order of their places."""
    found = [(_number(cell.row), _percent(ask(cell, rule))) for cell in cells]
    return sorted((place, *known) for place, known in found if place is not None and known is not None)


def _asides(number: int, step: float = _STEP) -> list[float]:
    """Return by how many points each of some series is moved along x.

    >>> _asides(2)
    [-1.25, 1.25]
    >>> _asides(5)
    [-4.0, -2.0, 0.0, 2.0, 4.0]
    """
    step = min(step, _SPREAD / max(1, number - 1))
    return [step * (place - (number - 1) / 2) for place in range(number)]


def _move_aside(axis: Axes, parts: Iterable[Artist], points: float) -> None:
    """Move what is drawn along x, so that intervals at the same place do not cover each other.

    It is moved on the paper and not in its values, so by as much on a logarithmic scale as on any other; and after it
    is drawn, for the limits of the axis are those of the values.
    """
    from matplotlib.transforms import ScaledTranslation

    aside = axis.transData + ScaledTranslation(points / 72, 0, axis.figure.dpi_scale_trans)
    for part in parts:
        part.set_transform(aside)


def _mark_values(axis: Axes, cells: Sequence[Cell]) -> None:
    """Name the values that were measured, and no others."""
    places = {place: cell.row for cell in cells if (place := _number(cell.row)) is not None}
    axis.set_xticks(list(places), list(places.values()))
    axis.minorticks_off()
    axis.margins(x=0.08)  # room for the first line and the last


def _legend_by_rule(axis: Axes) -> None:
    """Name what is drawn, with every rule in a column of its own."""
    rules = list(_RULE_COLOURS)
    entries = list(zip(*axis.get_legend_handles_labels(), strict=True))
    entries.sort(key=lambda entry: rules.index(entry[1].split()[-1]))  # a name ends with its rule
    _legend_above(axis, [handle for handle, _ in entries], [name for _, name in entries], columns=len(rules))


def draw_ranking(outcome: Outcome, cells: Sequence[Cell]) -> None:
    """Draw the score on test of every cell, one below the other in this order, and its gains beside it.

    Rules have panels of their own: one that moves thresholds gains so much by argmax, that in the same panel nothing
    could be seen of the others.
    """
    from matplotlib.figure import Figure

    figure = Figure((11.0, 0.3 * len(cells) + 1.2), layout="constrained")
    axis, *beside = figure.subplots(1, 1 + len(_RULE_COLOURS), sharey=True)
    _draw_first(axis, outcome)
    _draw_ranked(axis, [outcome.score(cell, PREFERRED) for cell in cells], PREFERRED)
    axis.set_xlabel(f"class-balanced accuracy on test, %\nrule: {PREFERRED}", color=INK, fontsize=9)
    for one, rule in zip(beside, _RULE_COLOURS, strict=True):
        one.axvline(0, color=INK, linewidth=0.8)
        _draw_ranked(one, [outcome.gain(cell, rule) for cell in cells], rule)
        one.set_xlabel(f"gain, points, paired by seed\nrule: {rule}, on a scale of its own", color=INK, fontsize=9)
    axis.set_yticks(range(len(cells)), [plain(_ranked_name(outcome, cell)) for cell in cells], fontsize=8)
    axis.set_ylim(len(cells) - 0.4, -0.6)
    for one in (axis, *beside):
        light_grid(one, "both")
    _legend_above(axis, *axis.get_legend_handles_labels())
    save_figure(figure, outcome.folder / f"{outcome.name}.png")


def _draw_first(axis: Axes, outcome: Outcome) -> None:
    """Draw the score of the cell that gains are counted from, as a line with a band for its interval."""
    first = outcome.experiment.cells[0]
    known = _percent(outcome.score(first, PREFERRED))
    if known is not None:
        mean, half = known
        axis.axvspan(mean - half, mean + half, color=INK, alpha=0.1, linewidth=0)
        axis.axvline(mean, color=INK, linewidth=0.8, linestyle="--", label=plain(f"{first.name}, with its interval"))


def _ranked_name(outcome: Outcome, cell: Cell) -> str:
    """Return a cell's name; gains are counted from the first cell, where nothing else is said."""
    base = outcome.base(cell)
    return cell.name if base in (None, outcome.experiment.cells[0]) else f"{cell.name}\n(gain over {base.row})"


def _draw_ranked(axis: Axes, found: Sequence[Found], rule: str) -> None:
    """Draw one point for each line, with its interval."""
    points = [(place, *known) for place, one in enumerate(found) if (known := _percent(one)) is not None]
    if points:
        places, means, halves = zip(*points, strict=True)
        axis.errorbar(means, places, xerr=halves, fmt=_RULE_MARKERS[rule], **_look(rule))


# What all figures share.


def _look(rule: str) -> dict[str, Any]:
    return {"color": _RULE_COLOURS[rule], "linewidth": 1.2, "elinewidth": 0.9, "markersize": 4}


def _faint_intervals(drawn: ErrorbarContainer) -> None:
    """Let means be seen before their intervals, where there are many side by side."""
    for interval in drawn.lines[2]:
        interval.set_alpha(0.55)


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


def _legend_above(axis: Axes, handles: Sequence[Any], names: Sequence[str], columns: int = 1) -> None:
    if handles:
        # Above: there are lines and points everywhere inside.
        axis.legend(handles, names, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
