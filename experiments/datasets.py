"""Facts about data sets: class sizes next to the paper's, and class distributions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from rectifier._base import check
from rectifier.data.sources import data_root, open_data
from rectifier.report.layout import COLOURS, GRID, INK, light_grid, plain, save_figure
from rectifier.report.profile.counts import DataProfile, Imbalance, profile, ratio_text
from rectifier.report.published import published_data, published_ratio
from rectifier.reproduce.views import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

T = TypeVar("T")

# Which data is available.


def describe(
    specs: Sequence[str], root: str | None, facts: Callable[[DataProfile], T], before: Mapping[str, T]
) -> tuple[dict[str, T], dict[str, str]]:
    """Return facts of data that is, or was, available, and how to get the rest."""
    here, not_here = look(specs, root)
    known = {**before, **{spec: facts(found) for spec, found in here.items()}}
    missing = {spec: message for spec, message in not_here.items() if spec not in known}
    return {spec: known[spec] for spec in specs if spec in known}, missing


def look(specs: Sequence[str], root: str | None) -> tuple[dict[str, DataProfile], dict[str, str]]:
    """Return the profiles of the available training data, and how to get the rest."""
    here: dict[str, DataProfile] = {}
    not_here: dict[str, str] = {}
    for spec in specs:
        try:
            here[spec] = profile(open_data(spec, root=root))
        except FileNotFoundError as error:
            not_here[spec] = _anywhere(str(error), data_root(root))
    return here, not_here


def _anywhere(text: str, root: Path) -> str:
    """Replace the data folder of this machine in a text by ``DATA_ROOT``."""
    behind = "" if root.is_absolute() else "(?=/)"  # else it may be any word
    return re.sub(rf"(?<![\w./-]){re.escape(str(root))}{behind}", "DATA_ROOT", text)


def not_here_text(not_here: Mapping[str, str], name: str) -> str:
    """List missing data, and the command that looks for it again."""
    if not not_here:
        return ""
    specs_by_text: dict[str, list[str]] = {}  # data sets made from one source have the same text
    for spec, message in not_here.items():
        specs_by_text.setdefault(message, []).append(spec)
    listed = [f"- **{', '.join(specs)}**: {message}" for message, specs in specs_by_text.items()]
    again = f"`rectifier reproduce {name} --data-root DATA_ROOT` looks again."
    return "\n".join(["## Missing data", "", *listed, "", again])


# Imbalance.


class ClassSizes(TypedDict):
    """Training images of a label's classes, or of a group's attributes; those without images count as ``empty``."""

    classes: int
    smallest: int
    largest: int
    ratio: float | None
    empty: int


class DataFacts(TypedDict):
    """One row in the table of data sets; ``sizes`` are of groups if the labels come in groups, else of labels."""

    images: dict[str, int]
    labels: int
    classes: tuple[int, int]  # the fewest and the most classes of a label
    grouped: bool
    sizes: dict[str, ClassSizes]
    fingerprint: str
    notes: list[str]


def facts_of(found: DataProfile, root: str | None = None) -> DataFacts:
    """Return the facts of a data set as values for JSON."""
    numbers = [label["classes"] for label in found["labels"].values()]
    groups = found.get("groups", {})
    entries: Mapping[str, Imbalance] = groups or found["labels"]
    return {
        "images": dict(found["parts"]),
        "labels": len(numbers),
        "classes": (min(numbers), max(numbers)),
        "grouped": bool(groups),
        "sizes": {name: _sizes(entry) for name, entry in entries.items()},
        "fingerprint": found["fingerprint"],
        "notes": [_anywhere(note, data_root(root)) for note in found["notes"]],
    }


def _sizes(entry: Imbalance) -> ClassSizes:
    present = [n for n in entry["counts"].values() if n] or [0]
    return {
        "classes": len(entry["counts"]),
        "smallest": min(present),
        "largest": max(present),
        "ratio": entry["ratio_nonempty"],
        "empty": entry["empty"],
    }


PaperClasses = tuple[str, str, str]
"""The paper's numbers as text: labels, classes per label, training images per class."""


