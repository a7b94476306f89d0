"""Retrained runs: they start over, keep the earlier records, and resume after a stop."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    ALL,
    CE,
    CHOOSING,
    DIVIDED,
    WILD,
    Count,
    FakeTraining,
    content,
    interrupt,
    keys,
    made,
    page,
    request,
    stop_within,
)
from rectifier._base import console
from rectifier.reproduce import reproduce
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.run.folder import Run

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize("folders", ["gone", "there"])
def test_again_retrains_all_runs(done: Path, count: Count, folders: str) -> None:
    if folders == "gone":
        shutil.rmtree(done / "runs")
    before = content(done)
    reproduce("one", made(), request(done, again=True))
    assert count.seen() == ALL
    for run, other in zip(before["runs"], content(done)["runs"], strict=True):
        assert (run["key"], run["test"]) == (other["key"], other["test"])  # a seed says it all


def test_interrupted_retraining_keeps_all_records(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = made(measure=lambda _: {"answer": 42})
    reproduce("one", experiment, request(tmp_path))
    before = content(tmp_path)
    fake.scores = lambda _: (0.9, 0.9)
    interrupt(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        reproduce("one", experiment, request(tmp_path, again=True))
    after = content(tmp_path)
    assert sorted(keys(after["runs"])) == sorted(keys(before["runs"]))
    scores = {run["test"]["argmax"]["class_balanced_accuracy"] for run in after["runs"]}
    assert scores == {0.5, 0.9}
    assert after["found"] == {"answer": 42}


def test_interrupted_retraining_resumes(done: Path, count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(console, "say", said.append)
    begin = suite.train
    left = iter([True, False])

    def stopped_after_one(config: Config, out: Path, **options: Any) -> Run:
        if not next(left):
            raise KeyboardInterrupt
        return begin(config, out, **options)

    monkeypatch.setattr(suite, "train", stopped_after_one)
    with pytest.raises(KeyboardInterrupt):
        reproduce("one", made(), request(done, again=True))
    monkeypatch.setattr(suite, "train", begin)
    assert count.seen() == ALL[:1]
    reproduce("one", made(), request(done, again=True))
    file = done / "runs" / "one.again.json"
    message = f"Resuming: 1 run retrained already. Delete {file} to start over."
    assert message in said
    assert not file.exists()
    assert count.seen() == ALL[1:]
    reproduce("one", made(), request(done, again=True))  # which is another one
    assert count.seen() == ALL


def test_choices_for_cells_that_are_not_retrained_stay(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = DIVIDED
    other = replace(CHOOSING, row="other", settings={"method": "crl", "kappa": 3})
    reproduce("one", made(CHOOSING, other), request(tmp_path))
    before = content(tmp_path)
    reproduce("one", made(CHOOSING, other), request(tmp_path, again=True, only=["other"]))
    after = content(tmp_path)
    assert (after["chosen"], after["superseded"]) == (before["chosen"], [])
    assert [run["key"] for run in after["runs"]] == [run["key"] for run in before["runs"]]


def test_retraining_one_cell_keeps_the_others(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce("one", made(), request(tmp_path))
    with monkeypatch.context() as patch:
        interrupt(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(), request(tmp_path, again=True, only=["CRL"]))
    for only, trained in (("CE", 2), ("CRL", 1)):  # one of CRL's was trained before
        fake.seen()
        reproduce("one", made(), request(tmp_path, again=True, only=[only]))
        assert len(fake.seen()) == trained
    assert not list((tmp_path / "runs").glob("*.json"))


def test_again_retrains_a_diverged_run_from_the_start(tmp_path: Path, count: Count) -> None:
    reproduce("one", made(CE, WILD, seeds=1), request(tmp_path))
    count.seen()
    reproduce("one", made(CE, WILD, seeds=1), request(tmp_path, again=True))
    assert (count.seen(), count.resumed) == ([("ce", 0), ("ce", 0)], [])


def test_again_retrains_a_stopped_run_from_the_start(
    tmp_path: Path, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = made(CE, seeds=1, settings={"epochs": 3, "checkpoint_seconds": 1e9})
    stop_within(long, tmp_path, monkeypatch)
    count.seen()
    reproduce("one", long, request(tmp_path, again=True))
    assert (count.seen(), count.resumed) == ([("ce", 0)], [])


def test_a_page_counts_runs_that_were_retrained(tmp_path: Path, fake: FakeTraining) -> None:
    reproduce("one", made(), request(tmp_path))
    for score, times in ((0.9, 1), (0.9, 1), (0.7, 2)):  # the same scores once more are not counted
        fake.scores = lambda _, score=score: (score, score)
        reproduce("one", made(), request(tmp_path, again=True))
        replaced = content(tmp_path)["superseded"]
        assert [one["replaced"] for one in replaced] == ["trained anew"] * 4 * times
        assert f"Earlier runs scored on test and retrained since: ce on mlp ({2 * times} runs)" in page(tmp_path)
    assert {run["test"]["argmax"]["class_balanced_accuracy"] for run in content(tmp_path)["runs"]} == {0.7}
    shutil.rmtree(tmp_path / "runs")
    fake.seen()
    reproduce("one", made(), request(tmp_path))
    assert fake.seen() == []


def test_a_damaged_list_of_retrained_runs_is_refused(tmp_path: Path, fake: FakeTraining) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.again.json").write_text("[]")
    with pytest.raises(ValueError, match=r"one\.again\.json is not a list of retrained runs"):
        reproduce("one", made(), request(tmp_path, again=True))
