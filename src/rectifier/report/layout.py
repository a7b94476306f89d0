"""What all tables and figures have in common."""

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
# Okabe and Ito's colours, which people with any colour vision tell apart; yellow is too light for white paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def bare_table() -> Table:
    """Return a table without lines."""
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")


def number_table(title: str, *heads: str) -> Table:
    """Return a table without lines whose first column is text and whose others are numbers."""
    table = bare_table()
    table.add_column(title, overflow="fold")
    for head in heads:
        table.add_column(Text(head), justify="right", no_wrap=True)
    return table


def plain(text: str) -> str:
    """Return text as a figure shows it as it is."""
    return text.replace("$", r"\$")  # matplotlib reads what stands between dollars as mathematics


def strip(axis: Axes) -> None:
    """Leave of a frame what is needed."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8, colors=INK)


def light_grid(axis: Axes, along: str = "y") -> None:
    """Leave of a frame what is needed, and let values be read off light lines behind what is drawn."""
    strip(axis)
    axis.grid(axis=along, color=GRID, linewidth=0.6)  # type: ignore[arg-type]
    axis.set_axisbelow(True)


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure in the format that its path names, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as draft, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in a script that the font lacks is drawn as boxes
        figure.savefig(draft, dpi=150, format=path.suffix[1:].lower(), **options)
