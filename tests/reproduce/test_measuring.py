"""What is measured in addition to scores, and pictures that show images of the data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    CE,
    WILD,
    Count,
    FakeTraining,
    content,
    made,
    publish,
    recorded,
    request,
    texts,
    without_data,
)
from rectifier.reproduce import Context, Experiment, ExperimentResult, reproduce

pytestmark = pytest.mark.usefixtures("quiet")


class Measure:
    """A measurement that says what it was given."""

    def __init__(self) -> None:
        self.given: list[Context] = []

    def __call__(self, context: Context) -> dict[str, Any]:
        self.given.append(context)
        runs = context.runs("CRL", "")
        return {"folders": [run.path.name for run in runs], "seeds": [run.config.seed for run in runs]}


def shown(result: ExperimentResult) -> str:
    return f"Found: {result.found['seeds']}"


def test_what_is_measured_is_recorded_and_shown(tmp_path: Path, fake: FakeTraining) -> None:
    measure = Measure()
    experiment = made(measure=measure, show=shown)
    reproduce("one", experiment, request(tmp_path, settings={"data_root": "disk"}))
    (context,) = measure.given
    assert (context.data_root, context.quick) == ("disk", False)
    assert context.pictures.parent == tmp_path
    found = content(tmp_path)
    assert found["found"]["seeds"] == [0, 1]
    assert len(found["runs"]) == 4
    assert sorted(config.method for config in fake.seen()) == ["ce", "ce", "crl", "crl"]
    for folder, run in zip(found["found"]["folders"], found["runs"][2:], strict=True):
        assert folder.endswith(run["key"])
    assert "Found: [0, 1]" in (tmp_path / "results" / "one.md").read_text(encoding="utf-8")


def test_what_is_measured_is_measured_once(tmp_path: Path, fake: FakeTraining) -> None:
    measure = Measure()
    experiment = made(measure=measure, show=shown)
    reproduce("one", experiment, request(tmp_path))
    before = texts(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    fake.seen()
    reproduce("one", experiment, request(tmp_path))
    assert (len(measure.given), fake.seen(), texts(tmp_path)) == (1, [], before)
    reproduce("one", experiment, request(tmp_path, again=True))
    assert len(measure.given) == 2
    assert content(tmp_path)["found"]["seeds"] == [0, 1]


def test_a_run_whose_folder_was_lost_keeps_its_record(tmp_path: Path, fake: FakeTraining) -> None:
    """A GPU trains another run the second time: which of the two is better has no say."""
    reproduce("one", made(), request(tmp_path))
    shutil.rmtree(tmp_path / "runs")
    fake.scores = lambda _: (0.9, 0.9)
    fake.seen()
    result = reproduce("two", made(measure=Measure(), show=shown), request(tmp_path))
    assert [(config.method, config.seed) for config in fake.seen()] == [("crl", 0), ("crl", 1)]  # where it is needed
    assert content(tmp_path, "two")["runs"] == content(tmp_path)["runs"]
    assert result.values(result.experiment.cell("CRL"), "argmax") == {"0": 0.5, "1": 0.5}


def test_a_page_counts_runs_that_were_measured_in_a_second_training(tmp_path: Path, fake: FakeTraining) -> None:
    text = "in a second training that may differ from the scored one: 2 of 4 runs"
    experiment = made(measure=Measure(), show=shown)
    reproduce("one", made(), request(tmp_path))
    for score, apart in ((0.5, False), (0.9, True)):  # trained once more: to the same end, and to another
        shutil.rmtree(tmp_path / "runs")
        fake.scores = lambda _, score=score: (score, score)
        result = reproduce("two", experiment, request(tmp_path))
        crl = [run["key"] for run in content(tmp_path, "two")["runs"] if run["row"] == "CRL"]
        assert result.measured_apart == content(tmp_path, "two")["measured_apart"] == (sorted(crl) if apart else [])
        page = tmp_path / "results" / "two.md"
        assert (text in page.read_text(encoding="utf-8")) == apart
        before = page.read_bytes()
        reproduce("two", experiment, request(tmp_path, train=False))
        assert page.read_bytes() == before
        (tmp_path / "results" / "two.json").unlink()
    shutil.rmtree(tmp_path / "runs")
    assert reproduce("two", experiment, request(tmp_path, again=True)).measured_apart == []


def test_measurements_after_retraining_use_the_new_runs(done: Path) -> None:
    measured: list[Path] = []

    def measure(context: Context) -> dict[str, Any]:
        measured[:] = [run.path for run in context.runs("CRL", "")]
        return {"answer": 42}

    reproduce("one", made(), request(done, again=True))
    page = done / "results" / "one.md"
    reproduce("one", made(measure=measure), request(done))
    assert "in the scores but not" not in page.read_text(encoding="utf-8")
    reproduce("one", made(measure=measure), request(done, seeds=3, only=("CE",)))
    text = "**Runs in the scores but not in the measurements: 1.**"
    assert text in page.read_text(encoding="utf-8")
    assert [path.name.endswith("-2") for path in measured] == [True, True]


def test_only_some_rows_are_trained_of_what_measures(tmp_path: Path, count: Count) -> None:
    measured = made(measure=lambda context: {"runs": len(context.runs("CRL", ""))})
    assert reproduce("one", measured, request(tmp_path, only=("CE",))).found == {}
    assert {method for method, _ in count.seen()} == {"ce"}
    assert reproduce("one", measured, request(tmp_path)).found == {"runs": 2}


def test_what_is_measured_is_recorded_group_by_group(tmp_path: Path) -> None:
    def measure(context: Context) -> dict[str, Any]:
        context.runs("CE", "")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce("one", made(measure=measure), request(tmp_path))
    assert [run["row"] for run in content(tmp_path)["runs"]] == ["CE", "CE"]


def test_what_diverges_is_not_measured(tmp_path: Path) -> None:
    measured = made(CE, WILD, measure=lambda context: {"wild": len(context.runs("wild", ""))})
    for _ in range(2):
        assert reproduce("one", measured, request(tmp_path)).found == {"wild": 0}


def test_a_measurement_that_asks_for_a_cell_that_is_not_there(tmp_path: Path, fake: FakeTraining) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"runs": len(context.runs("CLR", ""))}

    with pytest.raises(ValueError, match="Expected cell to be one of the experiment, but got row 'CLR'"):
        reproduce("one", made(measure=measure), request(tmp_path))


def test_an_experiment_may_train_nothing(tmp_path: Path, fake: FakeTraining) -> None:
    experiment = Experiment("A title", "A source", "About it.", shown, measure=lambda _: {"seeds": 3})
    reproduce("one", experiment, request(tmp_path))
    assert fake.seen() == []
    assert content(tmp_path)["found"] == {"seeds": 3}
    assert "Found: 3" in (tmp_path / "results" / "one.md").read_text(encoding="utf-8")


def test_fewer_seeds_lose_nothing_that_was_measured(tmp_path: Path, fake: FakeTraining) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"seeds": [run.config.seed for run in context.runs("CRL", "")]}

    experiment = made(seeds=3, measure=measure)
    reproduce("one", experiment, request(tmp_path))
    shutil.rmtree(tmp_path / "runs")
    fake.seen()
    reproduce("one", experiment, request(tmp_path, seeds=1))
    assert (fake.seen(), content(tmp_path)["found"]) == ([], {"seeds": [0, 1, 2]})
    reproduce("one", experiment, request(tmp_path, seeds=4))
    assert content(tmp_path)["found"] == {"seeds": [0, 1, 2, 3]}


def test_what_was_found_in_other_runs_is_measured_again(tmp_path: Path) -> None:
    experiment = made(
        CE, seeds=1, settings={"data": "cifar100"}, measure=lambda _: {"answer": "new"}, show=lambda _: ""
    )
    run = recorded(experiment, CE)
    for measured, answer in ((run["key"], "old"), ("another", "new")):
        publish(tmp_path, [run], found={"answer": "old"}, measured=[measured])
        assert reproduce("one", experiment, without_data(tmp_path)).found == {"answer": answer}


@pytest.mark.parametrize(("quick", "folder"), [(True, "quick-pictures"), (False, "pictures")])
def test_pictures_of_the_small_version_lie_apart(tmp_path: Path, quick: bool, folder: str) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"pictures": str(context.pictures)}

    result = reproduce(
        "one", replace(made(measure=measure), cells=[], show=lambda _: ""), request(tmp_path, quick=quick)
    )
    assert result.found == {"pictures": str(tmp_path / folder)}


def test_a_picture_is_drawn_from_what_was_found_where_it_is_missing(tmp_path: Path, fake: FakeTraining) -> None:
    drawn: list[Any] = []

    def draw(context: Context) -> None:
        drawn.append((context.before, context.config("CRL", "").method))
        context.pictures.mkdir(exist_ok=True)
        (context.pictures / "one.png").write_text("a picture")

    experiment = made(measure=lambda context: {"runs": len(context.runs("CE", ""))}, draw=draw)
    for _ in range(2):
        reproduce("one", experiment, request(tmp_path))
    assert drawn == [({"runs": 2}, "crl")]
    shutil.rmtree(tmp_path / "pictures")
    shutil.rmtree(tmp_path / "runs")
    fake.seen()
    reproduce("one", experiment, request(tmp_path))
    assert (len(drawn), fake.seen()) == (2, [])
    reproduce("one", experiment, request(tmp_path, again=True))
    assert len(drawn) == 3
