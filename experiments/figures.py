"""A curve over a setting, and cells sorted by validation score: each a figure with its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from rectifier.report.comparison import PREFERRED
from rectifier.report.layout import COLOURS, INK, light_grid, plain, save_figure
from rectifier.reproduce import Cell, ExperimentResult, views
from rectifier.reproduce.experiment import place_name

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

Found = Mapping[str, Any] | None
"""An estimate or a difference, or None."""

Point = tuple[float, float, float]
"""A position, the mean there and half of its interval."""

# The rule by which gains count, and the paper's. A rule has the same colour in every figure.
RULE_COLOURS = {PREFERRED: COLOURS[0], "argmax": COLOURS[5]}
RULE_MARKERS = {PREFERRED: "o", "argmax": "s"}

_STEP = 2.5  # points between intervals at the same position
_SPREAD = 8.0  # points that all intervals at one position may take together


def curve(parameter: str, remark: str = "", logarithmic: bool = False) -> views.Show:
    """Show the score over one setting. Each row is a value; rows that are not numbers are level lines."""

    def show(result: ExperimentResult) -> str:
        draw_curve(result, parameter, logarithmic)
        heads = [
            parameter,
            *(f"{rule}{', gain' * gains}" for rule in views.RULE_WORDS for gains in (False, True)),
            "paper",
        ]
        lines = []
        for cell in result.experiment.cells:
            texts = []
            for rule in views.RULE_WORDS:
                texts += [views.spread(result.score(cell, rule)), views.gain_text(result.gain(cell, rule))]
            lines.append([cell.name, *texts, views.paper_text(cell.paper_of())])
        picture = f"![class-balanced accuracy over {parameter}]({result.name}.png)"
        return "\n\n".join(filter(None, [picture, views.markdown_table(heads, lines), remark]))

    return show


def draw_curve(result: ExperimentResult, parameter: str, logarithmic: bool = False) -> None:
    """Draw score and gain over a setting; rows that are not numbers are level lines."""
    from matplotlib.figure import Figure

    figure = Figure((10.0, 4.2), layout="constrained")
    axis, gains = figure.subplots(1, 2)
    _draw_levels(axis, result)
    _draw_lines(axis, result.experiment.cells, result.score)
    _draw_lines(gains, result.experiment.cells, result.gain)
    gains.axhline(0, color=INK, linewidth=0.8)
    axis.set_ylabel("class-balanced accuracy, %", color=INK, fontsize=9)
    gains.set_ylabel("gain, points, paired by seed", color=INK, fontsize=9)
    for one in (axis, gains):
        if logarithmic:
            one.set_xscale("log")
        _mark_values(one, result.experiment.cells)
        one.set_xlabel(parameter, color=INK, fontsize=9)
        light_grid(one)
        _legend_by_rule(one)
    save_figure(figure, result.folder / f"{result.name}.png")


def _draw_levels(axis: Axes, result: ExperimentResult) -> None:
    """Draw the scores of rows that are not numbers, each with a band for its interval."""
    for cell in result.experiment.cells:
        for rule, colour in RULE_COLOURS.items():
            known = percent(result.score(cell, rule))
            if known is not None and _number(cell.row) is None:
                mean, half = known
                name = plain(f"{cell.row}, {rule}")
                axis.axhspan(mean - half, mean + half, color=colour, alpha=0.12, linewidth=0)
                axis.axhline(mean, color=colour, linewidth=1, linestyle=":", label=name)


def _draw_lines(axis: Axes, cells: Sequence[Cell], ask: Callable[[Cell, str], Found]) -> None:
    """Draw a line with intervals for each rule and column: a colour per rule, a style and marker per column."""
    styles = dict(zip(dict.fromkeys(cell.column for cell in cells), cycle(("-o", "--s", ":^")), strict=False))
    lines = {
        (rule, column): points
        for rule in RULE_COLOURS
        for column in styles
        if (points := _points([cell for cell in cells if cell.column == column], ask, rule))
    }
    for ((rule, column), points), aside in zip(lines.items(), asides(len(lines)), strict=True):
        x, y, halves = zip(*points, strict=True)
        name = plain(place_name((column, rule)))
        drawn = axis.errorbar(x, y, halves, fmt=styles[column], **look(rule), label=name)
        faint_intervals(drawn)
        move_aside(axis, drawn.get_children(), aside)


def _points(cells: Sequence[Cell], ask: Callable[[Cell, str], Found], rule: str) -> list[Point]:
    """Return position, mean and half of the interval of every cell with scores, sorted by position."""
    found = [(_number(cell.row), percent(ask(cell, rule))) for cell in cells]
    return sorted((place, *known) for place, known in found if place is not None and known is not None)


def asides(number: int, step: float = _STEP) -> list[float]:
    """Return by how many points each series is shifted along x.

    >>> asides(2)
    [-1.25, 1.25]
    >>> asides(5)
    [-4.0, -2.0, 0.0, 2.0, 4.0]
    """
    step = min(step, _SPREAD / max(1, number - 1))
    return [step * (place - (number - 1) / 2) for place in range(number)]


def move_aside(axis: Axes, parts: Iterable[Artist], points: float) -> None:
    """Shift artists along x, so that intervals at the same position do not cover each other.

    The shift is in points on paper, so it is the same on any scale. It comes after drawing, so that the limits of the
    axis are those of the values.
    """
    from matplotlib.transforms import ScaledTranslation

    aside = axis.transData + ScaledTranslation(points / 72, 0, axis.figure.dpi_scale_trans)
    for part in parts:
        part.set_transform(aside)


def _mark_values(axis: Axes, cells: Sequence[Cell]) -> None:
    """Put ticks at the measured values only."""
    places = {place: cell.row for cell in cells if (place := _number(cell.row)) is not None}
    axis.set_xticks(list(places), list(places.values()))
    axis.minorticks_off()
    axis.margins(x=0.08)  # room for the first and the last line


def _legend_by_rule(axis: Axes) -> None:
    """Draw the legend with one column for each rule."""
    rules = list(RULE_COLOURS)
    entries = list(zip(*axis.get_legend_handles_labels(), strict=True))
    entries.sort(key=lambda entry: rules.index(entry[1].split()[-1]))  # a name ends with its rule
    _legend_above(axis, [handle for handle, _ in entries], [name for _, name in entries], columns=len(rules))


def ranking() -> views.Show:
    """Show every cell in one line, sorted by validation score, with its gains on test."""

    def show(result: ExperimentResult) -> str:
        cells = [cell for cell in result.experiment.cells if result.validation_score(cell)["mean"] is not None]
        if not cells:
            return "Nothing is recorded yet."
        cells.sort(key=lambda cell: result.validation_score(cell)["mean"] or 0, reverse=True)
        heads = ["method", "validation", *views.RULE_WORDS, "gain by argmax", "gain, preferred", "over"]
        lines = []
        for cell in cells:
            scores = [
                views.spread(result.validation_score(cell)),
                *(views.spread(result.score(cell, rule)) for rule in views.RULE_WORDS),
            ]
            texts = [views.gain_text(result.gain(cell, rule)) for rule in ("argmax", PREFERRED)]
            base = result.base(cell)
            lines.append([cell.name, *scores, *texts, "" if base is None else base.row])
        draw_ranking(result, cells)
        picture = f"![scores and gains of all]({result.name}.png)"
        ranked = (
            "Sorted by validation score under the preferred rule. All other numbers are of test; gains are in points."
        )
        left = [cell.name for cell in result.experiment.cells if cell not in cells]
        missing = f"Not trained yet: {', '.join(left)}." if left else ""
        return "\n\n".join(filter(None, [picture, ranked, views.markdown_table(heads, lines), missing]))

    return show


def draw_ranking(result: ExperimentResult, cells: Sequence[Cell]) -> None:
    """Draw the test score of every cell in this order, and its gains in further panels.

    Each rule has its own panel, because methods that move thresholds gain far more by argmax than others.
    """
    from matplotlib.figure import Figure

    figure = Figure((11.0, 0.3 * len(cells) + 1.2), layout="constrained")
    axis, *panels = figure.subplots(1, 1 + len(RULE_COLOURS), sharey=True)
    _draw_first(axis, result)
    _draw_ranked(axis, [result.score(cell, PREFERRED) for cell in cells], PREFERRED)
    axis.set_xlabel(f"class-balanced accuracy on test, %\nrule: {PREFERRED}", color=INK, fontsize=9)
    for one, rule in zip(panels, RULE_COLOURS, strict=True):
        one.axvline(0, color=INK, linewidth=0.8)
        _draw_ranked(one, [result.gain(cell, rule) for cell in cells], rule)
        one.set_xlabel(f"gain, points, paired by seed\nrule: {rule}, on a scale of its own", color=INK, fontsize=9)
    axis.set_yticks(range(len(cells)), [plain(_ranked_name(result, cell)) for cell in cells], fontsize=8)
    axis.set_ylim(len(cells) - 0.4, -0.6)
    for one in (axis, *panels):
        light_grid(one, "both")
    _legend_above(axis, *axis.get_legend_handles_labels())
    save_figure(figure, result.folder / f"{result.name}.png")


def _draw_first(axis: Axes, result: ExperimentResult) -> None:
    """Draw the score of the first cell as a line with a band for its interval."""
    first = result.experiment.cells[0]
    known = percent(result.score(first, PREFERRED))
    if known is not None:
        mean, half = known
        axis.axvspan(mean - half, mean + half, color=INK, alpha=0.1, linewidth=0)
        axis.axvline(mean, color=INK, linewidth=0.8, linestyle="--", label=plain(f"{first.name}, with its interval"))


def _ranked_name(result: ExperimentResult, cell: Cell) -> str:
    """Return a cell's name, with its baseline if that is not the first cell."""
    base = result.base(cell)
    return cell.name if base in (None, result.experiment.cells[0]) else f"{cell.name}\n(gain over {base.row})"


def _draw_ranked(axis: Axes, found: Sequence[Found], rule: str) -> None:
    """Draw one point for each line, with its interval."""
    points = [(place, *known) for place, one in enumerate(found) if (known := percent(one)) is not None]
    if points:
        places, means, halves = zip(*points, strict=True)
        axis.errorbar(means, places, xerr=halves, fmt=RULE_MARKERS[rule], **look(rule))


# Shared by all figures.


def look(rule: str) -> dict[str, Any]:
    return {"color": RULE_COLOURS[rule], "linewidth": 1.2, "elinewidth": 0.9, "markersize": 4}


def faint_intervals(drawn: ErrorbarContainer) -> None:
    """Draw intervals fainter than their means."""
    for interval in drawn.lines[2]:
        interval.set_alpha(0.55)


def percent(found: Found) -> tuple[float, float] | None:
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
        # Above the axis, because lines and points are everywhere inside.
        axis.legend(handles, names, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns)
