"""What all verbs share: the application, and how it reports errors and interruptions."""

from __future__ import annotations

import json
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

import rectifier
from rectifier._base import console, imports

VERBS = [
    "demo",
    "profile",
    "features",
    "lr-find",
    "train",
    "evaluate",
    "compare",
    "predict",
    "reproduce",
    "list",
    "store",
]
USER_ERRORS = (ValueError, TypeError, OSError, ImportError, MemoryError, FloatingPointError)

# Python messages name arguments and objects. The user of the command line types something else.
WORDS = {
    "METHODS lists them": "`rectifier list methods` shows all",
    "NETWORKS lists them": "`rectifier list networks` shows all",
    "find_experiments() lists them": "`rectifier reproduce` shows all",
    "Use accelerator='cpu'": "Use --accelerator cpu",
    "Expected root to be": "Expected --images to be",
    "Paths in a table start from the table's folder, or from root.": "Add --images DIR, the folder that the paths of a"
    " table start from.",
}
_READER = dict.fromkeys(("lr-find", "train", "compare"), "data.") | dict.fromkeys(("profile", "features", "store"), "")


class _PlainFlags:
    """Show flags without the type that typer adds to them in the help."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            each.metavar = "" if getattr(each, "is_flag", False) else each.metavar
        return params


class Verb(_PlainFlags, TyperCommand):
    """One command."""


class _Verbs(_PlainFlags, TyperGroup):
    """The verbs. Their errors become one message on stderr without a traceback. The exit code is 2, or 1 for a package
    that is not installed.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=VERBS.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] == "resume":
            ctx.fail("No such command 'resume'. Resume with: rectifier train --resume RUN.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console.say("Interrupted. Finished work is saved; run the same command again to continue.")
            raise typer.Exit(130) from None
        except typer.BadParameter as error:
            if found := getattr(error.__cause__, "errors", None):  # pydantic's sentence does not name the value
                kind = "an integer" if "integer" in error.message else "a number"
                error.message = f"Expected {kind}, but got {found()[0]['input']!r}."
            raise
        except ModuleNotFoundError as error:
            if ctx.params["traceback"]:
                raise
            _complain(imports.with_extra(error, f"rectifier {ctx.invoked_subcommand}"))
            raise typer.Exit(1) from None
        except RuntimeError as error:
            if ctx.params["traceback"] or "torchvision::" not in str(error):
                raise
            problem = ValueError(f"The torchvision that is installed is built for another torch: {error}.")
            problem.add_note("Install both from the same source (https://pytorch.org), or uninstall torchvision.")
            _complain(problem)
            raise typer.Exit(1) from None
        except USER_ERRORS as error:
            # Closing the pipe, as `| head` does, is not an error of the user; the library ends quietly then.
            if ctx.params["traceback"] or isinstance(error, BrokenPipeError):
                raise
            if ctx.invoked_subcommand in _READER and _is_from_open_data(error):
                more = _READER[ctx.invoked_subcommand]
                error.add_note(f"Options of the reader: --images DIR, --set {more}NAME=VALUE.")
            _complain(error)
            raise typer.Exit(2) from None


def _is_from_open_data(error: Exception) -> bool:
    return any(frame.f_code.co_name == "open_data" for frame, _ in traceback.walk_tb(error.__traceback__))


def _complain(error: Exception) -> None:
    from rich.console import Console
    from rich.text import Text

    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        message = error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    for python, typed in WORDS.items():
        message = message.replace(python, typed)
    lines = "\n".join([message, *getattr(error, "__notes__", ())])
    Console(stderr=True, highlight=False).print(Text.assemble(("Error: ", "bold red"), lines), soft_wrap=True)


def show(view: Any, result: Any = None, *, as_json: bool = False) -> None:
    """Print a view of a result to stdout, or the result as JSON. ``view`` may be a function of the screen's width."""
    from rich.console import Console

    screen = Console(highlight=False)
    if as_json:
        typer.echo(json.dumps(result, allow_nan=False, indent=1))
    else:
        screen.print(view(screen.width) if callable(view) else view)


def require_choice(option: str, value: str, valid: Sequence[str]) -> None:
    """Refuse a value that is not one of a few names, and suggest the nearest."""
    if value not in valid:  # else nothing heavy is imported
        from rectifier._base import check

        raise ValueError(check.choice(option, value, valid))


@contextmanager
def with_resume_hint(*runs: Path, is_new: bool = False) -> Iterator[None]:
    """Say what to type next when the work on these runs is interrupted or fails.

    ``is_new`` if a run starts in its folder. Without runs, the same command resumes the work.
    """
    from rectifier.training import BusyError
    from rectifier.training.engine.interrupt import Stopped

    taken = is_new and any(run.is_file() or (run.is_dir() and any(run.iterdir())) for run in runs)
    try:
        yield
    except (Stopped, KeyboardInterrupt) as stopped:  # a second Ctrl-C does not wait for a checkpoint
        again = f"Run the same command again{'.' if runs else ' to resume.'}"
        console.say(" ".join([str(stopped) or "Interrupted.", *(_resume_commands(runs) or [again])]))
        raise typer.Exit(128 + getattr(stopped, "number", 2)) from None
    except BusyError as error:
        error.add_note("Wait until it is finished, or choose another folder with --out.")
        raise
    except FloatingPointError as error:
        replay = "".join(f"rectifier train --config {shlex.quote(str(run / 'config.json'))} " for run in runs)
        error.add_note(f"Try a smaller learning rate or clipped gradients: {replay}--lr RATE --set clip=1 --out DIR")
        raise
    except Exception as error:
        for hint in [*(["Choose another folder with --out."] if taken else []), *_resume_commands(runs)]:
            error.add_note(hint)
        raise


def _resume_commands(runs: Sequence[Path]) -> list[str]:
    unfinished = [run for run in runs if (run / "config.json").is_file() and not (run / "metrics.json").is_file()]
    return [f"Resume with: rectifier train --resume {shlex.quote(str(run))}" for run in unfinished]


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
    version: bool = Option(False, "--version", callback=_version, is_eager=True, help="Show the version and exit."),
    traceback: bool = Option(False, "--traceback", envvar="RECTIFIER_TRACEBACK", help="Show tracebacks of errors."),
) -> None:
    pass
