"""Runs that are retrained: from the start, beside what was there, and resumed where a command was stopped."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.theatre import (
    ALL,
    CE,
    CHOOSING,
    DIVIDED,
    WILD,
    Count,
    Theatre,
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
def test_again_trains_anew(done: Path, count: Count, folders: str) -> None:
    if folders == "gone":
        shutil.rmtree(done / "runs")
    before = content(done)
    reproduce("one", made(), request(done, again=True))
    assert count.seen() == ALL
    for run, other in zip(before["runs"], content(done)["runs"], strict=True):
        assert (run["key"], run["test"]) == (other["key"], other["test"])  # a seed says it all


def test_training_anew_and_being_interrupted_loses_nothing(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = made(measure=lambda _: {"answer": 42})
    reproduce("one", experiment, request(tmp_path))
    before = content(tmp_path)
    theatre.scores = lambda _: (0.9, 0.9)
    interrupt(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        reproduce("one", experiment, request(tmp_path, again=True))
    after = content(tmp_path)
    assert sorted(keys(after["runs"])) == sorted(keys(before["runs"]))
    scores = {run["test"]["argmax"]["class_balanced_accuracy"] for run in after["runs"]}
    assert scores == {0.5, 0.9}
    assert after["found"] == {"answer": 42}


def test_training_anew_goes_on_where_it_was_stopped(done: Path, count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
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
    told = f"Resuming --again: 1 run retrained already. Delete {file} to start over."
    assert told in said
    assert not file.exists()
    assert count.seen() == ALL[1:]
    reproduce("one", made(), request(done, again=True))  # which is another one
    assert count.seen() == ALL


def test_choices_of_what_is_not_trained_anew_stay(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    other = replace(CHOOSING, row="other", settings={"method": "crl", "kappa": 3})
    reproduce("one", made(CHOOSING, other), request(tmp_path))
    before = content(tmp_path)
    reproduce("one", made(CHOOSING, other), request(tmp_path, again=True, only=["other"]))
    after = content(tmp_path)
    assert (after["chosen"], after["superseded"]) == (before["chosen"], [])
    assert [run["key"] for run in after["runs"]] == [run["key"] for run in before["runs"]]


def test_training_anew_of_one_cell_forgets_no_other(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce("one", made(), request(tmp_path))
    with monkeypatch.context() as patch:
        interrupt(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(), request(tmp_path, again=True, only=["CRL"]))
    for only, trained in (("CE", 2), ("CRL", 1)):  # one of CRL's was trained before
        theatre.seen()
        reproduce("one", made(), request(tmp_path, again=True, only=[only]))
        assert len(theatre.seen()) == trained
    assert not list((tmp_path / "runs").glob("*.json"))


def test_what_diverged_is_trained_anew_from_its_beginning(tmp_path: Path, count: Count) -> None:
    reproduce("one", made(CE, WILD, seeds=1), request(tmp_path))
    count.seen()
    reproduce("one", made(CE, WILD, seeds=1), request(tmp_path, again=True))
    assert (count.seen(), count.resumed) == ([("ce", 0), ("ce", 0)], [])


def test_what_was_stopped_is_trained_anew_from_its_beginning(
    tmp_path: Path, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = made(CE, seeds=1, settings={"epochs": 3, "checkpoint_seconds": 1e9})
    stop_within(long, tmp_path, monkeypatch)
    count.seen()
    reproduce("one", long, request(tmp_path, again=True))
    assert (count.seen(), count.resumed) == ([("ce", 0)], [])


def test_scores_that_were_seen_before_are_told(tmp_path: Path, theatre: Theatre) -> None:
    reproduce("one", made(), request(tmp_path))
    for score, times in ((0.9, 1), (0.9, 1), (0.7, 2)):  # the same scores once more are nothing to tell
        theatre.scores = lambda _, score=score: (score, score)
        reproduce("one", made(), request(tmp_path, again=True))
        replaced = content(tmp_path)["superseded"]
        assert [one["replaced"] for one in replaced] == ["trained anew"] * 4 * times
        assert f"Earlier runs scored on test and retrained since: ce on mlp ({2 * times} runs)" in page(tmp_path)
    assert {run["test"]["argmax"]["class_balanced_accuracy"] for run in content(tmp_path)["runs"]} == {0.7}
    shutil.rmtree(tmp_path / "runs")
    theatre.seen()
    reproduce("one", made(), request(tmp_path))
    assert theatre.seen() == []


def test_a_list_of_what_is_trained_anew_that_is_none_is_told(tmp_path: Path, theatre: Theatre) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.again.json").write_text("[]")
    with pytest.raises(
        ValueError, match=r"one\.again\.json to be the list of runs that --again retrains, but got another file"
    ):
        reproduce("one", made(), request(tmp_path, again=True))
