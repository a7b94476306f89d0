"""What all verbs share: help, errors, interruptions."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import typer

import rectifier
from helpers.command_line import PROGRAM, Photos, refuse, run, succeed
from rectifier.cli.app import VERBS, app


def test_every_verb_and_option_has_a_help_text() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert sorted(commands) == sorted(VERBS)
    for name, command in commands.items():
        assert command.help, name
        assert not [one.name for one in command.params if not one.help and one.name != "help"], name


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rectifier.data.sources.open_data", Mock(side_effect=error))


def test_version() -> None:
    assert run("--version").stdout == f"rectifier {rectifier.__version__}\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ValueError("Expected [bold]x[/bold] to be 1, but got 2."),
            "Error: Expected [bold]x[/bold] to be 1, but got 2.\n",
        ),
        (ValueError("word " * 60 + "end"), "Error: " + "word " * 60 + "end\n"),
        (TypeError("no option"), "Error: no option\n"),
        (FileNotFoundError(2, "No such file or directory", "a.csv"), "Error: No such file or directory: a.csv\n"),
        (FileNotFoundError("Expected a file."), "Error: Expected a file.\n"),
        (ImportError("Install pyarrow."), "Error: Install pyarrow.\n"),
        (ValueError(), "Error: ValueError\n"),
    ],
)
def test_errors_of_the_user(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(error, monkeypatch)
    result = run("profile", "--data", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)
    assert run("--traceback", "profile", "--data", "x").exception is error
    assert run("profile", "--data", "x", env={"RECTIFIER_TRACEBACK": "1"}).exception is error


def test_errors_of_ours_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyError("a bug"), monkeypatch)
    assert isinstance(run("profile", "--data", "x").exception, KeyError)


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(KeyboardInterrupt(), monkeypatch)
    result = run("profile", "--data", "x")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "Interrupted. Finished work is saved; run the same command again to continue.\n"


def test_a_misspelt_verb_is_answered_with_the_nearest() -> None:
    result = run("profil")
    assert result.exit_code == 2
    assert "'profile'" in result.stderr


def test_resume_is_an_option_of_train() -> None:
    result = run("resume", "runs/a")
    assert result.exit_code == 2
    assert "Resume with: rectifier train --resume RUN." in result.stderr


def test_text_in_place_of_a_number_is_named() -> None:
    result = run("train", "--data", "digits", "--epochs", "two", "--out", "run")
    assert result.exit_code == 2
    assert "Invalid value for '--epochs': Expected an integer, but got 'two'." in result.stderr


def test_flags_have_no_type_in_the_help() -> None:
    shown = succeed("compare", "--help").stdout
    assert "<bool>" not in shown
    assert "[RUN]..." in shown


def test_a_closed_pipe_is_no_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(BrokenPipeError(errno.EPIPE, "Broken pipe"), monkeypatch)
    result = run("profile", "--data", "x")
    assert (result.exit_code, result.output) == (1, "")


def test_an_error_of_the_program_itself_has_no_traceback() -> None:
    command = [PROGRAM, "train", "--data", "digits", "--method", "clr", "--out", "run"]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr == "Error: No method 'clr'. Did you mean 'crl'? `rectifier list methods` shows all.\n"
    assert not Path("run").exists()


HELP = """
import sys
from rectifier.cli import main
code = None
try:
    main()
except SystemExit as ended:
    code = ended.code
heavy = {"torch", "numpy", "matplotlib", "pandas", "lightning", "sklearn", "scipy", "PIL"}
print("code", code, "heavy", *sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("command", ["--help", *(f"{verb} --help" for verb in VERBS), "list settings"])
def test_help_imports_nothing_heavy(command: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", HELP, *command.split()], capture_output=True, text=True, encoding="utf-8", timeout=60
    )
    *shown, last = result.stdout.splitlines()
    assert last == "code 0 heavy", result.stderr
    expected = "epochs" if command == "list settings" else f"Usage: rectifier {command.removesuffix('--help')}"
    assert any(expected in line for line in shown)


@pytest.mark.parametrize("verb", ["evaluate", "predict", "compare"])
def test_a_folder_that_is_not_a_run(verb: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    more = ["mine"] if verb == "predict" else []
    message = refuse(verb, "mine", *more)
    assert "mine" in message
    assert "Resume" not in message


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_an_unfinished_run_gets_a_resume_hint(photos: Photos, verb: str) -> None:
    Path("stopped").mkdir()
    for name in ("config.json", "data.json", "environment.json", "checkpoint.pt"):
        shutil.copy(photos.run / name, "stopped")
    more = [photos.images[0], "--out", "predictions.csv", "--accelerator", "cpu"] if verb == "predict" else []
    message = refuse(verb, "stopped", *more)
    assert "\nResume with: rectifier train --resume stopped\n" in message


@pytest.mark.parametrize(("package", "extra"), [("lightning", "train"), ("pyarrow", "parquet")])
def test_a_missing_package_is_named_with_its_extra(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = ModuleNotFoundError(f"No module named '{package}.x'", name=f"{package}.x")
    fail_with(error, monkeypatch)
    result = run("profile", "--data", "x")
    sentence = f"rectifier profile needs {package}, which is not installed: pip install 'rectifier[{extra}]'"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {sentence}\n")
    assert run("--traceback", "profile", "--data", "x").exception is error
