"""The profile of a data set in a terminal: a table with a row per label, then bars for the rarest classes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rectifier.data.dataset import PARTS
from rectifier.report.layout import bare_table
from rectifier.report.profile.counts import (
    DataProfile,
    Entries,
    Imbalance,
    are_binary,
    label_ratio,
    rarest,
    ratio_text,
    worst_first,
)

RAREST = 10
_LARGEST = 3  # classes shown below the rarest, for comparison
_ROWS, _ROWS_SHORT = 50, 20  # a table of more labels than the first number is cut to the second
_PLOTS, _PLOTS_SHORT = 12, 3  # the same for the plots below it
_LINEAR = 50.0  # up to this ratio the shortest bar is still visible on a linear scale
_CURVE = 12  # minimal width of a label's distribution in the table
_NAME = 12  # minimal width of a long name of a label
_BLOCKS = " ▁▂▃▄▅▆▇█"


def view(profile: DataProfile, *, width: int = 80, every: bool = False) -> RenderableType:
    """Return the profile as something that rich's ``Console.print`` shows on ``width`` columns.

    ``every`` lists all classes of all labels; by default long lists are cut to the rarest.
    """
    labels, groups = worst_first(profile["labels"]), worst_first(profile.get("groups", {}))
    rows = len(labels) if every or len(labels) <= _ROWS else _ROWS_SHORT
    plots = labels if every or len(labels) <= _PLOTS else labels[:_PLOTS_SHORT]
    if are_binary(labels) and not every:
        plots = []  # the table shows their bars
    blocks: list[RenderableType] = [*_header(profile)]
    if groups:
        blocks += ["", *_table("Group", groups, width)]
    blocks += ["", *_table("Label", labels, width, samples=profile["samples"], rows=rows)]
    for name, entry in groups + plots:
        blocks += ["", _bars(name, entry, every)]
    if rows < len(labels):
        blocks += ["", Text(f"{rows} of {len(labels)} labels are shown, the most imbalanced. --all shows all.", "dim")]
    elif not every and (0 < len(plots) < len(labels) or any(_is_long(entry) for _, entry in plots)):
        blocks += ["", Text("--all shows all classes of all labels.", "dim")]
    return Group(*blocks)


def _is_long(entry: Imbalance) -> bool:
    return len(entry["counts"]) > RAREST + _LARGEST + 1


def _header(profile: DataProfile) -> Iterator[RenderableType]:
    parts = ", ".join(f"{n:,} {part}" for part, n in profile["parts"].items())
    yield Text.assemble((profile["name"], "bold"), f": {sum(profile['parts'].values()):,} samples ({parts})")
    if paper := profile.get("paper"):
        listed = ", ".join(f"{paper[part]:,} {part}" for part in PARTS if part in paper)
        yield Text(f"Paper: {listed}; largest ratio {ratio_text(paper['ratio'])} ({paper['source']})", "dim")
    where = "all parts" if profile["part"] == "all" else profile["part"]
    yield Text(f"Class counts of {where}: {profile['samples']:,} samples. Omega is 0 if balanced, always below 1.")
    for note in profile["notes"]:
        line = Table.grid(padding=(0, 1))
        line.add_row("-", Text(note))
        yield line


def _table(
    kind: str, entries: Entries, width: int, *, samples: int | None = None, rows: int | None = None
) -> Iterator[RenderableType]:
    """Yield a table with a row per label or group; a number that all share moves to a line above it."""
    counts = [list(entry["counts"].values()) for _, entry in entries]
    numbers = {"Classes" if kind == "Label" else "Labels": [len(n) for n in counts]}
    if samples is not None:
        numbers |= {"Samples": [sum(n) for n in counts], "Missing": [samples - sum(n) for n in counts]}
    shared = {head: column[0] for head, column in numbers.items() if len(entries) > 1 and len(set(column)) == 1}
    if shared:
        listed = ", ".join(f"{n:,} {head.lower()}" for head, n in shared.items())
        yield Text(f"Each of the {len(entries)} {kind.lower()}s: {listed}.")
    binary = are_binary(entries)
    entries = entries[:rows]
    columns = {head: [f"{n:,}" for n in column[:rows]] for head, column in numbers.items() if head not in shared}
    columns["Imbalance"] = [label_ratio(entry) for _, entry in entries]
    columns["Omega"] = [f"{entry['omega']:.2f}" for _, entry in entries]
    if any("paper" in entry for _, entry in entries):
        columns["Paper"] = [ratio_text(entry["paper"]["ratio"]) if "paper" in entry else "" for _, entry in entries]

    taken = sum(max(map(len, [head, *cells])) + 2 for head, cells in columns.items())
    longest = max(len(kind), *(len(name) for name, _ in entries))
    last = 34 if binary else _CURVE + 2  # width of the column after the numbers; it needs room
    last = 0 if width - taken - last < min(longest, _NAME) else last
    name_width = max(min(longest, width - taken - last), len(kind))
    table = bare_table()
    table.add_column(kind, no_wrap=True, overflow="ellipsis", max_width=name_width)
    for head in columns:
        table.add_column(head, justify="right", no_wrap=True)
    if last:
        table.add_column("Rarer class" if binary else "Counts (log)", no_wrap=True)
    for (name, entry), *row in zip(entries, *columns.values(), strict=True):
        shape = _rarer(entry) if binary else Text(_curve(entry, width - taken - name_width - 2), "cyan")
        table.add_row(Text(name), *row, *([shape] if last else []))
    yield table
    if empty := [f"{name} {entry['empty']}" for name, entry in entries if label_ratio(entry).endswith("*")]:
        yield Text(f"* without empty classes, which make the ratio infinite: {', '.join(empty)}", "dim")


def _rarer(entry: Imbalance) -> RenderableType:
    """Return name, count and share of the rarer of two classes, and a bar that is full at one half."""
    name, n = rarest(entry["counts"])[0]
    share = n / max(sum(entry["counts"].values()), 1)
    cells = Table.grid(padding=(0, 1, 0, 0))
    cells.add_column(width=6, no_wrap=True, overflow="ellipsis")
    for width in (7, 6):
        cells.add_column(width=width, no_wrap=True, justify="right")
    cells.add_row(Text(name), f"{n:,}", f"{share:.2%}", Bar(0.5, 0, share, width=9, color="cyan"))
    return cells


def _curve(entry: Imbalance, width: int) -> str:
    """Draw the counts from largest to smallest as one line of blocks, one per class if there is room."""
    counts = sorted(entry["counts"].values(), reverse=True)
    largest = max(1, *counts)  # so that an empty label has a scale
    width = min(len(counts), max(width, _CURVE), 40)
    sampled = [counts[i * (len(counts) - 1) // max(width - 1, 1)] for i in range(width)]
    return "".join(_BLOCKS[math.ceil(8 * math.log1p(n) / math.log1p(largest))] for n in sampled)


def _bars(name: str, entry: Imbalance, every: bool) -> RenderableType:
    """Return one bar per class, rarest first; of many classes, the ten rarest and the three largest."""
    classes = rarest(entry["counts"])
    is_linear = (entry["ratio_nonempty"] or 1) <= _LINEAR
    length = float if is_linear else math.log1p
    longest = length(max(1, classes[-1][1]))
    cut = _is_long(entry) and not every
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=32)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(ratio=1)
    for member, n in classes[:RAREST] if cut else classes:
        grid.add_row(Text(member), f"{n:,}", Bar(1, 0, length(n) / longest, color="cyan"))
    if cut:
        grid.add_row(Text(f"... {len(classes) - RAREST - _LARGEST} more", "dim"), "", "")
        for member, n in classes[-_LARGEST:]:
            grid.add_row(Text(member), f"{n:,}", Bar(1, 0, length(n) / longest, color="blue"))
    noun = "labels" if "labels" in entry else "classes"
    shown = f"{RAREST} rarest and {_LARGEST} largest of {len(classes)} {noun}" if cut else f"all {len(classes)} {noun}"
    title = f" · {'linear' if is_linear else 'log'} scale · {label_ratio(entry)} · {shown}"
    return Group(Rule(Text.assemble((name, "bold"), title), align="left", style="dim"), grid)
