"""Verbs about runs: train, evaluate, compare and predict."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rectifier._base import console
from rectifier.cli.app import app
from rectifier.cli.options import AsJson, DataRoot, Images, parsed_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from rectifier.training.config import Config

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="SPEC", help="A data set's name, a table, a folder per class, or a store."),
]
Network = Annotated[str | None, typer.Option("--network", help="rectifier list networks", show_default="resnet32")]
Epochs = Annotated[int | None, typer.Option("--epochs", show_default="30")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="Of all devices together.", show_default="128")]
Rate = Annotated[float | None, typer.Option("--lr", help="Learning rate.", show_default="the network's")]
Devices = Annotated[int | None, typer.Option("--devices", help="Devices on each node.", show_default="1")]
Nodes = Annotated[int | None, typer.Option("--nodes", help="Start with torchrun or srun.", show_default="1")]
Accelerator = Annotated[str | None, typer.Option("--accelerator", help="auto, cpu, cuda or mps.", show_default="auto")]
Precision = Annotated[str | None, typer.Option("--precision", help="auto, 32, bf16, 16 or 64.", show_default="auto")]
StepKind = Annotated[str | None, typer.Option("--step", help="auto, eager, compiled or captured.", show_default="auto")]
PresetName = Annotated[str | None, typer.Option("--preset", help="Settings to begin with: rectifier list presets.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A run's config.json, to replay it; others override.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override anything; may be repeated: rectifier list settings."),
]


@app.command(
    epilog="Examples: [bold]rectifier train --data labels.csv --images photos --epochs 20 --out runs/first[/],"
    " [bold]rectifier train --preset cifar100 --data-root DIR --out runs/cifar[/],"
    " [bold]rectifier train --resume runs/first[/]"
)
def train(
    context: typer.Context,
    data: Data = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="RUN", help="A new folder for the run.")] = None,
    images: Images = None,
    data_root: DataRoot = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help="rectifier list methods; options behind colons: crl:eta=0.5", show_default="crl"),
    ] = None,
    network: Network = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of weights, order and augmentation.", show_default="0")
    ] = None,
    devices: Devices = None,
    nodes: Nodes = None,
    accelerator: Accelerator = None,
    precision: Precision = None,
    step: StepKind = None,
    preset: PresetName = None,
    config: ConfigFile = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Go on with a run that was stopped.")
    ] = None,
    settings: Set = None,
    profile: Annotated[bool, typer.Option("--profile", help="Say first where a step's time goes.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every label at the end.")] = False,
) -> None:
    """Train a network, and leave everything that can be known of it in a folder."""
    from rectifier import training as work
    from rectifier._base import check
    from rectifier.training.engine.devices import is_first_process
    from rectifier.training.run.results import rows

    if resume is not None:
        if beside := _given(context, but=("resume", "every", "step")):
            check.fail("--resume", "alone, for the run keeps its settings", f"{beside[0]} beside it")
        run = with_resume_hint(lambda: work.resume(resume, step=step), resume)
    else:
        if out is None:
            check.fail("--out", "a new folder for the run", "nothing")
        asked = _config(_flags(context, "seed"), preset, config, settings)
        run = with_resume_hint(lambda: work.train(asked, out, profile=profile), out)
    if is_first_process():
        _show(rows(run), every)
        console.say(f"Run: {run.path}")


@app.command(epilog="Example: [bold]rectifier evaluate runs/first --posthoc threshold-adjustment[/]")
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    posthoc: Annotated[
        str | None,
        typer.Option(
            "--posthoc", help="One more rule, fitted on validation: threshold-adjustment or logit-adjustment."
        ),
    ] = None,
    part: Annotated[str, typer.Option("--part", help="test or validation.")] = "test",
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="List every label.")] = False,
) -> None:
    """Score a run's saved predictions under every decision rule, side by side."""
    from rectifier._base import check
    from rectifier.evaluation.rows import nest
    from rectifier.training.run.results import evaluate as score

    check.raise_all([check.choice("--part", part, ("test", "validation"))])
    scored = score(run, posthoc)
    if as_json:
        typer.echo(json.dumps(nest(scored), allow_nan=False, indent=1))
    else:
        _show(scored, every, part)


