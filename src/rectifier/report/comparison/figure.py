"""A comparison of runs as figures: gain per label or class, recall against class size, and a summary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING

from rectifier.evaluation.metrics.catalogue import METRICS
from rectifier.evaluation.scoring import COMPARED
from rectifier.report.comparison.compare import BALANCED, ComparisonResult
from rectifier.report.comparison.statistics import Difference, Estimate, Result
from rectifier.report.comparison.tables import count_text, range_text, summary
from rectifier.report.layout import COLOURS, INK, light_grid, plain, save_figure, short
from rectifier.report.profile.counts import label_ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "osD^vPX"
_LABELS = 60  # up to this many labels have their own bars; more are drawn as bins
_CLASSES = 30  # the same for the classes of a single label
_SUMMARY = (BALANCED, "rarest")


def draw(comparison: ComparisonResult, folder: str | Path, *, rule: str = "argmax") -> list[Path]:
    """Draw the comparison into PNG files in the folder and return their paths.

    gain-per-label.png (gain-per-class.png for a single label) and sensitivity-against-class-size.png use one decision
    ``rule``; summary.png shows all. With a single group there is no gain to draw.
    """
    folder = Path(folder)
    single = len(comparison.labels) == 1
    figures = {"sensitivity-against-class-size": _draw_sizes(comparison, rule), "summary": _draw_summary(comparison)}
    if comparison.others:
        figures["gain-per-class" if single else "gain-per-label"] = _draw_gains(comparison, rule)
    paths = [folder / f"{name}.png" for name in sorted(figures)]
    for path in paths:
        save_figure(figures[path.stem], path, bbox_inches="tight", pad_inches=0.1)
    return paths


def _figure(width: float, height: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")  # no pyplot: nothing global is touched
    figure.suptitle(plain(short(title, int(11 * width))), fontsize=11, fontweight="bold", color=INK)
    return figure


_Bar = tuple[str, dict[str, Difference]]  # its name, and the difference of every group


def _draw_gains(comparison: ComparisonResult, rule: str) -> Figure:
    """Draw one bar for each group and label, class or bin."""
    bars, order = _class_bars(comparison, rule) if len(comparison.labels) == 1 else _label_bars(comparison, rule)
    groups = comparison.others
    longest = max(len(name) for name, _ in bars)
    turned = len(bars) > 12 or longest > 72 // len(bars)
    across = min(max(7.0, 2.0 + len(bars) * (0.12 + 0.07 * len(groups))), 20.0)
    figure = _figure(across, 4.5 + (0.065 * longest if turned else 0), f"{summary(comparison)}, rule {rule}")
    axis = figure.subplots()
    width = 0.8 / len(groups)
    for position, name in enumerate(groups):
        places = [k - 0.4 + width * (position + 0.5) for k in range(len(bars))]
        means, halves = _series([differences[name] for _, differences in bars])
        hatch = "///" if position >= len(COLOURS) else None  # hatched if the colours repeat
        colour, _, _ = _style(comparison, name)
        axis.bar(places, means, width, color=colour, hatch=hatch, label=plain(short(name, 40)))
        axis.errorbar(places, means, halves, fmt="none", elinewidth=0.9, capsize=min(3.0, 12 * width), ecolor=INK)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set_xlim(-0.6, len(bars) - 0.4)
    if limit := _limit([differences[name] for _, differences in bars for name in groups]):
        axis.set_ylim(-limit, limit)
    axis.set_xticks(range(len(bars)), [plain(name) for name, _ in bars], rotation=90 if turned else 0)
    quantity = "recall" if len(comparison.labels) == 1 else "class-balanced accuracy"
    _finish(figure, axis, order, f"gain in {quantity} (percentage points)", "y")
    return figure


def _limit(gains: Sequence[Difference]) -> float | None:
    """Return the limit of the axis, or None to let matplotlib choose.

    With few seeds, whiskers can be many times longer than the bars: the longest tenth is cut off.
    """
    means, halves = _series(gains)
    ends = sorted(abs(mean) + half for mean, half in zip(means, halves, strict=True) if mean == mean and half == half)
    highest = max((abs(mean) for mean in means if mean == mean), default=0.0)
    if not ends or ends[-1] <= 3 * highest:
        return None
    return 1.1 * max(highest, ends[int(0.9 * (len(ends) - 1))]) or None


def _label_bars(comparison: ComparisonResult, rule: str) -> tuple[list[_Bar], str]:
    """Return the bars from left to right, and a description of their order."""
    if len(comparison.labels) > _LABELS:
        bins = comparison.label_bins(rule)
        bars = [(f"{range_text(part)} ({len(part['members'])})", part["differences"]) for part in bins]
        return bars, "imbalance ratio of the labels, increasing (number of labels in each bin)"
    bars = [
        (f"{short(label['name'], 24)}  {label_ratio(label)}", comparison.label(rule, label["name"])["differences"])
        for label in reversed(comparison.labels)
    ]
    return bars, "labels, imbalance ratio increasing"


def _class_bars(comparison: ComparisonResult, rule: str) -> tuple[list[_Bar], str]:
    (label,) = comparison.labels
    bins = comparison.class_bins(rule)[::-1]
    if len(label["counts"]) > _CLASSES and bins:
        bars = [(f"{range_text(part, count_text)} ({len(part['members'])})", part["differences"]) for part in bins]
        return bars, "training samples of a class, decreasing (number of classes in each bin)"
    classes = sorted(label["counts"].items(), key=lambda item: -item[1])
    bars = [
        (f"{short(name, 18)}\n{count_text(n)}", comparison.recall(rule, label["name"], name)["differences"])
        for name, n in classes
    ]
    return bars, "class and its training samples, decreasing"


def _series(estimates: Sequence[Estimate]) -> tuple[list[float], list[float]]:
    """Return means and half-widths in percent, NaN where undefined: matplotlib leaves those out."""
    return _percents(one["mean"] for one in estimates), _percents(one["half_width"] for one in estimates)


def _percents(values: Iterable[float | None]) -> list[float]:
    return [math.nan if value is None else 100 * value for value in values]


def _draw_sizes(comparison: ComparisonResult, rule: str) -> Figure:
    figure = _figure(8.0, 5.0, f"{summary(comparison)}, rule {rule}")
    axis = figure.subplots()
    bins = comparison.class_bins(rule)
    results: list[tuple[float, Result]] = [
        (n, comparison.recall(rule, label["name"], name))
        for label in comparison.labels
        for name, n in label["counts"].items()
        if n
    ]
    middles = [(math.sqrt((part["low"] or 0) * (part["high"] or 0)), part) for part in bins]
    for group in comparison.groups:
        colour, marker, dashes = _style(comparison, group.name)
        axis.scatter(*_points(results, group.name), s=7, color=colour, alpha=0.3, linewidths=0)
        line: dict[float, list[float]] = {}
        for n, recall in zip(*_points(middles or results, group.name), strict=True):
            line.setdefault(n, []).append(recall)
        recalls = [fmean(line[n]) for n in sorted(line)]
        name = plain(short(group.name, 40))
        axis.plot(sorted(line), recalls, label=name, marker=marker, markersize=5, linestyle=dashes, color=colour)
    _log_counts(axis)
    axis.set_ylim(-4, 104)
    binned = "; lines: means of classes of similar size" if bins else ""
    horizontal = f"training samples of a class, log scale{binned}"
    _finish(figure, axis, horizontal, "recall (%), higher is better", "both")
    return figure


def _points(results: Iterable[tuple[float, Result]], group: str) -> tuple[list[float], list[float]]:
    """Return training counts and mean recalls in percent, where these are defined."""
    found = [(n, result["groups"][group]["mean"]) for n, result in results]
    return [n for n, mean in found if mean is not None], [100 * mean for _, mean in found if mean is not None]


def _log_counts(axis: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    low, high = axis.get_xlim()
    near = high / low < 1000  # within a few decades, powers of ten alone are too few marks
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if near else (1,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.6g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _draw_summary(comparison: ComparisonResult) -> Figure:
    """Draw means with intervals, a panel for each rule."""
    names = [group.name for group in comparison.groups]
    figure = _figure(3.2 * len(COMPARED), 1.9 + 2 * max(0.32 * len(names), 0.9), summary(comparison))
    axes = figure.subplots(len(_SUMMARY), len(COMPARED), squeeze=False, sharex="row", sharey=True)
    for row, metric in zip(axes, _SUMMARY, strict=True):
        for axis, rule in zip(row, COMPARED, strict=True):
            _draw_dots(axis, comparison, comparison.overall(rule, metric))
            axis.set_title(f"rule {rule}" if metric == _SUMMARY[0] else "", fontsize=9, color=INK)
            axis.set_xlabel(fill(f"{METRICS[metric].words} (%)", 36), fontsize=8, color=INK)
            light_grid(axis, "x")
    axes[0][0].set_yticks(range(len(names)), [plain(short(name, 34)) for name in names])
    axes[0][0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def _draw_dots(axis: Axes, comparison: ComparisonResult, result: Result) -> None:
    """Draw the mean of each group with its interval, and its seeds as small dots below it."""
    for place, (name, estimate) in enumerate(result["groups"].items()):
        colour, marker, _ = _style(comparison, name)
        mean, half = _series([estimate])
        axis.errorbar(mean, [place], xerr=half, color=colour, marker=marker, markersize=5, capsize=3)
        seeds = _percents(estimate["values"].values())
        axis.scatter(seeds, [place + 0.25] * len(seeds), s=8, color=colour, alpha=0.5, linewidths=0)


def _style(comparison: ComparisonResult, name: str) -> tuple[str, str, str]:
    """Return colour, marker and line of a group; the baseline is always dark and dashed."""
    if name == comparison.baseline:
        return INK, "o", "--"
    position = comparison.others.index(name)
    return COLOURS[position % len(COLOURS)], _MARKERS[(position + 1) % len(_MARKERS)], "-"


def _finish(figure: Figure, axis: Axes, horizontal: str, vertical: str, grid: str) -> None:
    """Name the axes, and put the legend below them, where it covers nothing."""
    axis.set_xlabel(horizontal, fontsize=9, color=INK)
    axis.set_ylabel(vertical, fontsize=9, color=INK)
    light_grid(axis, grid)
    handles, names = axis.get_legend_handles_labels()
    fit = int(figure.get_figwidth() / (0.7 + 0.07 * max(map(len, names))))
    columns = max(1, min(len(names), fit))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
