"""rectifier reproduce: the tables and figures of the paper."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from rectifier._base import console
from rectifier.cli.app import show as display
from rectifier.cli.app import with_resume_hint
from rectifier.cli.options import Together, require_count, verb

if TYPE_CHECKING:
    from rectifier.reproduce.experiment import Experiment
    from rectifier.reproduce.request import Request


@verb(
    "reproduce celeba --quick",
    "reproduce cifar100-imbalanced --data-root data",
    settings=("data_root", "accelerator", "step"),
)
def reproduce(
    names: list[str] | None = Argument(None, metavar="NAME", help="Experiments, or all. Without any, list them."),
    seeds: int | None = Option(None, help="Number of seeds per table cell. \\[default: the experiment's, at least 3]"),
    quick: bool = Option(False, "--quick", help="Run a small version on generated data, in seconds."),
    out: Path = Option(Path("reproduced"), metavar="DIR", help="Folder for the runs."),
    results: Path | None = Option(
        None,
        metavar="DIR",
        help="Folder for NAME.json, NAME.md and figures. \\[default: results of the checkout; OUT/quick with --quick]",
    ),
    only: list[str] | None = Option(
        None, metavar="TEXT", help="Train only cells with TEXT in their row or column. Repeatable."
    ),
    show: bool = Option(False, "--show", help="Train nothing. Show the recorded results and rewrite their pages."),
    again: bool = Option(False, "--again", help="Retrain runs that are already recorded."),
    together: Together = None,
    experiments: Path | None = Option(None, metavar="DIR", help="Folder of experiments. \\[default: the checkout's]"),
    **given: Any,
) -> None:
    """Reproduce tables and figures of the paper: train missing runs, and show them next to the paper's numbers."""
    from rectifier.report.layout import bare_table
    from rectifier.reproduce import find_experiments, load_experiment
    from rectifier.reproduce.request import Request

    there = find_experiments(experiments)
    # Results go to the current folder, or next to the checkout's own experiments if those are run from elsewhere.
    home = Path() if experiments else next(iter(there.values())).parent.parent
    if not names:
        if quick or show or again or only:
            raise ValueError("Give NAME: an experiment, or all. List them with: rectifier reproduce")
        table = bare_table()
        for head in ("Experiment", "What it shows", "Source"):
            table.add_column(head, overflow="fold")
        for name in there:
            experiment = load_experiment(name, experiments)
            table.add_row(name, experiment.title, experiment.source)
        display(table)
        return
    require_count("--seeds", seeds)
    require_count("--together", together)
    if show and again:
        raise ValueError("Give either --show or --again, not both: one trains nothing, the other everything.")
    chosen = dict.fromkeys([*(name for name in names if name != "all"), *(there if "all" in names else ())])
    loaded = {name: load_experiment(name, experiments) for name in chosen}  # misspelt names fail before any training
    if given["data_root"] and not (quick or show or Path(given["data_root"]).is_dir()):
        raise ValueError(f"--data-root {given['data_root']} does not exist.")
    root = given["data_root"] or os.environ.get("RECTIFIER_DATA")
    settings = given | {"accelerator": given["accelerator"] or "auto", "data_root": root}
    request = Request(
        results=results or (out / "quick" if quick else home / "results"),
        runs=out / ("quick-runs" if quick else "runs"),
        settings={key: value for key, value in settings.items() if value},
        seeds=seeds,
        quick=quick,
        again=again,
        together=together,
        train=not show,
        experiments=experiments,
    )
    _reproduce_each(loaded, request, only or [])


def _reproduce_each(loaded: Mapping[str, Experiment], request: Request, only: list[str]) -> None:
    """Reproduce one experiment after another; one whose data is missing does not keep the others from running."""
    from rectifier.data.sources import MissingDataError
    from rectifier.report.terminal_markdown import Page
    from rectifier.reproduce import work
    from rectifier.reproduce.request import only_what_each_has

    own = only_what_each_has(loaded, only)
    skipped: dict[str, str] = {}
    for name, experiment in loaded.items():
        if only and not own[name]:
            console.say(f"{name}: skipped, no row or column contains {' or '.join(only)}.")
            continue
        try:
            with with_resume_hint():
                result = work.reproduce(name, experiment, replace(request, only=own[name]))
        except MissingDataError as error:
            if len(loaded) == 1:
                error.add_note(f"A small version needs no data: rectifier reproduce {name} --quick")
                raise
            skipped[name] = str(error)
            continue
        page = request.results / f"{name}.md"
        if page.is_file():
            display(Page(page.read_text(encoding="utf-8")))
            console.say(f"Written: {page}")
        if result.diverged:
            console.say("--again retrains diverged runs.")
        if only and request.train and experiment.measure is not None:
            console.say("Run without --only to measure.")
    for name, reason in skipped.items():
        console.say(f"Skipped {name}. {reason}")
    if skipped:
        raise typer.Exit(2)
