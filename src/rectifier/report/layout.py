"""What all tables and figures share: colours, plain tables, axes, saving."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from rectifier._base.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#333333"
GRID = "#dddddd"
# Okabe and Ito's colours, distinguishable with any colour vision; without yellow, which is too light on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def bare_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def number_table(title: str, *heads: str) -> Table:
    """Return a table without lines: the first column is text, the others are numbers."""
    table = bare_table()
    table.add_column(title, overflow="fold")
    for head in heads:
        table.add_column(Text(head), justify="right", no_wrap=True)
    return table


def short(name: str, length: int) -> str:
    """Cut a long name in its middle, since names often differ at their end.

    >>> short("Wearing_Necklace", 10)
    'Weari…lace'
    """
    return name if len(name) <= length else f"{name[: length // 2]}…{name[len(name) - (length - 1) // 2 :]}"


def plain(text: str) -> str:
    """Escape text so that a figure shows it unchanged."""
    return text.replace("$", r"\$")  # matplotlib reads text between dollars as mathematics


def strip(axis: Axes) -> None:
    """Remove the top and right side of the frame."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, colors=INK)


def light_grid(axis: Axes, along: str = "y") -> None:
    """Strip the frame, and draw light grid lines behind the data."""
    strip(axis)
    axis.grid(axis=along, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    axis.set_axisbelow(True)


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure atomically, in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # if the font lacks a script, names become boxes
        figure.savefig(draft, dpi=150, format=path.suffix[1:].lower(), **options)
