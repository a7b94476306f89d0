"""rectifier profile."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.command_line import PROGRAM, refuse, succeed
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.labels.space import LabelSpace


def tiny() -> ImageData:
    pixels = np.zeros((10, 8, 8, 1), np.uint8)
    targets = torch.tensor([[0]] * 6 + [[1]] * 2 + [[0], [1]])
    split = torch.tensor([0] * 8 + [1, 2])
    space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    return ImageData("tiny:ratio=3", ImageArray(pixels), targets, space, split, notes=("a note",))


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let every data spec open the same tiny data, and record the calls."""
    calls: list[dict[str, Any]] = []

    def open_data(spec: str, **options: Any) -> ImageData:
        calls.append({"spec": spec, **options})
        return tiny()

    monkeypatch.setattr("rectifier.data.sources.open_data", open_data)
    return calls


def test_json_alone_is_on_stdout(opening: list[dict[str, Any]]) -> None:
    result = succeed("profile", "--data", "tiny", "--json")
    content = json.loads(result.stdout)
    assert content["labels"]["kind"]["counts"] == {"cat": 6, "dog": 2}
    assert {"classes", "samples", "missing", "ratio", "omega", "counts"} <= set(content["labels"]["kind"])
    assert result.stderr == ""
    assert not list(Path().iterdir())


def test_view_and_figure_by_default(opening: list[dict[str, Any]]) -> None:
    result = succeed("profile", "--data", "tiny")
    assert "tiny:ratio=3: 10 samples" in result.stdout
    assert "- a note" in result.stdout
    assert result.stderr == "Figure: profile-tiny-ratio-3.png\n"
    assert [path.name for path in Path().iterdir()] == ["profile-tiny-ratio-3.png"]


def test_no_figure(opening: list[dict[str, Any]]) -> None:
    succeed("profile", "--data", "tiny", "--no-figure")
    assert not list(Path().iterdir())


def test_json_and_a_figure(opening: list[dict[str, Any]]) -> None:
    result = succeed("profile", "--data", "tiny", "--json", "--figure", "plots/tiny.svg", "--part", "all")
    assert json.loads(result.stdout)["samples"] == 10
    assert Path("plots/tiny.svg").read_bytes().startswith(b"<?xml")


def test_options_reach_the_reader(opening: list[dict[str, Any]]) -> None:
    options = ["--images", "photos", "--data-root", "root", "--seed", "3", "--set", "ratio=50", "--set", "split=paper"]
    succeed("profile", "--data", "tiny", "--json", *options)
    assert opening == [{"spec": "tiny", "images": "photos", "root": "root", "seed": 3, "ratio": "50", "split": "paper"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--part", "trian"], "Expected --part to be one of 'train', 'validation', 'test', 'all', but got 'trian'."),
        (["--figure", "counts.txt"], "'counts.txt'"),
        (["--figure", "a.png", "--no-figure"], "Give either --figure or --no-figure, not both."),
        (["--set", "ratio"], "Expected --set to be KEY=VALUE, but got 'ratio'."),
        (["--set", "=5"], "Expected --set to be KEY=VALUE, but got '=5'."),
    ],
)
def test_wrong_options(arguments: list[str], message: str, opening: list[dict[str, Any]]) -> None:
    assert message in refuse("profile", "--data", "tiny", *arguments)
    assert opening == []  # reported before anything is read


def test_digits_as_json() -> None:
    result = succeed("profile", "--data", "digits", "--json", "--set", "ratio=5")
    digit = json.loads(result.stdout)["labels"]["digit"]
    assert (digit["classes"], digit["missing"], digit["ratio"]) == (10, 0, 5.0)


def test_digits_in_a_terminal_without_block_characters() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    command = [PROGRAM, "profile", "--data", "digits", "--set", "ratio=5"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.split("\n"))) <= 80
    assert Path("profile-digits.png").exists()


def test_a_seed_given_as_a_setting() -> None:
    one, other = (
        json.loads(succeed("profile", "--data", "digits", "--json", *options).stdout)["fingerprint"]
        for options in (("--seed", "3"), ("--set", "seed=3"))
    )
    assert one == other


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    assert "Did you mean 'ratio'?" in refuse("profile", "--data", "digits", "--set", "ratoi=5")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["root=x"], "root is not an option of the reader. Give it as --data-root."),
        (["ratio=5", "ratio=6"], "--set gives ratio twice. Separate several values by commas."),
    ],
)
def test_settings_that_are_refused(settings: list[str], message: str) -> None:
    given = [part for setting in settings for part in ("--set", setting)]
    assert message in refuse("profile", "--data", "digits", *given)