@app.command(
    epilog="Examples: [bold]rectifier compare runs/*[/],"
    " [bold]rectifier compare --data digits --network mlp --methods ce,crl:eta=0.5 --seeds 5 --out comparison[/]"
)
def compare(
    context: typer.Context,
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN...]", help="Finished runs.")] = None,
    data: Data = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help="With commas; options behind colons: ce,crl:eta=0.5", show_default="ce,crl"),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="How many, from --seed on.")] = 3,
    seed: Annotated[int, typer.Option("--seed", help="The first seed.")] = 0,
    resplit: Annotated[bool, typer.Option("--resplit", help="Draw the data's split anew with each seed.")] = False,
    together: Annotated[
        int | None,
        typer.Option("--together", help="Runs to train side by side on one GPU.", show_default="8; 1 on a CPU"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="For runs, tables and figures.")] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="What differences are to.", show_default="ce")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            "--rule",
            help="Of labels: argmax, prior, tuned or preferred (what validation likes).",
            show_default="argmax",
        ),
    ] = None,
    images: Images = None,
    data_root: DataRoot = None,
    network: Network = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    devices: Devices = None,
    nodes: Nodes = None,
    accelerator: Accelerator = None,
    precision: Precision = None,
    step: StepKind = None,
    preset: PresetName = None,
    config: ConfigFile = None,
    settings: Set = None,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="List every label or class.")] = False,
) -> None:
    """Compare runs: means with 95 % intervals, differences paired by seed. Missing runs are trained."""
    from rectifier._base import check
    from rectifier.report.comparison import COMPARED, compare_runs
    from rectifier.training import many as suite
    from rectifier.training.engine.devices import is_first_process

    check.raise_all([check.choice("--rule", rule or "argmax", COMPARED)])
    if runs:
        if given := _given(context, but=("runs", "out", "baseline", "rule", "as_json", "every")):
            check.fail("runs that are there", "given without settings", f"{given[0]} beside them")
        result = compare_runs(runs, baseline)
    else:
        if out is None:
            check.fail("--out", "a folder for runs, tables and figures", "nothing")
        names = _methods(methods or "ce,crl")
        first = _config(_flags(context), preset, config, settings)
        planned = suite.plan(first, names, range(seed, seed + seeds), out, resplit=resplit)
        found = with_resume_hint(lambda: suite.train_missing(planned, together), None)
        if not is_first_process():
            return
        result = compare_runs(found, baseline)
    show_comparison(result, out, as_json, every, rule or "argmax")


