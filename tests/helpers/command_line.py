"""Shared by the tests of command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from rectifier.cli import app


def run(*arguments: object, **options: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


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
    """Return what lies in a folder: the bytes of its files, None for folders."""
    return {str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes() for path in folder.rglob("*")}
