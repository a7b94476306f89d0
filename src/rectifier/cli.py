"""The command line: ``rectifier VERB``. Each verb is a thin face of Python functions that do the same.

Heavy modules are imported inside the commands, so that ``rectifier --help`` answers at once. Results go to stdout;
notes, progress and errors go to stderr.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rectifier
from rectifier import console

USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError)


class _Verbs(TyperGroup):
    """The verbs, and what becomes of their errors: one message on stderr and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console.say("Interrupted. What is done is kept; the same command goes on from there.")
            raise typer.Exit(130) from None
        except USER_ERRORS as error:
            # A pipe that was closed, as by `| head`, is not an error of the user; the library ends quietly then.
            if ctx.params["traceback"] or isinstance(error, BrokenPipeError):
                raise
            _complain(error)
            raise typer.Exit(2) from None


def _complain(error: Exception) -> None:
    from rich.console import Console
    from rich.text import Text

    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        message = f"{error.strerror}: {error.filename}"
    Console(stderr=True, highlight=False).print(Text.assemble(("Error: ", "bold red"), message), soft_wrap=True)


app = typer.Typer(
    cls=_Verbs,
    name="rectifier",
    help="Train image classifiers on imbalanced data so that rare classes are recognised.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without block characters shows question marks
    app(prog_name="rectifier")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rectifier {rectifier.__version__}")
        raise typer.Exit


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", envvar="RECTIFIER_TRACEBACK", help="Show where an error came from.")
    ] = False,
) -> None:
    pass


DataSpec = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="SPEC",
        help="digits, shapes, cifar10, cifar100, celeba, deepfashion, xdomain or fashion, with options as in"
        " cifar100:imb=1; a CSV or Parquet table; a folder per class; or a store.",
    ),
]
Images = Annotated[
    Path | None, typer.Option("--images", metavar="DIR", help="The folder that a table's image paths start from.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", metavar="DIR", envvar="RECTIFIER_DATA", help="The folder that holds the data sets."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of what the reader draws, such as a split.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="An option of the reader, such as missing=NA; may be repeated. docs/data.md lists them.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON alone.")]


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

    from rectifier import check
    from rectifier.data.dataset import PARTS
    from rectifier.report import profile as profiles
    from rectifier.report.profile_figure import draw, figure_path
    from rectifier.report.profile_view import view

    # What can be wrong on this line is said before a large data set is read.
    check.raise_all([check.choice("--part", part, (*PARTS, "all"))])
    if figure is not None:
        if no_figure:
            check.fail("--figure", "given without --no-figure", "both")
        figure_path(figure)
    opened = _open(data, images, data_root, seed, settings)
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
    from rectifier import check
    from rectifier.data.dataset import ImageArray
    from rectifier.data.store import as_size, build_store

    as_size(size)  # before a large data set is read
    opened = _open(data, images, data_root, seed, settings)
    if isinstance(opened.images, ImageArray):
        check.fail("--data", "image files", f"{data}, which is in memory as it is read and needs no store")
    stored = build_store(opened, out, size, fit=fit, unreadable=unreadable, workers=workers)
    height, width, _ = stored.images.shape  # type: ignore[attr-defined]
    typer.echo(
        f"{out}: {check.amount(len(stored), 'image')} of {height} x {width}, {len(opened) - len(stored):,} left out."
    )


def _open(data: str, images: Path | None, root: Path | None, seed: int | None, settings: list[str] | None) -> Any:
    """Open the data that the options of a command line describe."""
    from rectifier import check
    from rectifier.data import sources

    options: dict[str, Any] = {}
    for setting in settings or []:
        key, equals, value = setting.partition("=")
        if not (equals and key.strip()):
            check.fail("--set", "KEY=VALUE", repr(setting))
        if key.strip() in options:
            check.fail("--set", "given once for each key (several values are listed with commas)", repr(setting))
        options[key.strip()] = value.strip()
    if reserved := {"spec", "root"} & set(options):
        check.fail("--set", "an option of the reader", f"{reserved.pop()} (--data and --data-root say that)")
    given: dict[str, Any] = {"images": images, "seed": seed}  # these may come either way
    given |= {key: sources.literal(options.pop(key)) for key in ("images", "seed") if key in options}
    return sources.open_data(data, root=root, **given, **options)


def _figure_name(name: str, part: str) -> Path:
    words = [name] if part == "train" else [name, part]
    return Path(re.sub(r"[^\w.]+", "-", "-".join(["profile", *words])).strip("-") + ".png")


if __name__ == "__main__":
    main()
