"""Shared by the tests of the command line."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from rectifier.cli import app

PROGRAM = str(Path(sys.executable).with_name("rectifier"))
MLP = ("--network", "mlp", "--accelerator", "cpu")
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}

# Nothing is wrapped, and nothing that the user's environment sets has an effect.
_UNSET = ("RECTIFIER_TRACEBACK", "RECTIFIER_DATA", "RECTIFIER_QUIET", "FORCE_COLOR", "TTY_COMPATIBLE")
ENVIRONMENT: dict[str, str | None] = {"COLUMNS": "400", **dict.fromkeys(_UNSET)}


def run(*arguments: object, **options: Any) -> Any:
    return CliRunner(env=ENVIRONMENT).invoke(app, [str(argument) for argument in arguments], **options)


def succeed(*arguments: object, **options: Any) -> Any:
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def refuse(*arguments: object, **options: Any) -> str:
    """Return the one message of a command that must fail: exit code 2, nothing on stdout, nothing written here."""
    before = contents(Path())
    result = run(*arguments, **options)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("Error: ") == 1
    assert "Traceback" not in result.stderr
    assert contents(Path()) == before
    return str(result.stderr)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return what a folder holds: the bytes of its files, None for folders."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


class Photos(NamedTuple):
    """A folder with table.csv and photos/, and RUN, which was trained from them."""

    folder: Path
    result: Any

    @property
    def run(self) -> Path:
        return self.folder / "RUN"

    @property
    def images(self) -> list[Path]:
        return sorted((self.folder / "photos").iterdir())
