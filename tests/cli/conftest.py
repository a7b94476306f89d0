"""An empty folder for each test of the command line, and runs that several tests read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.command_line import COLOURS, MLP, Photos, succeed


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def photos(home: Path) -> Photos:
    """Write a table with two labels, some cells blank, and train from it."""
    folder, draw = home / "photos", np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    rows = ["image,colour,light"]
    for number in range(80):
        colour, light = list(COLOURS)[number % 8 // 3], ("day", "night")[number % 5 == 0]
        pixels = np.array(COLOURS[colour]) // (3 if light == "night" else 1) + draw.integers(0, 25, (10, 12, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{number:02d}.png")
        cells = ["" if number % 9 == 1 else colour, "" if number % 7 == 2 else light]
        rows.append(",".join([f"{number:02d}.png", *cells]))
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    command = "train --data table.csv --images photos --method crl --network mlp --epochs 2 --seed 0 --out RUN"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return Photos(folder, succeed(*command.split(), "--accelerator", "cpu"))


@pytest.fixture(scope="session")
def shapes(home: Path) -> Path:
    """Train a run on generated shapes, and return its folder."""
    data = "shapes:samples=96,size=16,ratio=4"
    options = ("--epochs", 2, "--batch-size", 32, "--set", "tensorboard=false")
    succeed("train", "--data", data, *MLP, *options, "--out", home / "shapes")
    return home / "shapes"
