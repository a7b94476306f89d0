"""rectifier predict."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.command_line import COLOURS, Photos, refuse, rows_of, succeed


def test_predict_files_folders_and_tables(photos: Photos, tmp_path: Path) -> None:
    file, folder, table = photos.images[3], photos.folder / "photos", tmp_path / "wanted.csv"
    table.write_text("image\n05.png\n04.png\n")
    arguments = (file, folder, table, "--images", folder, "--out", "predictions.csv", "--accelerator", "cpu")
    result = succeed("predict", photos.run, *arguments)
    assert result.stdout == ""
    preferred = json.loads((photos.run / "metrics.json").read_text())["preferred_rule"]
    assert f"Decision rule: {preferred}, " in result.stderr
    assert "predictions.csv: 83 images predicted.\n" in result.stderr

    text = Path("predictions.csv").read_text()
    assert text.splitlines()[0] == "image,colour,colour_probability,light,light_probability"
    rows = rows_of(text)
    assert [row["image"] for row in rows] == [str(file), *map(str, photos.images), "05.png", "04.png"]
    assert rows[0] == rows[1 + 3]
    assert [row["colour"] for row in rows[-2:]] == [rows[1 + 5]["colour"], rows[1 + 4]["colour"]]
    for row in rows:
        assert row["colour"] in COLOURS
        assert row["light"] in ("day", "night")
        assert 1 / 3 <= float(row["colour_probability"]) <= 1
        assert 1 / 2 <= float(row["light_probability"]) <= 1


def test_predict_prints_to_stdout_and_takes_another_rule(photos: Photos) -> None:
    rules = json.loads((photos.run / "rules.json").read_text())
    other = next(rule for rule in ("argmax", "prior", "tuned") if rule != rules["preferred"])
    result = succeed("predict", photos.run, photos.images[0], "--rule", other, "--accelerator", "cpu")
    assert len(rows_of(result.stdout)) == 1
    assert result.stderr.startswith(f"Decision rule: {other}, ")
    assert "Did you mean 'prior'?" in refuse("predict", photos.run, photos.images[0], "--rule", "priro")


def test_predict_names_images_that_cannot_be_read(photos: Photos, tmp_path: Path) -> None:
    (tmp_path / "damaged.png").write_bytes(b"no image")
    result = succeed("predict", photos.run, "damaged.png", photos.images[0], "--accelerator", "cpu")
    assert "Unreadable image: damaged.png (" in result.stderr
    first, second = rows_of(result.stdout)
    assert set(first.values()) == {"damaged.png", ""}
    assert "" not in second.values()

    Path("out.csv").write_text("an earlier file")
    result = succeed("predict", photos.run, "damaged.png", photos.images[0], "--out", "out.csv", "--accelerator", "cpu")
    assert "out.csv: 1 image predicted, 1 unreadable (blank row). The earlier file is replaced." in result.stderr


def test_predict_from_a_table_whose_images_are_elsewhere(photos: Photos, tmp_path: Path) -> None:
    (tmp_path / "wanted.csv").write_text("image\n05.png\n")
    message = refuse("predict", photos.run, "wanted.csv", "--accelerator", "cpu")
    assert "Add --images DIR, the folder that the paths of a table start from." in message
