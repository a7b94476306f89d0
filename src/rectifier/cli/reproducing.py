"""rectifier reproduce: the paper's tables and figures."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rectifier._base import console
from rectifier.cli.app import app
from rectifier.cli.options import DataRoot
from rectifier.cli.training import StepKind, with_resume_hint


@app.command(
    epilog="Examples: [bold]rectifier reproduce[/] lists what there is, [bold]rectifier reproduce celeba --quick[/],"
    " [bold]rectifier reproduce cifar100-imbalanced --data-root data[/]"
)
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Experiments, or all.")] = None,
    data_root: DataRoot = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", help="Of every cell.", show_default="3, or more where it matters")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version on generated data, in seconds.")] = False,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="For the folders of the runs.")] = Path(
        "reproduced"
    ),
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="DIR",
            help="For NAME.json, NAME.md and figures.",
            show_default="results, of the checkout if experiments are; OUT/quick",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TEXT", help="Train the cells alone whose row or column has it; repeatable."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Train nothing: show what is recorded, and write its page anew.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Train anew what is recorded in the results.")] = False,
    together: Annotated[
        int | None, typer.Option("--together", help="Runs to train side by side on one GPU.", show_default="8")
    ] = None,
    experiments: Annotated[
        Path | None,
        typer.Option("--experiments", metavar="DIR", help="Their folder.", show_default="the checkout's"),
    ] = None,
    accelerator: Annotated[str, typer.Option("--accelerator", help="auto, cpu, cuda or mps.")] = "auto",
    step: StepKind = None,
) -> None:
    """Reproduce tables and figures of the paper: what is missing is trained, and the paper's numbers stand beside."""
    from rectifier._base import check
    from rectifier.data.sources import MissingDataError
    from rectifier.reproduce import find_experiments, load_experiment
    from rectifier.reproduce.work import Request, only_what_each_has
    from rectifier.reproduce.work import reproduce as run

    there = find_experiments(experiments)
    # Results lie here, or beside the checkout's own experiments where these are run from elsewhere.
    beside = Path() if experiments else next(iter(there.values())).parent.parent
    if not names:
        if quick or show or again or only:
            check.fail("NAME", "an experiment, or all", "none; rectifier reproduce lists them")
        _list({name: load_experiment(name, experiments) for name in there})
        return
    for option, number in {"--seeds": seeds, "--together": together}.items():
        if number is not None and not check.is_count(number):
            check.fail(option, "a positive integer", number)
    if show and again:
        check.fail("--show and --again", "one of them alone", "both: the one trains nothing, the other all")
    asked = dict.fromkeys([*(name for name in names if name != "all"), *(there if "all" in names else ())])
    loaded = {name: load_experiment(name, experiments) for name in asked}  # a misspelt name is told before any training
    own = only_what_each_has(loaded, only or ())
    given = {"accelerator": accelerator, "data_root": str(data_root) if data_root else None, "step": step}
    request = Request(
        results=results or (out / "quick" if quick else beside / "results"),
        runs=out / ("quick-runs" if quick else "runs"),
        settings={key: value for key, value in given.items() if value is not None},
        seeds=seeds,
        quick=quick,
        again=again,
        together=together,
        train=not show,
        experiments=experiments,
    )
    left: dict[str, str] = {}
    for name, experiment in loaded.items():
        if only and not own[name]:
            console.say(f"{name}: left alone, no row or column has {' or '.join(only)}.")
            continue
        try:
            with_resume_hint(partial(run, name, experiment, replace(request, only=own[name])), None)
        except MissingDataError as error:
            if len(loaded) == 1:
                hint = f"Without the data there is a small version: rectifier reproduce {name} --quick."
                raise MissingDataError(f"{error} {hint}") from error
            left[name] = str(error)  # data that is not here keeps no other experiment from its own
            continue
        page = request.results / f"{name}.md"
        if page.is_file():
            _show(page)
    for name, reason in left.items():
        console.say(f"Left out: {name}. {reason}")
    if left:
        raise typer.Exit(2)
    if data_root and not (data_root.is_dir() or quick or show):
        console.say(f"--data-root {data_root}: nothing there, and nothing of it was needed.")


def _list(experiments: dict[str, Any]) -> None:
    from rich.console import Console

    from rectifier.report.layout import bare_table

    table = bare_table()
    for head in ("Experiment", "What it shows", "Source"):
        table.add_column(head, overflow="fold")
    for name, experiment in experiments.items():
        table.add_row(name, experiment.title, experiment.source)
    Console(highlight=False).print(table)


def _show(page: Path) -> None:
    from rich.console import Console

    from rectifier.report.terminal_markdown import Page

    Console(highlight=False).print(Page(page.read_text(encoding="utf-8")))
    console.say(f"Written: {page}")
