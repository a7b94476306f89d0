"""What is trained: nothing twice, and what is done is kept whatever happens."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.cases import StopsAfter
from helpers.fake_training import (
    ALL,
    CE,
    CHOOSING,
    CRL,
    DIVIDED,
    FOCAL,
    WILD,
    Count,
    FakeTraining,
    content,
    interrupt,
    keys,
    let_diverge,
    made,
    page,
    request,
    texts,
)
from helpers.records import SHAPES
from rectifier.reproduce import Cell, Experiment, reproduce
from rectifier.reproduce.records import LISTS, placed, record_of
from rectifier.reproduce.request import only_what_each_has
from rectifier.reproduce.views import summary_line
from rectifier.training import many as suite
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run.folder import Run

pytestmark = pytest.mark.usefixtures("quiet")


def test_everything_is_trained_recorded_and_shown(tmp_path: Path, count: Count) -> None:
    result = reproduce("one", made(), request(tmp_path))
    assert count.seen() == ALL
    found = content(tmp_path)
    assert (found["experiment"], found["title"]) == ("one", "A title")
    assert (found["chosen"], found["found"], found["candidates"]) == ([], {}, [])
    assert [(run["config"]["method"], run["seed"]) for run in found["runs"]] == ALL
    folders = [Run(path) for path in sorted((tmp_path / "runs").iterdir())]
    rows = {"ce": "CE", "crl": "CRL"}
    expected = {record_of(run)["key"]: placed(record_of(run), rows[run.config.method], "") for run in folders}
    assert {run["key"]: run for run in found["runs"]} == expected
    assert {where: list(runs) for where, runs in result.records.items()} == {("CE", ""): [0, 1], ("CRL", ""): [0, 1]}
    assert (tmp_path / "results" / "one.md").read_text(encoding="utf-8").startswith("# A title\n")


def test_a_part_of_an_experiment_is_trained_and_the_rest_later(tmp_path: Path, count: Count) -> None:
    part = reproduce("one", made(), request(tmp_path, only=["cR"]))
    assert count.seen() == ALL[2:]
    assert list(part.records) == [("CRL", "")]
    whole = reproduce("one", made(), request(tmp_path))
    assert count.seen() == ALL[:2]
    assert list(whole.records) == [("CE", ""), ("CRL", "")]
    with pytest.raises(
        ValueError, match=r"only to be text that occurs in a row or column name \(CE, CRL\), but got 'lmle'"
    ):
        reproduce("one", made(), request(tmp_path, only=["ce", "lmle"]))


def test_each_experiment_is_asked_for_what_it_has_of_what_is_wanted() -> None:
    experiments = {"one": made(), "two": replace(made(), cells=[Cell("LMLE")]), "bare": replace(made(), cells=[])}
    assert only_what_each_has(experiments, ["cr", "lm"]) == {"one": ["cr"], "two": ["lm"], "bare": []}
    assert only_what_each_has(experiments, []) == {"one": [], "two": [], "bare": []}


@pytest.mark.parametrize(("text", "trained"), [("CE", {"ce"}), ("C", {"ce", "crl", "crt"}), ("crl", {"crl"})])
def test_a_name_is_that_name_alone(tmp_path: Path, fake: FakeTraining, text: str, trained: set[str]) -> None:
    cells = (CE, CRL, Cell("CE and more", settings={"method": "crt"}))
    reproduce("one", made(*cells), request(tmp_path, only=[text]))
    assert {config.method for config in fake.seen()} == trained


def test_a_second_call_trains_nothing_and_writes_the_same(done: Path, count: Count) -> None:
    before = texts(done)
    reproduce("one", made(), request(done))
    assert count.seen() == []
    assert texts(done) == before


def test_records_suffice_when_the_folders_are_gone(done: Path, count: Count) -> None:
    before = texts(done)
    shutil.rmtree(done / "runs")
    result = reproduce("one", made(), request(done))
    assert count.seen() == []
    assert texts(done) == before
    assert len(result.all_records) == 4
    assert not (done / "runs").exists()


def test_records_and_folders_of_settings_that_the_recipe_chooses(tmp_path: Path, count: Count) -> None:
    """Records are found by what was asked; their settings are those that were chosen."""
    experiment = made(CE, seeds=1, settings={"optimizer": "auto", "select": "auto", "weight_decay": None})
    reproduce("one", experiment, request(tmp_path))
    assert count.seen() == [("ce", 0)]
    [record] = content(tmp_path)["runs"]
    assert [record["config"][name] for name in ("optimizer", "select", "weight_decay")] == ["sgd", "prior", 5e-4]
    before = texts(tmp_path)
    shutil.rmtree(tmp_path / "results")
    reproduce("one", experiment, request(tmp_path))
    assert texts(tmp_path) == before
    shutil.rmtree(tmp_path / "runs")
    reproduce("one", experiment, request(tmp_path))
    assert count.seen() == []


def test_finished_folders_suffice_when_the_records_are_gone(done: Path, count: Count) -> None:
    before = texts(done)
    shutil.rmtree(done / "results")
    reproduce("one", made(), request(done))
    assert count.seen() == []
    assert texts(done) == before


def test_only_what_is_missing_is_trained(done: Path, count: Count) -> None:
    known = content(done)["runs"]
    reproduce("one", made(CE, FOCAL, CRL), request(done, seeds=3))
    assert sorted(count.seen()) == [("ce", 2), ("crl", 2), ("focal", 0), ("focal", 1), ("focal", 2)]
    now = {run["key"]: run for run in content(done)["runs"]}
    assert len(now) == 9
    assert all(now[run["key"]] == run for run in known)


def test_fewer_seeds_than_are_recorded_hide_none(done: Path, count: Count) -> None:
    shutil.rmtree(done / "runs")
    before = (done / "results" / "one.md").read_text(encoding="utf-8")
    result = reproduce("one", made(), request(done, seeds=1))
    assert len(result.all_records) == 4
    assert (done / "results" / "one.md").read_text(encoding="utf-8") == before
    assert count.seen() == []


def test_experiments_share_runs(done: Path, count: Count) -> None:
    shutil.rmtree(done / "runs")
    other = made(replace(CE, row="baseline"), replace(FOCAL, against="baseline"))
    result = reproduce("two", other, request(done))
    assert count.seen() == [("focal", 0), ("focal", 1)]
    shared = content(done)["runs"][:2]
    assert content(done, "two")["runs"][:2] == [placed(run, "baseline", "") for run in shared]
    assert list(result.records["baseline", ""].values()) == [placed(run, "baseline", "") for run in shared]


def test_cells_share_runs(tmp_path: Path, count: Count) -> None:
    result = reproduce("one", made(CE, replace(CE, row="the same")), request(tmp_path))
    assert count.seen() == [("ce", 0), ("ce", 1)]
    assert len(content(tmp_path)["runs"]) == 2
    assert result.values(result.experiment.cell("CE"), "argmax") == result.values(
        result.experiment.cell("the same"), "argmax"
    )


def test_where_data_lies_and_what_computes_does_not_matter(done: Path, count: Count) -> None:
    moved = {"data_root": "/another/disk", "accelerator": "cpu", "checkpoint_seconds": 5.0}
    reproduce("one", made(), request(done, settings=moved))
    assert count.seen() == []


def test_what_the_request_sets_holds_for_every_run(tmp_path: Path, count: Count) -> None:
    reproduce("one", made(), request(tmp_path, settings={"data_root": "here"}))
    assert {config.data_root for config in count.started} == {str(Path("here").absolute())}


def test_the_quick_version_has_settings_of_its_own_and_two_seeds(tmp_path: Path, count: Count) -> None:
    reproduce("one", made(CE, seeds=5, quick={"batch_size": 16}), request(tmp_path, quick=True))
    assert [(config.batch_size, config.seed) for config in count.started] == [(16, 0), (16, 1)]
    assert "rectifier reproduce one --quick" in (tmp_path / "results" / "one.md").read_text(encoding="utf-8")


def test_runs_side_by_side_are_all_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "why_not_together", lambda _: None)  # as on a GPU
    reproduce("one", made(), request(tmp_path, together=3))
    assert [run["together"] for run in content(tmp_path)["runs"]] == [2, 2, 2, 2]  # four, three at most at a time


def test_runs_whose_times_are_compared_are_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "why_not_together", lambda _: None)  # as on a GPU
    reproduce("one", made(seeds=1, alone=True), request(tmp_path, together=3))
    assert [run["together"] for run in content(tmp_path)["runs"]] == [1, 1]


def test_runs_that_cannot_be_side_by_side_are_trained_one_by_one(tmp_path: Path, count: Count) -> None:
    """Also those whose method, network and seed are the same: data or a rate may be what differs."""
    other = SHAPES.replace("ratio=4", "ratio=2")
    cells = [
        CE,
        Cell("CE, less imbalance", settings={**CE.settings, "data": other}),
        Cell("CE, slower", settings={**CE.settings, "lr": 0.001}),
        Cell("neighbours", settings={"method": "hog-knn"}),
        Cell("neighbours, less imbalance", settings={"method": "hog-knn", "data": other}),
    ]
    reproduce("one", made(*cells, seeds=1), request(tmp_path))
    assert [config.method for config in count.started] == ["ce", "ce", "ce", "hog-knn", "hog-knn"]
    assert [run["together"] for run in content(tmp_path)["runs"]] == [1] * 5


def test_a_stopped_run_is_resumed(tmp_path: Path, count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    long = made(CE, seeds=1, settings={"epochs": 3, "checkpoint_seconds": 1e9})
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 4)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            reproduce("one", long, request(tmp_path))
    (folder,) = (tmp_path / "runs").iterdir()
    assert not Run(folder).is_finished

    reproduce("one", long, request(tmp_path))
    assert count.resumed == [folder]
    assert count.seen() == [("ce", 0)]  # at first
    assert len(Run(folder).environment["sessions"]) == 2
    (record,) = content(tmp_path)["runs"]
    unbroken = record_of(train(Run(folder).config, tmp_path / "unbroken"))
    assert (record["test"], record["key"]) == (unbroken["test"], unbroken["key"])


@pytest.mark.parametrize("after", [1, 3])
def test_what_is_trained_is_recorded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, after)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(), request(tmp_path))
    assert [(run["config"]["method"], run["seed"]) for run in content(tmp_path)["runs"]] == ALL[:after]

    shutil.rmtree(tmp_path / "runs")  # as when the machine is given back
    interrupt(monkeypatch, len(ALL) - after)  # no more than these are trained
    reproduce("one", made(), request(tmp_path))
    assert len(content(tmp_path)["runs"]) == len(ALL)


def test_an_interruption_loses_nothing_that_was_recorded(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.scores = DIVIDED
    settings: dict[str, Any] = {"recipe": {"lr": (0.01, 0.2)}, "measure": lambda _: {"answer": 42}}
    reproduce("one", made(CE, CHOOSING, **settings), request(tmp_path))
    before = content(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    fake.scores = lambda _: (0.1, 0.1)
    interrupt(monkeypatch, 1)
    settings["recipe"] = {"lr": (0.01, 0.2, 0.3)}  # one more to choose from
    with pytest.raises(KeyboardInterrupt):
        reproduce("one", made(CE, CHOOSING, **settings), request(tmp_path))
    after = content(tmp_path)
    everything = {key for part in LISTS for key in keys(after[part])}  # candidates of a new choice have no row yet
    assert {*keys(before["runs"]), *keys(before["candidates"])} <= everything
    assert after["found"] == {"answer": 42}


def test_runs_of_earlier_settings_are_kept_apart(done: Path, count: Count) -> None:
    other = replace(CRL, settings={"method": "crl", "eta": 0.1})
    before = keys(content(done)["runs"])
    reproduce("one", made(CE, other), request(done))
    found = content(done)
    assert [(run["row"], run["seed"]) for run in found["runs"]] == [("CE", 0), ("CE", 1), ("CRL", 0), ("CRL", 1)]
    assert keys(found["superseded"]) == before[2:]
    page = (done / "results" / "one.md").read_text(encoding="utf-8")
    assert "Earlier runs scored on test with settings that were replaced: crl on mlp (2 runs)" in page
    count.seen()
    shutil.rmtree(done / "runs")
    reproduce("one", made(), request(done))  # and back
    assert count.seen() == []
    assert keys(content(done)["runs"]) == before


def test_a_run_that_diverges_is_recorded_and_named_on_the_page(tmp_path: Path, count: Count) -> None:
    result = reproduce("one", made(CE, WILD), request(tmp_path))
    assert list(result.records) == [("CE", "")]
    assert result.diverged == [("wild", "", 0), ("wild", "", 1)]
    page = (tmp_path / "results" / "one.md").read_text(encoding="utf-8")
    assert "**Diverged runs, excluded from all means: wild, seed 0; wild, seed 1.**" in page
    wild = [run for run in content(tmp_path)["runs"] if run["row"] == "wild"]
    assert all("finite" in run["diverged"] for run in wild)
    count.seen()
    shutil.rmtree(tmp_path / "runs")
    reproduce("one", made(CE, WILD), request(tmp_path))
    assert count.seen() == []  # it would diverge again
    reproduce("one", made(CE, WILD), request(tmp_path, again=True, only=("wild",)))
    assert {seed for _, seed in count.seen()} == {0, 1}
    assert len(content(tmp_path)["runs"]) == 4


def test_runs_that_diverge_side_by_side_are_recorded_with_their_own_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "why_not_together", lambda _: None)  # as on a GPU
    result = reproduce("one", made(CE, WILD), request(tmp_path))
    assert list(result.records) == [("CE", "")]
    wild = [one for one in content(tmp_path)["runs"] if one["row"] == "wild"]
    assert [(one["seed"], one["together"]) for one in wild] == [(0, 4), (1, 4)]
    for one in wild:
        assert [other["key"] in one["diverged"] for other in wild] == [other is one for other in wild]


def test_seeds_that_diverged_are_seeds_of_the_command(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_diverge(fake, monkeypatch, lambda config: config.seed == 2)
    reproduce("one", made(seeds=3), request(tmp_path))
    assert "`rectifier reproduce one`" in page(tmp_path)


def test_a_headline_says_that_runs_diverged(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.scores = lambda config: (0.6, 0.6) if config.method == "crl" else (0.5, 0.5)
    let_diverge(fake, monkeypatch, lambda config: config.method == "crl" and config.seed > 0)
    result = reproduce("one", made(seeds=3), request(tmp_path))
    assert summary_line(result) == "CRL +10.0 over CE, 2 runs diverged"


def test_a_config_is_built_once_for_each_seed(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: Counter[tuple[str, str]] = Counter()
    build = Experiment.config

    def counted(self: Experiment, cell: Cell, **options: Any) -> Config:
        built[cell.row, str(options["more"])] += 1
        return build(self, cell, **options)

    monkeypatch.setattr(Experiment, "config", counted)
    reproduce("one", made(seeds=5), request(tmp_path))
    assert set(built.values()) == {5}
    assert len(fake.seen()) == 10
