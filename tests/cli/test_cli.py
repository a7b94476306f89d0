from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import rectifier
from rectifier.cli import app
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.labels.space import LabelSpace

COMMAND = [sys.executable, "-m", "rectifier"]


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RECTIFIER_TRACEBACK", "RECTIFIER_DATA", "RECTIFIER_QUIET"):
        monkeypatch.delenv(name, raising=False)


def tiny() -> ImageData:
    pixels = np.zeros((10, 8, 8, 1), np.uint8)
    targets = torch.tensor([[0]] * 6 + [[1]] * 2 + [[0], [1]])
    split = torch.tensor([0] * 8 + [1, 2])
    space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    return ImageData("tiny:ratio=3", ImageArray(pixels), targets, space, split, notes=("a note",))


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let every data spec open the same tiny data, and keep what was asked for."""
    calls: list[dict[str, Any]] = []

    def open_data(spec: str, **options: Any) -> ImageData:
        calls.append({"spec": spec, **options})
        return tiny()

    fake_sources(monkeypatch, open_data)
    return calls


def fake_sources(monkeypatch: pytest.MonkeyPatch, open_data: Callable[..., ImageData]) -> None:
    module = ModuleType("rectifier.data.sources")
    module.open_data = open_data  # type: ignore[attr-defined]
    module.literal = lambda text: int(text) if text.isdigit() else text  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rectifier.data.sources", module)
    monkeypatch.setattr("rectifier.data.sources", module, raising=False)


def run(*arguments: str, **options: Any) -> Any:
    return CliRunner().invoke(app, list(arguments), **options)


def test_help_names_the_verbs() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "profile" in result.stdout


def test_version() -> None:
    assert run("--version").stdout == f"rectifier {rectifier.__version__}\n"


def test_json_alone_is_on_stdout(opening: list[dict[str, Any]]) -> None:
    result = run("profile", "--data", "tiny", "--json")
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert content["labels"]["kind"]["counts"] == {"cat": 6, "dog": 2}
    assert {"classes", "samples", "missing", "ratio", "omega", "counts"} <= set(content["labels"]["kind"])
    assert result.stderr == ""
    assert not list(Path().iterdir())


def test_view_and_figure_by_default(opening: list[dict[str, Any]]) -> None:
    result = run("profile", "--data", "tiny")
    assert result.exit_code == 0
    assert "tiny:ratio=3: 10 samples (8 train, 1 validation, 1 test)" in result.stdout
    assert "- a note" in result.stdout
    assert result.stderr == "Figure: profile-tiny-ratio-3.png\n"
    assert [path.name for path in Path().iterdir()] == ["profile-tiny-ratio-3.png"]


def test_no_figure(opening: list[dict[str, Any]]) -> None:
    assert run("profile", "--data", "tiny", "--no-figure").exit_code == 0
    assert not list(Path().iterdir())


def test_json_and_a_figure(opening: list[dict[str, Any]]) -> None:
    result = run("profile", "--data", "tiny", "--json", "--figure", "plots/tiny.svg", "--part", "all")
    assert json.loads(result.stdout)["samples"] == 10
    assert Path("plots/tiny.svg").read_bytes().startswith(b"<?xml")


def test_options_reach_the_reader(opening: list[dict[str, Any]]) -> None:
    options = ["--images", "photos", "--data-root", "root", "--seed", "3", "--set", "ratio=50", "--set", "split=paper"]
    assert run("profile", "--data", "tiny", "--json", *options).exit_code == 0
    assert opening == [
        {"spec": "tiny", "images": Path("photos"), "root": Path("root"), "seed": 3, "ratio": "50", "split": "paper"}
    ]


def test_the_data_root_comes_from_the_environment(opening: list[dict[str, Any]]) -> None:
    run("profile", "--data", "tiny", "--json", env={"RECTIFIER_DATA": "elsewhere"})
    assert opening[0]["root"] == Path("elsewhere")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "trian"], "Expected --part to be one of 'train', 'validation', 'test', 'all', but got 'trian'."),
        (["--figure", "counts.txt"], "named .png, .svg or .pdf, but got 'counts.txt'"),
        (["--figure", "a.png", "--no-figure"], "Expected --figure to be given without --no-figure"),
        (["--set", "ratio"], "Expected --set to be KEY=VALUE, but got 'ratio'."),
        (["--set", "=5"], "Expected --set to be KEY=VALUE, but got '=5'."),
    ],
)
def test_wrong_options(arguments: list[str], message: str, opening: list[dict[str, Any]]) -> None:
    result = run("profile", "--data", "tiny", *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stdout == ""
    assert opening == []  # said before anything is read


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
    def fail(spec: str, **options: Any) -> ImageData:
        raise error

    fake_sources(monkeypatch, fail)
    result = run("profile", "--data", "x")
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", message)
    assert run("--traceback", "profile", "--data", "x").exception is error
    assert run("profile", "--data", "x", env={"RECTIFIER_TRACEBACK": "1"}).exception is error


def test_errors_of_ours_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(spec: str, **options: Any) -> ImageData:
        raise KeyError("a bug")

    fake_sources(monkeypatch, fail)
    assert isinstance(run("profile", "--data", "x").exception, KeyError)


def test_an_interrupt_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(spec: str, **options: Any) -> ImageData:
        raise KeyboardInterrupt

    fake_sources(monkeypatch, interrupt)
    result = run("profile", "--data", "x")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "Interrupted. What is done is kept; the same command goes on from there.\n"


def test_a_misspelt_verb_is_answered_with_the_nearest() -> None:
    result = run("profil")
    assert result.exit_code == 2
    assert "'profile'" in result.stderr


def test_a_closed_pipe_is_no_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(spec: str, **options: Any) -> ImageData:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    fake_sources(monkeypatch, fail)
    result = run("profile", "--data", "x")
    assert (result.exit_code, result.output) == (1, "")


# With the real readers


def test_digits_as_json() -> None:
    result = run("profile", "--data", "digits", "--json", "--set", "ratio=5")
    assert result.exit_code == 0, result.stderr
    digit = json.loads(result.stdout)["labels"]["digit"]
    assert (digit["classes"], digit["missing"], digit["ratio"]) == (10, 0, 5.0)


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    result = run("profile", "--data", "digits", "--set", "ratoi=5")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Did you mean 'ratio'?" in result.stderr


# As a program of its own


def execute(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        timeout=120,
    )


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; import rectifier.cli; print(*{'torch', 'numpy', 'matplotlib', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout.strip()) == (0, "")


def test_digits_in_a_terminal_without_block_characters() -> None:
    result = execute("profile", "--data", "digits", "--set", "ratio=5", PYTHONIOENCODING="ascii", COLUMNS="80")
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.split("\n"))) <= 80
    assert Path("profile-digits.png").exists()


def test_unknown_data_has_no_traceback() -> None:
    result = execute("profile", "--data", "digitz")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert "Did you mean 'digits'?" in result.stderr
    assert "Traceback" not in result.stderr


# A store


def photographs(folder: Path) -> Path:
    """Write five images, one of them damaged, and a table that names them; return the table."""
    folder.mkdir()
    rows = ["image,kind"]
    for number in range(5):
        Image.new("RGB", (8, 6), (number, 0, 0)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{'ab'[number % 2]}")
    (folder / "3.png").write_bytes(b"no image")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder / "labels.csv"


def test_store_and_use_it(tmp_path: Path) -> None:
    table, out = photographs(tmp_path / "photos"), tmp_path / "store"
    result = run("store", "--data", str(table), "--out", str(out), "--size", "4x5", "--workers", "1")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{out}: 4 images of 4 x 5, 1 left out.\n"
    assert "unreadable.csv" in result.stderr
    profiled = run("profile", "--data", str(out), "--part", "all", "--json")
    assert json.loads(profiled.stdout)["labels"]["kind"]["counts"] == {"a": 3, "b": 1}


def test_store_with_an_error_for_damaged_images(tmp_path: Path) -> None:
    table = photographs(tmp_path / "photos")
    result = run("store", "--data", str(table), "--out", str(tmp_path / "s"), "--unreadable", "raise", "--workers", "1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "5 readable images, but got 1 unreadable image, such as 3.png" in result.stderr


def test_no_store_of_what_is_in_memory(tmp_path: Path) -> None:
    result = run("store", "--data", "digits", "--out", str(tmp_path / "s"))
    assert result.exit_code == 2
    assert "digits, which is in memory as it is read and needs no store" in result.stderr


def test_a_seed_given_as_a_setting() -> None:
    one, other = (
        json.loads(run("profile", "--data", "digits", "--json", *options).stdout)["fingerprint"]
        for options in (("--seed", "3"), ("--set", "seed=3"))
    )
    assert one == other


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["root=x"], "--set to be an option of the reader, but got root"),
        (["ratio=5", "ratio=6"], "--set to be given once for each key"),
    ],
)
def test_settings_that_are_refused(settings: list[str], message: str) -> None:
    result = run("profile", "--data", "digits", *[part for setting in settings for part in ("--set", setting)])
    assert result.exit_code == 2
    assert message in result.stderr
