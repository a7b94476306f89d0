"""rectifier profile: how imbalanced data is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from typer import Option

from rectifier._base import console
from rectifier.cli.app import require_choice, show
from rectifier.cli.options import AsJson, Every, ReaderSeed, ReaderSet, open_described, verb


@verb(
    "profile --data digits",
    "profile --data labels.csv --images photos --json",
    settings=("data", "images", "data_root"),
    required="data",
)
def profile(
    part: str = Option("train", help="Part to count: train, validation, test or all."),
    seed: ReaderSeed = None,
    settings: ReaderSet = None,
    as_json: AsJson = False,
    figure: Path | None = Option(None, metavar="FILE", help="PNG, SVG or PDF file. \\[default: profile-NAME.png]"),
    no_figure: bool = Option(False, "--no-figure", help="Write no figure. --json implies it."),
    every: Every = False,
    **given: Any,
) -> None:
    """Show how imbalanced a data set is: classes, samples, ratio and the rarest classes of each label."""
    from rectifier.data.dataset import PARTS
    from rectifier.report.profile import counts as profiles
    from rectifier.report.profile.figure import draw, figure_path
    from rectifier.report.profile.view import view

    # Errors on the command line come before a large data set is read.
    require_choice("--part", part, (*PARTS, "all"))
    if figure is not None:
        if no_figure:
            raise ValueError("Give either --figure or --no-figure, not both.")
        figure_path(figure)
    opened = open_described(given, seed, settings)
    result = profiles.profile(opened, None if part == "all" else part)
    show(lambda width: view(result, width=width, every=every), result, as_json=as_json)
    if figure is None and not as_json and not no_figure:
        words = ["profile", result["name"], *([part] if part != "train" else [])]
        figure = Path(re.sub(r"[^\w.]+", "-", "-".join(words)).strip("-") + ".png")
    if figure is not None:
        console.say(f"Figure: {draw(result, figure)}")
