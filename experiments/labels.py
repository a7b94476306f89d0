"""Methods side by side on data with several labels: means, gains by imbalance, and each label's own scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rectifier._base import check
from rectifier.report.comparison import PREFERRED
from rectifier.report.layout import INK, light_grid, plain, save_figure
from rectifier.reproduce import Cell, ExperimentResult, views

from . import figures
from .paper import with_papers

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Limits = tuple[float, float]

_PAPER = "paper, argmax"
_LABEL_STEP = 5.0  # points between the rules of a label, which no line connects
_WIDEST = 4.0  # times the median: a wider interval is cut before it sets a scale
_ALIKE = 2.0  # times the smallest: panels of no larger scale share theirs


def by_label(
    groups: Mapping[str, tuple[float, float]] | None = None, drawn: Collection[str] | None = None
) -> views.Show:
    """Show methods side by side: means under every rule, gains by groups of labels, then each label.

    ``groups`` names ranges of imbalance ratios; without it, labels are split in two halves by imbalance. ``drawn``
    names the rows whose gains are drawn; without it, all are.
    """

    def show(result: ExperimentResult) -> str:
        parts = [_means(result), _group_gains(result, groups), _label_by_label(result)]
        rows = [cell.row for cell in result.experiment.cells] if drawn is None else drawn
        if draw_gains(result, rows):
            arrows = "An arrow marks an interval that extends beyond its panel."
            parts.insert(2, f"![gain of each label by its imbalance]({result.name}.png)\n\n{arrows}")
        return "\n\n".join(part for part in parts if part)

    return show


def _means(result: ExperimentResult) -> str:
    heads = ["mean over all labels, %", *views.RULE_WORDS, "paper"]
    lines = []
    for cell in result.experiment.cells:
        scores = [views.spread(result.score(cell, rule)) for rule in views.RULE_WORDS]
        lines.append([cell.row, *scores, views.paper_text(cell.paper_of())])
    return f"## Class-balanced accuracy under each rule\n\n{views.markdown_table(heads, lines)}"


def _group_gains(result: ExperimentResult, groups: Mapping[str, tuple[float, float]] | None) -> str:
    ratios = result.ratios()
    members = _members(ratios, groups)
    members = {"all": list(ratios), **members} if ratios else {}
    lines = []
    for cell in result.experiment.cells:
        if cell.against is None:
            continue
        papers = [result.paper_gain(cell, names) for names in members.values()]
        if papers and papers[0] is None:  # for all labels the paper may give only the mean
            papers[0] = result.paper_gain(cell)
        for rule in views.RULE_WORDS:
            gains = [result.gain_of(cell, rule, names) for names in members.values()]
            texts = map(views.paper_gain_text, papers)
            lines.append([cell.row, rule, *with_papers(map(views.gain_text, gains), texts, rule)])
    heads = [
        "gain, points",
        "rule",
        *(head for name, names in members.items() for head in (_group_head(name, names), "paper")),
    ]
    return f"## Gains by imbalance\n\n{views.markdown_table(heads, lines)}" if lines and members else ""


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


def _label_by_label(result: ExperimentResult) -> str:
    cells = result.experiment.cells
    heads = ["label", "imbalance, 1 : x", *(cell.row for cell in cells)]
    lines = []
    for label, ratio in result.ratios().items():
        texts = []
        for cell in cells:
            mean, paper = result.score(cell, "argmax", label)["mean"], cell.paper_of(label)
            texts.append(f"{'' if mean is None else f'{100 * mean:.1f}'}{'' if paper is None else f' ({paper:g})'}")
        lines.append([label, f"{ratio:,.0f}", *texts])
    return f"## Each label under argmax, % (paper in brackets)\n\n{views.markdown_table(heads, lines)}" if lines else ""


def draw_gains(result: ExperimentResult, rows: Collection[str]) -> bool:
    """Draw the gain of each label over the baseline, sorted by imbalance; return whether there was any.

    Every row has a panel. Panels share one scale, except those with much larger gains, which say so.
    """
    from matplotlib.figure import Figure

    ratios = result.ratios()
    drawn = [cell for cell in result.experiment.cells if cell.row in rows]
    cells = [cell for cell in drawn if figures.percent(result.gain(cell, PREFERRED)) is not None]
    if not cells or len(ratios) < 2:
        return False
    figure = Figure((max(7.0, 0.22 * len(ratios) + 1.2), 2.0 * len(cells) + 1.8), layout="constrained")
    panels = list(figure.subplots(len(cells), 1, sharex=True, squeeze=False)[:, 0])
    gains = [_gains_of_labels(result, cell, list(ratios)) for cell in cells]
    limits = [_limits_of_most(series) for series in gains]
    shared = _limits_of_the_alike(limits)
    for axis, cell, series, own in zip(panels, cells, gains, limits, strict=True):
        alike = _are_alike(own, limits)
        _draw_gain_panel(axis, series, shared if alike else own)
        remark = "" if alike else ", on a scale of its own"
        axis.set_title(plain(f"{_gain_title(result, cell)}{remark}"), loc="left", color=INK, fontsize=9)
    _name_marks_once(figure)
    names = [plain(f"{label.replace('_', ' ')} 1:{ratio:,.0f}") for label, ratio in ratios.items()]
    panels[-1].set_xticks(range(len(names)), names, rotation=90, fontsize=8)
    panels[-1].set_xlim(-0.7, len(names) - 0.3)
    figure.align_ylabels(panels)
    save_figure(figure, result.folder / f"{result.name}.png")
    return True


def _gain_title(result: ExperimentResult, cell: Cell) -> str:
    base = result.base(cell)
    return cell.row if base is None else f"{cell.row}: gain over {base.row}"


def _gains_of_labels(result: ExperimentResult, cell: Cell, labels: Sequence[str]) -> dict[str, list[figures.Point]]:
    """Return the gains of the labels in points under each rule, and the paper's."""
    found: dict[str, list[figures.Point]] = {}
    for rule in figures.RULE_COLOURS:
        gains = [figures.percent(result.gain(cell, rule, label)) for label in labels]
        found[rule] = [(place, *known) for place, known in enumerate(gains) if known is not None]
    papers = [result.paper_gain(cell, [label]) for label in labels]
    found[_PAPER] = [(place, known, 0.0) for place, known in enumerate(papers) if known is not None]
    return found