def data_table(here: Mapping[str, DataFacts], specs: Sequence[str], paper: Mapping[str, PaperClasses]) -> str:
    """Return a table with one line for each data set, and one below it for the paper's numbers."""
    lines = []
    for spec in specs:
        lines.append(_data_line(spec, here[spec]) if spec in here else [f"{spec}: missing", *[""] * 8])
        if said := published_data(spec):
            images = [f"{said[part]:,}" if part in said else "" for part in ("total", "train", "validation", "test")]
            lines.append(["paper", *images, *paper.get(spec, ("", "", "")), ratio_text(said["ratio"])])
    heads = ["data set", "images", "training", "validation", "test", "labels", "classes of a label"]
    return markdown_table([*heads, "training images of a class", "largest ratio"], lines)


def _data_line(spec: str, facts: DataFacts) -> list[str]:
    images, sizes = facts["images"], facts["sizes"]
    worst = max(sizes, key=lambda name: sizes[name]["ratio"] or 0)
    smallest, largest = min(s["smallest"] for s in sizes.values()), max(s["largest"] for s in sizes.values())
    where = f" ({worst})" if len(sizes) > 1 else ""
    return [
        spec,
        *(f"{n:,}" for n in (sum(images.values()), images["train"], images["validation"], images["test"])),
        *(f"{facts['labels']:,}", _from_to(*facts["classes"]), _from_to(smallest, largest)),
        ratio_text(sizes[worst]["ratio"]) + where,
    ]