@app.command(epilog="Example: [bold]rectifier predict runs/first photos/ --out predictions.csv[/]")
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="Images, folders or tables of images.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="A CSV file.", show_default="stdout")
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option("--rule", help="argmax, prior or tuned.", show_default="what validation prefers"),
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--images", metavar="DIR", help="The folder that a table's paths start from.")
    ] = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Probabilities by temperatures that were fitted on validation.")
    ] = False,
    batch_size: Annotated[int, typer.Option("--batch-size")] = 256,
    accelerator: Annotated[str, typer.Option("--accelerator", help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Predict the labels of new images with a run's network: a table with classes and probabilities."""
    from rectifier.training.predict import check_writable, predict_images

    if out is not None:
        check_writable(out)
    options: dict[str, Any] = {"rule": rule, "root": root, "calibrated": calibrated}
    forecast = predict_images(run, images, batch_size=batch_size, device=accelerator, **options)
    console.say(f"Decision rule: {forecast.rule}, {forecast.why}.")
    for name, reason in forecast.unreadable:
        console.say(f"Not readable: {name} ({reason})")
    if out is None:
        typer.echo(forecast.text(), nl=False)
    else:
        forecast.write(out)
        console.say(f"{out}: {len(forecast.images):,} images")


def show_comparison(result: Any, out: Path | None, as_json: bool, every: bool, rule: str) -> None:
    """Print a comparison, and write its tables and figures where a folder is given."""
    from rich.console import Console

    from rectifier.report.comparison.figure import draw
    from rectifier.report.comparison.tables import write_tables
    from rectifier.report.comparison.view import view

    if as_json:
        typer.echo(json.dumps(result.as_dict(), allow_nan=False, indent=1))
    else:
        screen = Console(highlight=False)
        screen.print(view(result, width=screen.width, every=every, rule=rule))
    if out is not None:
        written = [*write_tables(result, out), *draw(result, out, rule=rule)]
        console.say(f"Written into {out}: {', '.join(path.name for path in written)}")


def _show(scored: Any, every: bool, part: str = "test") -> None:
    from rich.console import Console

    from rectifier.report.run_view import view

    screen = Console(highlight=False)
    screen.print(view(scored, part, every=every))


_FLAGS = (
    *("data", "images", "data_root", "method", "network", "epochs", "batch_size", "lr"),
    *("devices", "nodes", "accelerator", "precision", "step"),
)


def _flags(context: typer.Context, *more: str) -> dict[str, Any]:
    """Return the settings that were given as options of their own.

    Where the environment says the data lie is left to the reader: a config that is replayed has its own folder.
    """
    given = {key: context.params[key] for key in (*_FLAGS, *more) if key in context.params}
    if getattr(context.get_parameter_source("data_root"), "name", "") != "COMMANDLINE":
        given.pop("data_root")
    return {key: str(value) if isinstance(value, Path) else value for key, value in given.items() if value is not None}


def _methods(given: str) -> list[str]:
    """Return the methods of a list with commas; a number behind a comma goes on with the option before it."""
    pieces = [piece.strip() for piece in given.split(",") if piece.strip()]
    names: list[str] = []
    for piece in pieces:
        if names and "=" in names[-1] and re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?(:.*)?", piece):
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


def _given(context: typer.Context, but: tuple[str, ...]) -> list[str]:
    """Return the options that stand on the command line; what the environment sets is no wish for this command."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name not in but
        and getattr(context.get_parameter_source(parameter.name or ""), "name", "") == "COMMANDLINE"
    ]


def _config(flags: dict[str, Any], preset: str | None, file: Path | None, settings: list[str] | None) -> Config:
    """Put a config together: a preset or a file, then options, then --set."""
    from rectifier._base import check
    from rectifier.training import presets
    from rectifier.training.config import Config

    overrides = {**flags, **parsed_settings(settings)}
    if preset and file:
        check.fail("--preset", "given without --config", "both")
    if preset:
        base = presets.preset(preset)
    elif file:
        base = Config.from_file(file)
    elif "data" in overrides:
        base = Config(overrides["data"])
    else:
        check.fail("--data", "a data set's name, a table or a folder (or --preset, --config)", "nothing")
    return base.with_settings(overrides)


def with_resume_hint(work: Callable[[], Any], run: Path | None) -> Any:
    """Do long work; when it is stopped from outside, say how to go on, and exit as a stopped program does."""
    from rectifier.training.engine.interrupt import Stopped

    try:
        return work()
    except Stopped as stopped:
        if run is not None and not (run / "config.json").is_file():
            console.say(f"Stopped by {stopped.name} before anything was written; the same command begins anew.")
            raise typer.Exit(128 + stopped.number) from None
        again = "The same command" if run is None else f"rectifier train --resume {shlex.quote(str(run))}"
        console.say(f"{stopped} {again} goes on from there.")
        raise typer.Exit(128 + stopped.number) from None
    except KeyboardInterrupt:  # a second one, that did not wait
        if run is None or not (run / "config.json").is_file():
            raise  # the same command begins anew, or goes on
        console.say(f"Interrupted. What is saved is kept; rectifier train --resume {shlex.quote(str(run))} goes on.")
        raise typer.Exit(130) from None
