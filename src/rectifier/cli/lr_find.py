"""rectifier lr-find: find a learning rate before training."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from rectifier._base import console
from rectifier.cli import options
from rectifier.cli.app import show

if TYPE_CHECKING:
    from rich.table import Table

    from rectifier.training.engine.rate_range import RateCurve

_ROWS, _BAR = 15, 40  # of the table, and letters of its longest bar
_HARDLY = 0.05  # of the first loss


@options.verb(
    "lr-find --data labels.csv --images photos",
    "lr-find --preset cifar100 --data-root DIR --out rates.png",
    settings=(*(name for name in options.RUN_SETTINGS if name != "lr"), "method", "seed"),
    panel="Settings of the run",
)
def lr_find(
    context: typer.Context,
    out: Path | None = Option(None, metavar="FILE", help="Draw the curve into a PNG, SVG or PDF file."),
    steps: int = Option(100, help="Training steps, each at a higher rate."),
    preset: options.PresetName = None,
    config: options.ConfigFile = None,
    settings: options.Set = None,
    **given: Any,
) -> None:
    """Find a learning rate: train briefly at rising rates, and show where the loss falls. Saves no run."""
    from rectifier.report.profile.figure import figure_path
    from rectifier.training.lr_find import find_rate_of

    if out is not None:
        figure_path(out)  # a wrong suffix is refused before the data is read
    curve = find_rate_of(options.build_config(given, preset, config, settings), steps=steps)
    show(_table(curve))
    if curve.fall < _HARDLY:
        console.say(
            f"The loss falls by only {100 * curve.fall:.1f} %, so the suggestion is uncertain."
            " The network may be trained already, or needs more --steps."
        )
    if out is not None:
        _draw(curve, out)
        console.say(f"Figure: {out}")
    console.say(f"Train with: rectifier train {_repeated(context)} --lr {curve.suggestion:.2g} --out RUN")


def _table(curve: RateCurve) -> Table:
    """Show some rates with their losses, and the suggested one."""
    from rectifier.report.layout import number_table

    table = number_table("rate", "loss", "")
    table.columns[-1].justify = "left"
    every = max(1, len(curve.rates) // _ROWS)
    highest = max(curve.losses)
    for number, (rate, loss) in enumerate(zip(curve.rates, curve.losses, strict=True)):
        suggested = rate == curve.suggestion
        if suggested or number % every == 0:
            bar = "█" * round(_BAR * loss / highest) + ("  suggested" if suggested else "")
            table.add_row(f"{rate:.2g}", f"{loss:.3f}", bar)
    return table


def _draw(curve: RateCurve, path: Path) -> None:
    from matplotlib.figure import Figure

    from rectifier.report.layout import COLOURS, INK, light_grid, save_figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")  # no pyplot: nothing global is touched
    axis = figure.subplots()
    axis.plot(curve.rates, curve.losses, color=COLOURS[0])
    axis.axvline(curve.suggestion, color=COLOURS[1], linewidth=1, linestyle="--", label=f"{curve.suggestion:.2g}")
    axis.set_xscale("log")
    axis.set_xlabel("learning rate", fontsize=8, color=INK)
    axis.set_ylabel("smoothed training loss (lower is better)", fontsize=8, color=INK)
    axis.legend(title="suggested rate", frameon=False, fontsize=8, title_fontsize=8)
    light_grid(axis)
    save_figure(figure, path)


def _repeated(context: typer.Context) -> str:
    """Return the options of the command line that ``train`` takes too."""
    words = []
    for parameter in context.command.params:
        value = context.params[parameter.name or ""]
        if parameter.name in ("out", "steps") or value is None:
            continue
        for each in value if parameter.name == "settings" else [value]:
            words += [parameter.opts[0], str(each)]
    return shlex.join(words)
