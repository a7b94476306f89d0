"""What is shown without training, what is not scored, and files that are not what they should be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    ALL,
    CE,
    CHOOSING,
    DIVIDED,
    FOCAL,
    Count,
    FakeTraining,
    content,
    made,
    page,
    request,
    texts,
)
from rectifier.reproduce import reproduce

pytestmark = pytest.mark.usefixtures("quiet")


def test_showing_trains_nothing_and_shows_what_is_recorded(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = DIVIDED
    experiment = made(CE, CHOOSING)
    reproduce("one", experiment, request(tmp_path))
    before = texts(tmp_path)
    fake.seen()
    shutil.rmtree(tmp_path / "runs")
    reproduce("one", experiment, request(tmp_path, train=False))
    assert texts(tmp_path) == before
    result = reproduce("one", made(CE, FOCAL, CHOOSING), request(tmp_path, train=False))
    assert fake.seen() == []
    assert {where: len(runs) for where, runs in result.records.items()} == {("CE", ""): 2, ("CRL", ""): 2}
    assert result.score(result.experiment.cell("focal"), "argmax")["mean"] is None
    assert len(content(tmp_path)["runs"]) == 4


def test_showing_with_fewer_records_than_seeds(tmp_path: Path, fake: FakeTraining) -> None:
    reproduce("one", made(), request(tmp_path, seeds=1))
    fake.seen()
    result = reproduce("one", made(seeds=3), request(tmp_path, train=False))
    assert fake.seen() == []
    assert len(result.all_records) == 2
    assert len(content(tmp_path)["runs"]) == 2


def test_an_experiment_without_results_shows_nothing_even_if_others_share_its_runs(
    tmp_path: Path, fake: FakeTraining
) -> None:
    reproduce("one", made(), request(tmp_path))
    reproduce("two", made(), request(tmp_path, train=False))
    assert not (tmp_path / "results" / "two.md").exists()


@pytest.mark.parametrize("quick", [False, True])
def test_only_the_full_version_shows_the_finding(tmp_path: Path, fake: FakeTraining, quick: bool) -> None:
    experiment = made(finding="It came out so.", quick={"epochs": 1})
    reproduce("one", experiment, request(tmp_path, quick=quick))
    assert ("It came out so." in page(tmp_path)) != quick


def test_the_folder_of_experiments_stands_in_the_command(tmp_path: Path, fake: FakeTraining) -> None:
    reproduce("one", made(), request(tmp_path, experiments=Path("mine")))
    assert "`rectifier reproduce one --experiments mine`" in page(tmp_path)


UNSCORED: dict[str, Any] = {"scored": False, "show": lambda _: "Validation alone."}


def test_where_validation_alone_is_asked_nothing_of_test_is_kept(tmp_path: Path, count: Count) -> None:
    result = reproduce("recipes", made(**UNSCORED), request(tmp_path))
    assert result.validation_score(result.experiment.cell("CE"))["mean"] is not None
    found = content(tmp_path, "recipes")
    assert (len(found["runs"]), found["candidates"], found["superseded"]) == (4, [], [])
    assert not any("test" in run for run in found["runs"])
    count.seen()
    reproduce("recipes", made(**UNSCORED), request(tmp_path))
    assert (count.seen(), content(tmp_path, "recipes")) == ([], found)


@pytest.mark.parametrize("name", ["a", "z"])  # before and behind the other, by the alphabet
def test_what_was_not_scored_is_scored_where_it_is_asked_for(tmp_path: Path, count: Count, name: str) -> None:
    reproduce("recipes", made(**UNSCORED), request(tmp_path))
    shutil.rmtree(tmp_path / "runs")
    count.seen()
    for trained in (ALL, []):
        result = reproduce(name, made(), request(tmp_path))
        assert count.seen() == trained
        assert len(result.values(result.experiment.cell("CRL"), "argmax")) == 2


def test_generated_and_real_data_do_not_mix(done: Path) -> None:
    with pytest.raises(ValueError, match=r"results to be a folder for small versions on generated data only"):
        reproduce("one", made(quick={"epochs": 1}), request(done, quick=True))


def test_an_experiment_without_a_small_version_has_none(tmp_path: Path, count: Count) -> None:
    with pytest.raises(ValueError, match=r"one has no small version"):
        reproduce("one", made(), request(tmp_path, quick=True))
    assert count.seen() == []


@pytest.mark.parametrize("option", ["results", "runs"])
def test_read_only_folders_are_refused_before_training(tmp_path: Path, fake: FakeTraining, option: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"Expected (results|runs) to be a writable folder, but got .*file"):
        reproduce("one", made(), request(tmp_path, **{option: tmp_path / "file" / "below"}))
    assert fake.seen() == []


RECORDS = "Expected .*results/one.json to be the results of an experiment, as rectifier reproduce writes them"


@pytest.mark.parametrize(
    ("there", "text"),
    [
        ([], "one.json is not the result of an experiment"),
        (3, "one.json is not the result of an experiment"),
        ({"runs": []}, "one.json is not the result of an experiment"),
        ({"experiment": "one", "runs": 3}, f"{RECORDS}, but got damaged runs"),
        ({"experiment": "one", "runs": [{"key": "a"}]}, f"{RECORDS}, but got damaged runs"),
        ({"experiment": "one", "runs": [], "candidates": ["a"]}, f"{RECORDS}, but got damaged candidates"),
        ({"experiment": "one", "measured": 5, "found": []}, f"{RECORDS}, but got damaged measured"),
        ({"experiment": "one", "found": [1]}, f"{RECORDS}, but got damaged found"),
    ],
)
def test_damaged_results_are_refused_before_training(tmp_path: Path, fake: FakeTraining, there: Any, text: str) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text(json.dumps(there))
    with pytest.raises(ValueError, match=text):
        reproduce("one", made(), request(tmp_path))
    assert fake.seen() == []
    assert json.loads((tmp_path / "results" / "one.json").read_text()) == there


def test_other_files_in_the_results_folder_do_not_change(tmp_path: Path, fake: FakeTraining) -> None:
    (tmp_path / "results").mkdir()
    for name, there in {"a": [1], "b": {"runs": "mine"}, "c": None}.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(there))
    assert len(reproduce("one", made(), request(tmp_path)).all_records) == 4
