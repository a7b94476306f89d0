"""The curves of a training, unbroken and interrupted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from rectifier.training.config import Config
from rectifier.training.run.curves import Curves
from rectifier.training.run.folder import Run

LABELS = ("colour", "sleeve, long")
Row = dict[str, Any]


def epoch_row(epoch: int) -> Row:
    """A row as training makes it; validated every second epoch."""
    validation = 0.5 + epoch / 100 if epoch % 2 == 0 else None
    return {"epoch": epoch, "step": 10 * epoch, "lr": 0.1 / epoch, "loss": 1 / (epoch + 2), "validation": validation}


def label_rows(epoch: int) -> list[Row]:
    return [{"epoch": epoch, "label": name, "alpha": 0.25, "comparisons": epoch * len(name) / 3} for name in LABELS]


def rows_until(epoch: int) -> tuple[list[Row], list[Row]]:
    numbers = range(1, epoch + 1)
    return [epoch_row(e) for e in numbers], [row for e in numbers for row in label_rows(e)]


def write(run: Run, first: int, last: int, tensorboard: bool = False) -> None:
    """Train from the checkpoint after epoch ``first - 1`` to ``last``."""
    curves = Curves(run, tensorboard, *rows_until(first - 1))
    for epoch in range(first, last + 1):
        curves.save_epoch(epoch_row(epoch), label_rows(epoch))
    curves.close()


def tables(run: Run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.glob("*.csv")}


def make_run(path: Path) -> Run:
    return Run.create(path, Config("digits"))


@pytest.fixture
def unbroken(tmp_path: Path) -> Run:
    run = make_run(tmp_path / "unbroken")
    write(run, 1, 6)
    return run


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_row_can_be_read_back(unbroken: Run) -> None:
    epochs, labels = rows_until(6)
    for name, rows in (("history.csv", epochs), ("labels.csv", labels)):
        found = read(unbroken.path / name)
        assert [list(row) for row in found] == [list(row) for row in rows]
        for row, expected in zip(found, rows, strict=True):
            assert row == {key: "" if value is None else str(value) for key, value in expected.items()}
            assert all(float(row[key]) == value for key, value in expected.items() if isinstance(value, float))


@pytest.mark.parametrize(("checkpoint", "crash"), [(0, 1), (1, 4), (3, 3), (3, 5), (6, 6), (5, 6)])
def test_rows_beyond_the_checkpoint_are_cut_after_a_crash(
    tmp_path: Path, unbroken: Run, checkpoint: int, crash: int
) -> None:
    run = make_run(tmp_path / "broken")
    write(run, 1, crash)
    write(run, checkpoint + 1, 6)
    assert tables(run) == tables(unbroken)


@pytest.mark.parametrize("torn", [b"4,40,0.02", b"4,40,0.025,0.1666,0.54\n5,", b"\x00\x00"])
def test_a_torn_line_is_cut_too(tmp_path: Path, unbroken: Run, torn: bytes) -> None:
    run = make_run(tmp_path / "broken")
    write(run, 1, 3)
    with (run.path / "history.csv").open("ab") as file:
        file.write(torn)
    write(run, 4, 6)
    assert tables(run) == tables(unbroken)


def test_tables_that_were_lost_are_made_again(tmp_path: Path, unbroken: Run) -> None:
    run = make_run(tmp_path / "broken")
    write(run, 4, 6)
    assert tables(run) == tables(unbroken)


def test_a_row_is_there_as_soon_as_its_epoch_ends(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    curves = Curves(run, False, [], [])
    for epoch in (1, 2):
        curves.save_epoch(epoch_row(epoch), label_rows(epoch))
        assert [row["epoch"] for row in read(run.path / "history.csv")] == [str(e) for e in range(1, epoch + 1)]
        assert len(read(run.path / "labels.csv")) == epoch * len(LABELS)


# TensorBoard


def scalars(run: Run) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run.path / "tensorboard"), size_guidance={"scalars": 0})
    found.Reload()
    read = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert all(len(points) == len(dict(points)) for points in read.values()), "an epoch is there twice"
    return {tag: dict(points) for tag, points in read.items()}


def expected_scalars(last: int) -> dict[str, dict[int, float]]:
    """Every number of the rows that is there; those of the labels where there was a validation."""
    epochs, labels = rows_until(last)
    points: dict[str, dict[int, float]] = {}
    for row in epochs:
        for name in ("step", "lr", "loss", "validation"):
            if row[name] is not None:
                points.setdefault(name, {})[row["epoch"]] = row[name]
    validated = {row["epoch"] for row in epochs if row["validation"] is not None}
    for row in labels:
        for name in ("alpha", "comparisons"):
            if row["epoch"] in validated:
                points.setdefault(f"{name}/{row['label']}", {})[row["epoch"]] = row[name]
    return points


def plain(tag: str) -> str:
    """TensorBoard writes some characters of a name as underscores."""
    return "".join(c if c.isalnum() or c in "-/_." else "_" for c in tag)


@pytest.mark.parametrize("broken", [False, True])
def test_tensorboard_has_the_values_of_the_rows(tmp_path: Path, broken: bool) -> None:
    run = make_run(tmp_path / "run")
    if broken:
        write(run, 1, 5, tensorboard=True)
        write(run, 3, 6, tensorboard=True)
    else:
        write(run, 1, 6, tensorboard=True)
    found = {plain(tag): points for tag, points in scalars(run).items()}
    expected = {plain(tag): points for tag, points in expected_scalars(6).items()}
    assert found.keys() == expected.keys()
    for tag, points in expected.items():
        assert found[tag] == pytest.approx(points, rel=1e-6)


def test_without_tensorboard_there_is_no_folder_for_it(unbroken: Run) -> None:
    assert not (unbroken.path / "tensorboard").exists()
