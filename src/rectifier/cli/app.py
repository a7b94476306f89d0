"""What all verbs share: the application, and what becomes of errors and interruptions."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import rectifier
from rectifier._base import console

VERBS = ["demo", "profile", "train", "evaluate", "compare", "predict", "reproduce", "list", "store"]
USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError, FloatingPointError)


class _Verbs(TyperGroup):
    """The verbs, and what becomes of their errors: one message on stderr and exit code 2, without a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=VERBS.index)

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
    if isinstance(error, OSError) and error.strerror:
        message = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
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
