"""Data that changes between two commands: nothing of unlike data is mixed, and nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    CE,
    Count,
    change,
    content,
    interrupt,
    made,
    of_table,
    page,
    prints,
    request,
    stop_within,
    write_table,
)
from rectifier.reproduce import Context, reproduce
from rectifier.training.run.folder import Run

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("damaged", [False, True])
def test_labels_that_have_changed_are_trained_on(
    tmp_path: Path, count: Count, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    table = write_table(tmp_path / "images", "rb" * 8 + "br" * 8)
    if damaged:
        (tmp_path / "images" / "3.png").write_text("no image")
    experiment = made(CE, seeds=1, settings={"data": str(table), "size": "8"})

    def fingerprint() -> str:
        reproduce("one", experiment, request(tmp_path))
        (record,) = content(tmp_path)["runs"]
        return str(record["data"]["fingerprint"])

    before = fingerprint()
    assert (fingerprint(), count.seen()) == (before, [("ce", 0)])
    table.write_text(table.read_text().replace("5.png,b", "5.png,r"))
    after = fingerprint()
    assert after != before
    assert (fingerprint(), count.seen()) == (after, [("ce", 0)])
    shutil.rmtree(tmp_path / "results")  # folders are left, one of data that is no more
    assert (fingerprint(), count.seen()) == (after, [])


def test_what_is_measured_is_of_the_data_that_is_scored(tmp_path: Path, table: Path) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"prints": [run.data["fingerprint"] for run in context.runs("CE", "")]}

    experiment = of_table(table, CE, seeds=1, measure=measure)
    before = reproduce("one", experiment, request(tmp_path)).found
    change(table)
    found = reproduce("one", experiment, request(tmp_path)).found
    assert found["prints"] == list(prints(tmp_path).values()) != before["prints"]


def test_no_mean_is_over_seeds_of_unlike_data(tmp_path: Path, table: Path) -> None:
    experiment = of_table(table)
    reproduce("one", experiment, request(tmp_path))
    change(table)
    result = reproduce("one", experiment, request(tmp_path, seeds=1))
    assert set(prints(tmp_path)) == {("CE", 0), ("CRL", 0)}
    assert list(result.values(CE, "argmax")) == ["0"]


def test_no_gain_is_between_unlike_data(tmp_path: Path, table: Path) -> None:
    experiment = of_table(table)
    reproduce("one", experiment, request(tmp_path))
    change(table)
    result = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert not result.values(CE, "argmax")
    for by_seed in result.records.values():
        assert {record["data"]["fingerprint"] for record in by_seed.values()} == set(prints(tmp_path).values())


def test_runs_of_other_data_are_kept_apart_and_counted_on_the_page(tmp_path: Path, table: Path) -> None:
    experiment = of_table(table, CE, seeds=1)
    reproduce("one", experiment, request(tmp_path))
    (old,) = prints(tmp_path).values()
    change(table)
    for _ in range(2):  # what is kept apart is not read as a record of today
        reproduce("one", experiment, request(tmp_path))
        (kept,) = content(tmp_path)["superseded"]
        assert (kept["data"]["fingerprint"], kept["replaced"]) == (old, "other data")
        assert "Earlier runs scored on test on data that has changed since" in page(tmp_path)


def test_an_unfinished_run_of_other_data_stays_and_a_new_run_is_trained(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"epochs": 3, "checkpoint_seconds": 1e9, "batch_size": 4}
    experiment = of_table(table, CE, seeds=1, settings=long)
    stop_within(experiment, tmp_path, monkeypatch)
    change(table)
    result = reproduce("one", experiment, request(tmp_path))
    assert len(result.all_records) == 1
    assert [Run(path).is_finished for path in sorted((tmp_path / "runs").iterdir())] == [False, True]


def test_resumed_retraining_ignores_runs_of_other_data(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = of_table(table, seeds=1)
    reproduce("one", experiment, request(tmp_path))
    with monkeypatch.context() as patch:
        interrupt(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", experiment, request(tmp_path, again=True))
    change(table)
    reproduce("one", experiment, request(tmp_path, again=True))
    assert len(set(prints(tmp_path).values())) == 1


def test_a_measurement_of_other_data_is_none(tmp_path: Path, table: Path) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {row: [run.data["fingerprint"] for run in context.runs(row, "")] for row in ("CE", "CRL")}

    experiment = of_table(table, seeds=1, measure=measure)
    reproduce("one", experiment, request(tmp_path))
    change(table)
    assert reproduce("one", experiment, request(tmp_path, only=["CE"])).found == {}
    reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    found = reproduce("one", experiment, request(tmp_path)).found
    assert {one for own in found.values() for one in own} == set(prints(tmp_path).values())
