"""Verbs about data: profile and store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from rectifier._base import console
from rectifier.cli.app import app
from rectifier.cli.options import AsJson, DataRoot, DataSpec, Images, Seed, Settings, open_described


@app.command(
    epilog="Examples: [bold]rectifier profile --data digits[/]"
    " or [bold]rectifier profile --data labels.csv --images photos --json[/]"
)
def profile(
    data: DataSpec,
    images: Images = None,
    data_root: DataRoot = None,
    part: Annotated[str, typer.Option("--part", help="train, validation, test or all.")] = "train",
    seed: Seed = None,
    settings: Settings = None,
    as_json: AsJson = False,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="PNG, SVG or PDF file.", show_default="profile-NAME.png"),
    ] = None,
    no_figure: Annotated[bool, typer.Option("--no-figure", help="Write no figure, as with --json.")] = False,
    every: Annotated[bool, typer.Option("--all", help="List every class of every label.")] = False,
) -> None:
    """Show how imbalanced a data set is: classes, samples, ratio and the rarest classes of each label."""
    from rich.console import Console

    from rectifier._base import check
    from rectifier.data.dataset import PARTS
    from rectifier.report.profile import counts as profiles
    from rectifier.report.profile.figure import draw, figure_path
    from rectifier.report.profile.view import view

    # What can be wrong on this line is said before a large data set is read.
    check.raise_all([check.choice("--part", part, (*PARTS, "all"))])
    if figure is not None:
        if no_figure:
            check.fail("--figure", "given without --no-figure", "both")
        figure_path(figure)
    opened = open_described(data, images, data_root, seed, settings)
    result = profiles.profile(opened, None if part == "all" else part)
    if as_json:
        typer.echo(json.dumps(result, allow_nan=False, indent=1))
    else:
        screen = Console(highlight=False)
        screen.print(view(result, width=screen.width, every=every))
    if figure is None and not as_json and not no_figure:
        figure = _figure_name(result["name"], part)
    if figure is not None:
        console.say(f"Figure: {draw(result, figure)}")


@app.command(
    epilog="Example: [bold]rectifier store --data labels.csv --images photos --size 64x48 --out photos.store[/]"
)
def store(
    data: DataSpec,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the store.")],
    size: Annotated[
        str | None,
        typer.Option("--size", help="HEIGHTxWIDTH or a side.", show_default="the first image's, at most 224"),
    ] = None,
    fit: Annotated[str, typer.Option("--fit", help="Other aspect ratios: stretch, crop or pad.")] = "stretch",
    unreadable: Annotated[str, typer.Option("--unreadable", help="skip damaged images, or raise an error.")] = "skip",
    workers: Annotated[int | None, typer.Option("--workers", help="Processes.", show_default="one per core")] = None,
    images: Images = None,
    data_root: DataRoot = None,
    seed: Seed = None,
    settings: Settings = None,
) -> None:
    """Decode and resize images once, into a folder that can be given as --data from then on."""
    from rectifier._base import check
    from rectifier.data.dataset import ImageArray, as_size
    from rectifier.data.store import build_store

    as_size(size)  # before a large data set is read
    opened = open_described(data, images, data_root, seed, settings)
    if isinstance(opened.images, ImageArray):
        check.fail("--data", "image files", f"{data}, which is in memory as it is read and needs no store")
    stored = build_store(opened, out, size, fit=fit, unreadable=unreadable, workers=workers)
    height, width, _ = stored.images.shape  # type: ignore[attr-defined]
    typer.echo(
        f"{out}: {check.amount(len(stored), 'image')} of {height} x {width}, {len(opened) - len(stored):,} left out."
    )


def _figure_name(name: str, part: str) -> Path:
    words = [name] if part == "train" else [name, part]
    return Path(re.sub(r"[^\w.]+", "-", "-".join(["profile", *words])).strip("-") + ".png")
