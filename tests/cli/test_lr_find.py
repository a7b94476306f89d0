"""rectifier lr-find: a table, a figure, and the command to type next."""

from __future__ import annotations

import shlex
from pathlib import Path

from helpers.command_line import MLP, refuse, succeed

QUICK = ("--data", "shapes:samples=96,size=16,ratio=4", *MLP, "--steps", "20")


def test_a_suggestion_and_what_to_type_next() -> None:
    settings = ("--set", "optimizer=adamw", "--set", "tensorboard=false")
    result = succeed("lr-find", *QUICK, *settings)
    suggested = next(line for line in result.stdout.splitlines() if "suggested" in line).split()[0]
    words = shlex.split(result.stderr.splitlines()[-1].removeprefix("Train with: "))
    assert words[-4:] == ["--lr", suggested, "--out", "RUN"]
    assert sorted(words[:-4]) == sorted(["rectifier", "train", *QUICK[:2], *MLP, *settings])
    assert not list(Path().iterdir())
    succeed(*words[1:], "--epochs", 1)  # it is a command


def test_a_figure() -> None:
    result = succeed("lr-find", *QUICK, "--out", "plots/rates.svg")
    assert "Figure: plots/rates.svg" in result.stderr
    assert Path("plots/rates.svg").read_bytes().startswith(b"<?xml")
    assert [path.name for path in Path().iterdir()] == ["plots"]


def test_a_loss_that_hardly_falls_is_said() -> None:
    result = succeed("lr-find", *QUICK, "--set", "clip=1e-9")
    assert "so the suggestion is uncertain" in result.stderr


def test_wrong_options() -> None:
    assert "named .png, .svg or .pdf, but got 'rates.txt'" in refuse("lr-find", *QUICK, "--out", "rates.txt")
    assert "Expected steps to be an integer from 10, but got 3." in refuse("lr-find", *QUICK[:-1], "3")
    assert "Give --data" in refuse("lr-find")