def _from_to(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def label_table(spec: str, facts: DataFacts) -> str:
    """Return a table with one line for each label or group, the least imbalanced first, and notes below."""
    ordered = sorted(facts["sizes"].items(), key=lambda item: (item[1]["ratio"] or 0, item[0]))
    paper = {name: said["ratio"] for name, _ in ordered if (said := published_ratio(spec, name))}
    has_empty = any(sizes["empty"] for _, sizes in ordered)
    heads = ["group" if facts["grouped"] else "label", "attributes" if facts["grouped"] else "classes"]
    heads += ["smallest", "largest", *["without images"] * has_empty, "ratio", *["paper"] * bool(paper)]
    lines = []
    for name, sizes in ordered:
        numbers = [sizes["classes"], sizes["smallest"], sizes["largest"], *[sizes["empty"]] * has_empty]
        papers = [ratio_text(paper.get(name))] * bool(paper)
        lines.append([name, *(f"{n:,}" for n in numbers), ratio_text(sizes["ratio"]), *papers])
    notes = "\n".join(f"- {note}" for note in facts["notes"])
    return "\n\n".join(filter(None, [f"## {spec}, training part", markdown_table(heads, lines), notes]))


# Class distributions.

SizesByName = Mapping[str, Sequence[int]]
"""Class sizes, the largest first, by label or by series."""

_ACROSS = 4  # panels in a row
_WIDTH = 10.0  # inches
_FEW_POWERS = 300  # up to this ratio, powers of ten are too few ticks


def sorted_sizes(found: DataProfile) -> dict[str, list[int]]:
    """Return the class sizes of each label, the largest first."""
    return {name: sorted(label["counts"].values(), reverse=True) for name, label in found["labels"].items()}


def series_table(sizes: SizesByName) -> str:
    """Return a table with one line for each entry of a series."""
    lines = []
    for name, counts in sizes.items():
        numbers = (len(counts), sum(counts), counts[0], _smallest(counts))
        lines.append([name, *(f"{n:,}" for n in numbers), ratio_text(_ratio(counts))])
    return markdown_table(["", "classes", "training images", "largest class", "smallest class", "ratio"], lines)


def _smallest(counts: Sequence[int]) -> int:
    return min((n for n in counts if n), default=0)


def _ratio(counts: Sequence[int]) -> float:
    return counts[0] / max(_smallest(counts), 1)


def _least_imbalanced_first(sizes: SizesByName) -> list[tuple[str, Sequence[int]]]:
    return sorted(sizes.items(), key=lambda item: (_ratio(item[1]), item[0]))


def draw_distributions(data: Mapping[str, SizesByName], series: Mapping[str, SizesByName], path: Path) -> bool:
    """Draw class sizes of data sets by label, and series as lines; return whether there was anything to draw.

    Labels with two classes share one panel; other labels have one each.
    """
    from matplotlib.figure import Figure

    blocks = []
    for title, sizes in data.items():
        binary = len(sizes) > 1 and all(len(counts) == 2 for counts in sizes.values())
        height = 3.9 if binary else 2.1 * math.ceil(len(sizes) / _ACROSS) + 0.5
        blocks.append((height, partial(_draw_pairs if binary else _draw_panels, title=title, sizes=sizes)))
    blocks += [(3.4, partial(_draw_lines, title=title, sizes=sizes)) for title, sizes in series.items()]
    if not blocks:
        return False
    heights = [height for height, _ in blocks]
    figure = Figure((_WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(blocks), 1, squeeze=False, height_ratios=heights)[:, 0]
    for part, (_, draw) in zip(parts, blocks, strict=True):
        draw(part)
    save_figure(figure, path)
    return True


def _draw_pairs(part: SubFigure, title: str, sizes: SizesByName) -> None:
    """Draw the two classes of each label, one above the other."""
    ordered = _least_imbalanced_first(sizes)
    places = range(len(ordered))
    largest, smallest = ([counts[i] for _, counts in ordered] for i in (0, 1))
    axis = _one_axis(part, title)
    axis.vlines(places, smallest, largest, color=GRID, linewidth=3, zorder=1)
    axis.scatter(places, largest, 22, color=COLOURS[0], label="larger class", zorder=2)
    axis.scatter(places, smallest, 22, color=COLOURS[1], label="smaller class", zorder=2)
    axis.set_xticks(places, [plain(name.replace("_", " ")) for name, _ in ordered], rotation=90)
    axis.set_xlim(-0.7, len(ordered) - 0.3)
    _finish(axis, sizes, "training images")
    axis.legend(frameon=False, fontsize=8, loc="lower left")


def _draw_panels(part: SubFigure, title: str, sizes: SizesByName) -> None:
    """Draw the classes of each label in a panel, all on one scale."""
    ordered = _least_imbalanced_first(sizes)
    across = min(_ACROSS, len(ordered))
    _entitle(part, title)
    axes = part.subplots(math.ceil(len(ordered) / across), across, squeeze=False, sharey=True)
    for number, (axis, (name, counts)) in enumerate(zip(axes.flat, ordered, strict=False)):
        axis.bar(range(1, len(counts) + 1), counts, width=0.8 if len(counts) < 60 else 1.0, color=COLOURS[0])
        axis.set_title(plain(f"{name}, {ratio_text(_ratio(counts))}"), fontsize=9, color=INK)
        axis.set_xlabel(check.amount(len(counts), "class"), fontsize=8, color=INK)
        axis.set_xticks([])
        _finish(axis, sizes, "" if number % across else "training images")
    for axis in axes.flat[len(ordered) :]:
        axis.set_axis_off()


def _draw_lines(part: SubFigure, title: str, sizes: SizesByName) -> None:
    """Draw a line for each entry, over its classes."""
    axis = _one_axis(part, title)
    for number, (name, counts) in enumerate(sizes.items()):
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(range(1, len(counts) + 1), counts, color=colour, linewidth=1.4, label=plain(name))
    axis.set_xlabel("class, the largest first", color=INK, fontsize=9)
    _finish(axis, sizes, "training images")
    axis.legend(frameon=False, fontsize=8)


def _entitle(part: SubFigure, title: str) -> None:
    part.suptitle(plain(title), fontsize=11, fontweight="bold", color=INK)


def _one_axis(part: SubFigure, title: str) -> Axes:
    _entitle(part, title)
    axis: Axes = part.subplots()
    return axis


def _finish(axis: Axes, sizes: SizesByName, label: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    largest = max(1, *(counts[0] for counts in sizes.values()))
    smallest = max(min(_smallest(counts) for counts in sizes.values()), 1)
    axis.set_ylim(0.7 * smallest, 1.3 * largest)  # before the scale, which otherwise fails without a positive number
    axis.set_yscale("log")
    few = largest / smallest < _FEW_POWERS
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylabel(label, color=INK, fontsize=9)
    light_grid(axis)
