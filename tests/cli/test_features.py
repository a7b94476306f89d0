"""rectifier features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.command_line import refuse, succeed
from helpers.features import WEIGHTS, FakeNetwork, digest, photographs
from oracles_features import vector, view_of


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What the verb asks of the pretrained networks; a fake one answers."""
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    calls: list[Any] = []
    monkeypatch.setattr("rectifier.cli.features.make_compute", lambda *given: calls.append(given) or FakeNetwork())
    return calls


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Twelve photographs, one of them damaged, and their table."""
    paths = photographs(tmp_path / "photos", 12).images.paths
    (tmp_path / "photos" / paths[6]).write_bytes(b"no image")
    parts = ["train", "train", "validation", "test"] * 3
    rows = [f"{path},{'ab'[row % 2]},{'xy'[row % 3 > 0]},{parts[row]}" for row, path in enumerate(paths)]
    rows[1] = rows[1].replace(",x,", ",,").replace(",y,", ",,")
    (tmp_path / "labels.csv").write_text("\n".join(["image,kind,colour,split", *rows]))
    return tmp_path / "labels.csv"


def test_compute_and_export(asked: list[Any], table: Path) -> None:
    result = succeed(
        *("features", "--data", table, "--images", "photos", "--views", 2, "--network", "timm:x", "--size", "8x9"),
        *("--layers", "last, penultimate", "--weights", "w.pt", "--accelerator", "cpu", "--out", "features.npz"),
    )
    assert asked == [("timm:x", "w.pt", (8, 9), ["last", "penultimate"], "cpu", "auto")]
    first, second = result.stdout.splitlines()
    assert first.endswith(": 11 images, 7 features, 2 views of training images, 1 skipped.")
    assert second == "features.npz: ids, split, features and one array of classes for each label."
    assert "images: features by a fake network on no core, " in result.stderr
    with np.load("features.npz") as saved:
        arrays = dict(saved)
    ids = [f"{number:04d}.png" for number in range(12) if number != 6]
    assert arrays["ids"].tolist() == ids
    assert arrays["split"].tolist()[:4] == ["train", "train", "validation", "test"]
    assert arrays["label.kind"].tolist()[:3] == ["a", "b", "a"]
    assert arrays["label.colour"].tolist()[:3] == ["x", "", "y"]
    train = arrays["split"] == "train"
    for view, chosen in ((0, np.ones(11, bool)), (1, train)):
        paths = [Path("photos") / name for name in np.array(ids)[chosen]]
        expected = [vector(view_of(path, (8, 8), view, digest(path)), WEIGHTS) for path in paths]
        np.testing.assert_allclose(arrays["features" + ".view1" * view], expected, rtol=1e-4, atol=1e-4)


def test_the_second_time_they_are_in_the_cache(asked: list[Any], table: Path) -> None:
    command = ("features", "--data", table, "--images", "photos")
    first, second = succeed(*command), succeed(*command)
    assert first.stdout == second.stdout
    assert "images/s" in first.stderr
    assert "images/s" not in second.stderr  # the damaged one is tried again
    (table.parent / "photos" / "0006.png").unlink()
    assert "11 images: features are in the cache, " in succeed(*command).stderr


def test_errors_come_before_the_work(asked: list[Any], table: Path) -> None:
    command = ("features", "--data", table, "--images", "photos")
    assert "--out to be a file that ends in .npz, but got 'x.csv'" in refuse(*command, "--out", "x.csv")
    assert "size to be a number of pixels" in refuse(*command, "--size", "0")
    assert "fit to be one of" in refuse(*command, "--fit", "squeeze")
    assert not (table.parent / "cache").exists()


def test_raise_names_the_image(asked: list[Any], table: Path) -> None:
    message = refuse_and_cache("features", "--data", table, "--images", "photos", "--unreadable", "raise")
    assert "1 of 12 images cannot be read, e.g. 0006.png." in message


def refuse_and_cache(*arguments: object) -> str:
    from helpers.command_line import run

    result = run(*arguments)
    assert result.exit_code == 2
    return str(result.stderr)
