"""The profile of a data set as a figure file: one panel per label, or one panel for many labels of two classes."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from rectifier._base import check
from rectifier.report.layout import INK, plain, save_figure, short, strip
from rectifier.report.profile.counts import DataProfile, Entries, Imbalance, are_binary, rarest, ratio_text, worst_first

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
RAREST = 10
_PANELS, _SHARES = 24, 60  # maximal number of labels, the most imbalanced
_NAMED = 12  # the names of up to this many classes fit below the bars
_BAR, _RARE = "#8fb0c9", "#c8553d"


def draw(profile: DataProfile, path: str | Path) -> Path:
    """Draw the profile into a PNG, SVG or PDF file and return its path.

    Each label is a panel with its classes from largest to smallest. Labels of two classes share one panel with the
    share of the rarer class of each. A group of labels is one panel.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    path = figure_path(path)
    groups = profile.get("groups", {})
    grouped = {f"{group}/{member}" for group, entry in groups.items() for member in entry["counts"]}
    alone = {name: label for name, label in profile["labels"].items() if name not in grouped}
    entries = worst_first(groups) + worst_first(alone)
    figure = Figure(layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))  # no pyplot: nothing global is touched
    draw_entries, limit = (_draw_shares, _SHARES) if are_binary(entries) else (_draw_panels, _PANELS)
    shown = entries[:limit]
    draw_entries(figure, shown)
    some = f", the {len(shown)} most imbalanced of {len(entries)} labels" if len(shown) < len(entries) else ""
    title = f"{profile['name']}, {profile['part']}: {profile['samples']:,} samples{some}"
    figure.suptitle(plain(title), fontsize=12, fontweight="bold", color=INK)
    save_figure(figure, path)
    return path


def figure_path(path: str | Path) -> Path:
    """Return the path if its suffix names a format that ``draw`` writes.

    >>> figure_path("counts.txt")
    Traceback (most recent call last):
    ValueError: Expected the figure's file to be named .png, .svg or .pdf, but got 'counts.txt'.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        check.fail("the figure's file", "named .png, .svg or .pdf", repr(path.name))
    return path


def _draw_panels(figure: Figure, entries: Entries) -> None:
    across = 2 if len(entries) == 4 else min(len(entries), 3)
    down = math.ceil(len(entries) / across)
    figure.set_size_inches(max(4.0 * across, 7.0), 3.0 * down + 0.5 if down > 1 else 4.2)
    axes = figure.subplots(down, across, squeeze=False).flatten()
    for axis, (name, entry) in zip(axes, entries, strict=False):
        _draw_counts(axis, name, entry)
    for axis in axes[len(entries) :]:
        axis.set_axis_off()


def _draw_counts(axis: Axes, name: str, entry: Imbalance) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    members, counts = zip(*reversed(rarest(entry["counts"])), strict=True)
    named = len(counts) <= _NAMED
    turned = named and len(counts) > 8 and counts[0] > 999  # five digits are as wide as one of eight bars
    rare = 0 if named else RAREST
    colours = [_BAR] * (len(counts) - rare) + [_RARE] * rare
    bars = axis.bar(range(len(counts)), counts, width=0.8 if len(counts) <= 60 else 1.0, color=colours)
    axis.set_yscale("log")
    axis.set_ylim(0.7, max(counts[0], 1) * (20 if turned else 5))
    axis.set_xlim(-0.6, len(counts) - 0.4)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel("samples", fontsize=8, color=INK)
    if named:
        rotation = 90 if turned else 0
        axis.bar_label(bars, [f"{n:,}" for n in counts], fontsize=6.5, color=INK, padding=1, rotation=rotation)
        names = [plain(short(member, 14)) for member in members]
        tilt = max(map(len, names)) > 3
        axis.set_xticks(range(len(names)), names, rotation=40 if tilt else 0, ha="right" if tilt else "center")
    else:
        axis.set_xticks([])
        noun = "labels" if "labels" in entry else "classes"
        three = ", ".join(f"{short(member, 16)} {n:,}" for member, n in rarest(entry["counts"])[:3])
        caption = f"{len(counts)} {noun}, the {RAREST} rarest in red: {three}, ..."
        axis.set_xlabel(plain(fill(caption, 52)), fontsize=8, color=INK)
    axis.set_title(plain(short(name, 40)) + "\n", fontsize=10, fontweight="bold", color=INK, loc="left")
    axis.text(0, 1.025, _caption(entry), transform=axis.transAxes, fontsize=8, color=INK)
    strip(axis)


def _draw_shares(figure: Figure, entries: Entries) -> None:
    figure.set_size_inches(7.5, max(0.21 * len(entries) + 1.4, 2.4))
    axis = figure.subplots()
    for row, (_, entry) in enumerate(entries):
        member, n = rarest(entry["counts"])[0]
        share = 100 * n / max(sum(entry["counts"].values()), 1)
        axis.barh(row, share, color=_RARE if share < 10 else _BAR)
        caption = f"{plain(short(member, 14))} {n:,} · {_caption(entry)}"
        axis.text(share + 0.5, row, caption, va="center", fontsize=7, color=INK)
    axis.set_yticks(range(len(entries)), [plain(short(name, 28)) for name, _ in entries])
    axis.set_ylim(len(entries) - 0.4, -0.6)
    axis.set_xlim(0, 80)  # the longest bar is 50; its caption needs the rest
    axis.set_xticks(range(0, 51, 10))
    axis.set_xlabel("share of the rarer class (%), red below 10", fontsize=8, color=INK, x=0.31)
    strip(axis)


def _caption(entry: Imbalance) -> str:
    parts = [ratio_text(entry["ratio_nonempty"]), f"Ω {entry['omega']:.2f}"]
    if entry["empty"]:
        parts.append(f"{entry['empty']} empty")
    if "paper" in entry:
        parts.append(f"paper {ratio_text(entry['paper']['ratio'])}")
    return " · ".join(parts)
