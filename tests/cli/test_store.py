"""rectifier store."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from helpers.command_line import refuse, run, succeed


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
    result = succeed("store", "--data", table, "--out", out, "--size", "4x5", "--workers", 1)
    assert result.stdout == f"{out}: 4 images of 4 x 5 pixels, 1 skipped.\n"
    assert "unreadable.csv" in result.stderr
    profiled = succeed("profile", "--data", out, "--part", "all", "--json")
    assert json.loads(profiled.stdout)["labels"]["kind"]["counts"] == {"a": 3, "b": 1}


def test_store_with_an_error_for_damaged_images(tmp_path: Path) -> None:
    table = photographs(tmp_path / "photos")
    result = run("store", "--data", table, "--out", "store", "--unreadable", "raise", "--workers", 1)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "3.png" in result.stderr.partition("Error: ")[2]


def test_data_in_memory_needs_no_store() -> None:
    assert "digits needs no store: its images are in memory" in refuse("store", "--data", "digits", "--out", "store")