def _limits_of_most(series: Mapping[str, Sequence[figures.Point]]) -> Limits:
    """Return limits that include 0, every mean, and every interval except the ends of far too wide ones."""
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
    """Return whether limits are not much wider than the narrowest."""
    return _span(own) <= _ALIKE * min(map(_span, limits))


def _span(limits: Limits) -> float:
    return limits[1] - limits[0]


def _draw_gain_panel(axis: Axes, series: Mapping[str, Sequence[figures.Point]], limits: Limits) -> None:
    """Draw the gains of each label with their intervals side by side, and the paper's gains."""
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_ylim(limits)
    for rule, aside in zip(figures.RULE_COLOURS, figures.asides(len(figures.RULE_COLOURS), _LABEL_STEP), strict=True):
        if series[rule]:
            places, means, halves = zip(*series[rule], strict=True)
            drawn = axis.errorbar(
                places, means, halves, fmt=figures.RULE_MARKERS[rule], **figures.look(rule), label=rule
            )
            figures.faint_intervals(drawn)
            arrows = _mark_cut_intervals(axis, series[rule], limits, figures.RULE_COLOURS[rule])
            figures.move_aside(axis, [*drawn.get_children(), *arrows], aside)
    if series[_PAPER]:
        places, gains, _ = zip(*series[_PAPER], strict=True)
        axis.plot(places, gains, "D", color=INK, markerfacecolor="none", markersize=4, label=_PAPER)
    axis.set_ylabel("gain, points", color=INK, fontsize=9)
    light_grid(axis, "both")


def _mark_cut_intervals(axis: Axes, points: Sequence[figures.Point], limits: Limits, colour: str) -> list[Artist]:
    """Draw an arrow where an interval extends beyond the panel."""
    below = [place for place, mean, half in points if mean - half < limits[0]]
    above = [place for place, mean, half in points if mean + half > limits[1]]
    arrows: list[Artist] = []
    for places, limit, arrow in ((below, limits[0], "v"), (above, limits[1], "^")):
        if places:
            look: dict[str, Any] = {"color": colour, "markersize": 5, "clip_on": False, "zorder": 3}
            arrows += axis.plot(places, [limit] * len(places), arrow, **look)
    return arrows


def _name_marks_once(figure: Figure) -> None:
    """Draw one legend above all panels; some marks occur in some panels only."""
    entries = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in figure.axes)
    handles = {name: handle for panel in entries for handle, name in panel}
    names = [name for name in (*figures.RULE_COLOURS, _PAPER) if name in handles]
    if names:
        marks = [handles[name] for name in names]
        figure.legend(marks, names, loc="outside upper right", ncols=len(names), frameon=False, fontsize=8)
