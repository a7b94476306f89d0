"""reproduce: nothing is trained twice, validation alone chooses, and what is done is kept whatever happens."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.cases import StopsAfter
from helpers.records import SHAPES
from helpers.theatre import (
    CE,
    CHOOSING,
    CRL,
    DIVIDED,
    ETAS,
    WILD,
    Count,
    Theatre,
    content,
    eta,
    interrupt,
    made,
    request,
    write_table,
)
from rectifier._base import console
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, Context, Experiment, ExperimentResult, reproduce
from rectifier.reproduce.records import LISTS, key_of, placed, record_of
from rectifier.reproduce.work import CHOICE_SEEDS, only_what_each_has
from rectifier.training import many as suite
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run.folder import Run

FOCAL = Cell("focal", settings={"method": "focal"}, against="CE")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with console.quiet():
        yield


def keys(records: Sequence[dict[str, Any]]) -> list[str]:
    return [record["key"] for record in records]


# Nothing is trained twice


ALL = [("ce", 0), ("ce", 1), ("crl", 0), ("crl", 1)]


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "done"))


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in (folder / "results").iterdir()}


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
    with pytest.raises(ValueError, match=r"only to be a part of a row or column \(CE, CRL\), but got 'lmle'"):
        reproduce("one", made(), request(tmp_path, only=["ce", "lmle"]))


def test_each_experiment_is_asked_for_what_it_has_of_what_is_wanted() -> None:
    experiments = {"one": made(), "two": replace(made(), cells=[Cell("LMLE")]), "bare": replace(made(), cells=[])}
    assert only_what_each_has(experiments, ["cr", "lm"]) == {"one": ["cr"], "two": ["lm"], "bare": []}
    assert only_what_each_has(experiments, []) == {"one": [], "two": [], "bare": []}


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


@pytest.mark.parametrize("folders", ["gone", "there"])
def test_again_trains_anew(done: Path, count: Count, folders: str) -> None:
    if folders == "gone":
        shutil.rmtree(done / "runs")
    before = content(done)
    reproduce("one", made(), request(done, again=True))
    assert count.seen() == ALL
    for run, other in zip(before["runs"], content(done)["runs"], strict=True):
        assert (run["key"], run["test"]) == (other["key"], other["test"])  # a seed says it all


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
    assert {config.data_root for config in count.begun} == {str(Path("here").absolute())}


def test_the_quick_version_has_settings_of_its_own_and_two_seeds(tmp_path: Path, count: Count) -> None:
    reproduce("one", made(CE, seeds=5, quick={"batch_size": 16}), request(tmp_path, quick=True))
    assert [(config.batch_size, config.seed) for config in count.begun] == [(16, 0), (16, 1)]
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
    assert [config.method for config in count.begun] == ["ce", "ce", "ce", "hog-knn", "hog-knn"]
    assert [run["together"] for run in content(tmp_path)["runs"]] == [1] * 5


# What is done is kept


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
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


# Hand-made runs: their scores are what the test says.


def test_validation_chooses_and_test_has_no_say(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    result = reproduce("one", made(CE, CHOOSING), request(tmp_path))
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}
    seen = theatre.seen()
    assert [(eta(config), config.seed) for config in seen[:6]] == [(e, s) for e in ETAS for s in CHOICE_SEEDS]
    assert [(config.method, eta(config), config.seed) for config in seen[6:]] == [
        ("ce", None, 0),
        ("ce", None, 1),
        ("crl", 0.5, 0),
        ("crl", 0.5, 1),
    ]
    assert result.values(result.experiment.cell("CRL"), "argmax") == {"0": 0.2, "1": 0.2}


def test_candidates_are_kept_without_their_test_scores(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    found = content(tmp_path)
    assert found["chosen"] == [{"row": "CRL", "column": "", "eta": 0.5}]
    assert [(one["config"]["method.eta"], one["seed"]) for one in found["candidates"]] == [
        (e, s) for e in ETAS for s in CHOICE_SEEDS
    ]
    assert not any("test" in one for one in found["candidates"])
    assert all(one["validation"]["argmax"]["class_balanced_accuracy"] for one in found["candidates"])
    assert all("test" in one for one in found["runs"])
    assert not set(keys(found["runs"])) & set(keys(found["candidates"]))
    assert not {one["seed"] for one in found["runs"]} & set(CHOICE_SEEDS)


@pytest.mark.parametrize("gone", ["runs", "results", "neither"])
def test_a_choice_is_made_once(tmp_path: Path, theatre: Theatre, gone: str) -> None:
    theatre.scores = DIVIDED
    experiment = made(CE, CHOOSING)
    reproduce("one", experiment, request(tmp_path))
    theatre.seen()
    before = texts(tmp_path)
    shutil.rmtree(tmp_path / gone, ignore_errors=True)
    for _ in range(2):
        assert reproduce("one", experiment, request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}
        assert texts(tmp_path) == before
    assert theatre.seen() == []
    assert "CRL: eta 0.5" in before["one.md"]


def test_the_mean_over_the_choices_seeds_decides(tmp_path: Path, theatre: Theatre) -> None:
    first, second = CHOICE_SEEDS
    likes = {(0.1, first): 0.9, (0.1, second): 0.1, (0.5, first): 0.6, (0.5, second): 0.6, (1.0, first): 0.2}
    theatre.scores = lambda config: (likes.get((eta(config) or 0, config.seed), 0.7), 0.5)
    result = reproduce("one", made(CHOOSING), request(tmp_path))
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}


def test_the_quick_version_chooses_by_one_seed(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    result = reproduce("one", made(CHOOSING, quick={"epochs": 1}), request(tmp_path, quick=True, seeds=1))
    assert [(eta(config), config.seed) for config in theatre.seen()] == [
        *((e, CHOICE_SEEDS[0]) for e in ETAS),
        (0.5, 0),
    ]
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}


def test_of_several_settings_all_combinations_compete(tmp_path: Path, theatre: Theatre) -> None:
    cell = replace(CHOOSING, choose={"eta": (0.1, 0.5), "kappa": (1, 5)})
    likes = {(0.1, 1): 0.4, (0.1, 5): 0.7, (0.5, 1): 0.6, (0.5, 5): 0.3}
    theatre.scores = lambda config: (likes[config.method_options["eta"], config.method_options["kappa"]], 0.5)
    result = reproduce("one", made(cell), request(tmp_path))
    assert result.chosen == {("CRL", ""): {"eta": 0.1, "kappa": 5}}


def rate(config: Config) -> float:
    assert config.lr is not None
    return config.lr


def test_a_recipe_is_chosen_for_the_first_cell_and_holds_for_its_column_alone(tmp_path: Path, theatre: Theatre) -> None:
    cells = [
        replace(cell, column=column, settings={**cell.settings, "network": network})
        for cell in (CE, CRL)
        for column, network in (("small", "mlp"), ("large", "cifarnet"))
    ]
    best = {"mlp": 0.2, "cifarnet": 0.01}
    # Test would choose the other rate, and so would CRL, which is not asked.
    theatre.scores = lambda config: (
        (0.9, 0.1) if (rate(config) == best[config.network]) == (config.method == "ce") else (0.1, 0.9)
    )
    result = reproduce("one", made(*cells, recipe={"lr": (0.01, 0.2)}), request(tmp_path))
    assert result.chosen == {("all", "small"): {"lr": 0.2}, ("all", "large"): {"lr": 0.01}}
    seen = theatre.seen()
    candidates, scored = seen[:8], seen[8:]
    assert {(config.method, config.seed) for config in candidates} == {("ce", seed) for seed in CHOICE_SEEDS}
    assert len(scored) == 8
    assert {(config.network, config.method, rate(config)) for config in scored} == {
        (network, method, lr) for network, lr in best.items() for method in ("ce", "crl")
    }
    found = content(tmp_path)
    assert {(one["row"], one["column"], one["lr"]) for one in found["chosen"]} == {
        ("all", "small", 0.2),
        ("all", "large", 0.01),
    }
    assert len(found["candidates"]) == 8


def test_a_part_of_an_experiment_has_the_recipe_of_its_column(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = lambda config: (0.9 if config.lr == 0.2 else 0.4, 0.5)
    experiment = made(CE, CRL, recipe={"lr": (0.01, 0.2)})
    part = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert {config.method for config in theatre.seen()} == {"ce", "crl"}  # the recipe is cross-entropy's
    assert part.chosen == {("all", ""): {"lr": 0.2}}
    assert list(part.records) == [("CRL", "")]
    whole = reproduce("one", experiment, request(tmp_path))
    assert {(config.method, config.lr) for config in theatre.seen()} == {("ce", 0.2)}
    assert list(whole.records) == [("CE", ""), ("CRL", "")]


def test_a_cells_own_choice_is_made_with_the_columns_recipe(tmp_path: Path, theatre: Theatre) -> None:
    def scores(config: Config) -> tuple[float, float]:
        if config.method == "ce":
            return (0.8, 0.5) if rate(config) == 0.2 else (0.3, 0.5)
        return {0: 0.5, 0.1: 0.2, 0.5: 0.4, 1.0: 0.9}[eta(config) or 0], 0.5

    theatre.scores = scores
    result = reproduce("one", made(CE, FOCAL, CHOOSING, recipe={"lr": (0.01, 0.2)}), request(tmp_path))
    assert result.chosen == {("all", ""): {"lr": 0.2}, ("CRL", ""): {"eta": 1.0}}
    seen = theatre.seen()
    assert {rate(config) for config in seen if config.method != "ce"} == {0.2}
    assert [(config.method, eta(config), rate(config)) for config in seen if config.seed == 0] == [
        ("ce", None, 0.2),
        ("focal", None, 0.2),
        ("crl", 1.0, 0.2),
    ]
    assert len(content(tmp_path)["candidates"]) == 2 * 2 + 3 * 2
    shutil.rmtree(tmp_path / "runs")
    assert reproduce("one", made(CE, FOCAL, CHOOSING, recipe={"lr": (0.01, 0.2)}), request(tmp_path)).chosen == {
        ("all", ""): {"lr": 0.2},
        ("CRL", ""): {"eta": 1.0},
    }
    assert theatre.seen() == []
    assert len(content(tmp_path)["candidates"]) == 2 * 2 + 3 * 2


def test_a_candidate_is_judged_by_the_rule_that_validation_prefers(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rule = {
        0.1: ({"argmax": 0.7, "prior": 0.2, "tuned": 0.2}, "argmax"),
        0.5: ({"argmax": 0.1, "prior": 0.8, "tuned": 0.1}, "prior"),
        1.0: ({"argmax": 0.6, "prior": 0.6, "tuned": 0.6}, "argmax"),
    }

    def train(config: Config, out: Path, **_: Any) -> Run:
        scores, preferred = by_rule[eta(config) or 0]
        theatre.write(config, out, scores, dict.fromkeys(RULES, 0.5), preferred)
        return Run(out)

    monkeypatch.setattr(suite, "train", train)
    assert reproduce("one", made(CHOOSING), request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}


def test_a_tuned_rule_is_judged_by_samples_that_it_was_not_tuned_on(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets scored on what they were tuned on always win; ``rules.json`` has what they are worth on other samples."""
    held_out = {0.1: 0.62, 0.5: 0.70}

    def train(config: Config, out: Path, **_: Any) -> Run:
        is_tuned = eta(config) == 0.1
        inside = (
            {"argmax": 0.6, "prior": 0.5, "tuned": 0.75} if is_tuned else {"argmax": 0.7, "prior": 0.5, "tuned": 0.72}
        )
        theatre.write(config, out, inside, dict.fromkeys(RULES, 0.5), "tuned" if is_tuned else "argmax")
        rules = json.loads((out / "rules.json").read_text())
        tuned = {"tuned": held_out[eta(config) or 0] if is_tuned else 0.65}
        (out / "rules.json").write_text(json.dumps({**rules, "validation": {**inside, **tuned}}))
        return Run(out)

    monkeypatch.setattr(suite, "train", train)
    cell = replace(CHOOSING, choose={"eta": tuple(held_out)})
    assert reproduce("one", made(cell), request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}


def test_candidates_are_recorded_at_once(tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    theatre.scores = DIVIDED
    with monkeypatch.context() as patch:
        interrupt(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(CE, CHOOSING), request(tmp_path))
    assert len(content(tmp_path)["candidates"]) == 4
    shutil.rmtree(tmp_path / "runs")
    theatre.seen()
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    assert len(theatre.seen()) == 2 + 4


def test_an_interruption_loses_nothing_that_was_recorded(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    theatre.scores = DIVIDED
    settings: dict[str, Any] = {"recipe": {"lr": (0.01, 0.2)}, "measure": lambda _: {"answer": 42}}
    reproduce("one", made(CE, CHOOSING, **settings), request(tmp_path))
    before = content(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    theatre.scores = lambda _: (0.1, 0.1)
    interrupt(monkeypatch, 1)
    settings["recipe"] = {"lr": (0.01, 0.2, 0.3)}  # one more to choose from
    with pytest.raises(KeyboardInterrupt):
        reproduce("one", made(CE, CHOOSING, **settings), request(tmp_path))
    after = content(tmp_path)
    everything = {key for part in LISTS for key in keys(after[part])}  # what is to be chosen anew is no row's yet
    assert {*keys(before["runs"]), *keys(before["candidates"])} <= everything
    assert after["found"] == {"answer": 42}


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


# Data that has changed


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


def test_what_is_measured_after_training_anew_is_of_the_new_runs(done: Path) -> None:
    measured: list[Path] = []

    def measure(context: Context) -> dict[str, Any]:
        measured[:] = [run.path for run in context.runs("CRL", "")]
        return {"answer": 42}

    reproduce("one", made(), request(done, again=True))
    page = done / "results" / "one.md"
    reproduce("one", made(measure=measure), request(done))
    assert "in the scores but not" not in page.read_text(encoding="utf-8")
    reproduce("one", made(measure=measure), request(done, seeds=3, only=("CE",)))
    told = "**Runs in the scores but not in the measurements: 1.**"
    assert told in page.read_text(encoding="utf-8")
    assert [path.name.endswith("-2") for path in measured] == [True, True]


# What diverges, what is superseded, what is not chosen


def test_a_run_that_diverges_is_recorded_and_told(tmp_path: Path, count: Count) -> None:
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


def test_a_candidate_that_diverges_is_not_chosen(tmp_path: Path) -> None:
    choosing = Cell("tuned", settings={"method": "ce"}, against="CE", choose={"lr": (1e12, 0.05)})
    result = reproduce("one", made(CE, choosing), request(tmp_path))
    assert result.chosen == {("tuned", ""): {"lr": 0.05}}
    assert ("tuned", "") in result.records


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


def test_what_validation_has_not_chosen_yet_has_no_score(done: Path) -> None:
    """Runs with a method's default are no runs of a cell whose setting is to be chosen."""
    choosing = replace(CE, choose={"lr": (0.01, 0.2)})
    assert ("CE", "") not in reproduce("one", made(choosing, CRL), request(done, train=False)).records
    recipe: dict[str, Any] = {"recipe": {"lr": (0.01, 0.2)}}
    assert not reproduce("one", made(**recipe), request(done, train=False)).records


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


def test_generated_and_real_data_do_not_mix(done: Path) -> None:
    with pytest.raises(ValueError, match=r"results to be a folder for small versions on generated data only"):
        reproduce("one", made(quick={"epochs": 1}), request(done, quick=True))


def test_an_experiment_without_a_small_version_has_none(tmp_path: Path, count: Count) -> None:
    with pytest.raises(ValueError, match=r"one has no small version"):
        reproduce("one", made(), request(tmp_path, quick=True))
    assert count.seen() == []


# Showing without training


def test_showing_trains_nothing_and_shows_what_is_recorded(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    experiment = made(CE, CHOOSING)
    reproduce("one", experiment, request(tmp_path))
    before = texts(tmp_path)
    theatre.seen()
    shutil.rmtree(tmp_path / "runs")
    reproduce("one", experiment, request(tmp_path, train=False))
    assert texts(tmp_path) == before
    result = reproduce("one", made(CE, FOCAL, CHOOSING), request(tmp_path, train=False))
    assert theatre.seen() == []
    assert {where: len(runs) for where, runs in result.records.items()} == {("CE", ""): 2, ("CRL", ""): 2}
    assert result.score(result.experiment.cell("focal"), "argmax")["mean"] is None
    assert len(content(tmp_path)["runs"]) == 4


def test_showing_with_fewer_records_than_asked_for(tmp_path: Path, theatre: Theatre) -> None:
    reproduce("one", made(), request(tmp_path, seeds=1))
    theatre.seen()
    result = reproduce("one", made(seeds=3), request(tmp_path, train=False))
    assert theatre.seen() == []
    assert len(result.all_records) == 2
    assert len(content(tmp_path)["runs"]) == 2


def test_showing_claims_no_choice_that_was_not_made(tmp_path: Path, theatre: Theatre) -> None:
    experiment = made(CE, CHOOSING, recipe={"lr": (0.01, 0.2)})
    result = reproduce("one", experiment, request(tmp_path, train=False))
    assert theatre.seen() == []
    assert result.chosen == {}
    assert not (tmp_path / "results").exists()  # nothing is recorded, and nothing written


def test_of_a_grid_with_a_gap_nothing_is_chosen(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    wider = replace(CHOOSING, choose={"eta": (*ETAS, 0.01)})
    result = reproduce("one", made(CE, wider), request(tmp_path, train=False))
    assert (result.chosen, list(result.records)) == ({}, [("CE", "")])
    narrower = replace(CHOOSING, choose={"eta": ETAS[1:]})
    assert reproduce("one", made(CE, narrower), request(tmp_path, train=False)).chosen == {("CRL", ""): {"eta": 0.5}}


# Scores of test that nobody asks for


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


# Beside runs


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


def test_what_is_measured_is_recorded_and_shown(tmp_path: Path, theatre: Theatre) -> None:
    measure = Measure()
    experiment = made(measure=measure, show=shown)
    reproduce("one", experiment, request(tmp_path, settings={"data_root": "disk"}))
    (context,) = measure.given
    assert (context.data_root, context.quick) == ("disk", False)
    assert context.pictures.parent == tmp_path
    found = content(tmp_path)
    assert found["found"]["seeds"] == [0, 1]
    assert len(found["runs"]) == 4
    assert sorted(config.method for config in theatre.seen()) == ["ce", "ce", "crl", "crl"]
    for folder, run in zip(found["found"]["folders"], found["runs"][2:], strict=True):
        assert folder.endswith(run["key"])
    assert "Found: [0, 1]" in (tmp_path / "results" / "one.md").read_text(encoding="utf-8")


def test_what_is_measured_is_measured_once(tmp_path: Path, theatre: Theatre) -> None:
    measure = Measure()
    experiment = made(measure=measure, show=shown)
    reproduce("one", experiment, request(tmp_path))
    before = texts(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    theatre.seen()
    reproduce("one", experiment, request(tmp_path))
    assert (len(measure.given), theatre.seen(), texts(tmp_path)) == (1, [], before)
    reproduce("one", experiment, request(tmp_path, again=True))
    assert len(measure.given) == 2
    assert content(tmp_path)["found"]["seeds"] == [0, 1]


def test_folders_that_are_gone_are_trained_where_they_are_needed(tmp_path: Path, theatre: Theatre) -> None:
    reproduce("one", made(), request(tmp_path))
    theatre.seen()
    shutil.rmtree(tmp_path / "runs")
    reproduce("two", made(measure=Measure(), show=shown), request(tmp_path))
    assert [(config.method, config.seed) for config in theatre.seen()] == [("crl", 0), ("crl", 1)]


def test_a_run_whose_folder_was_lost_keeps_its_record(tmp_path: Path, theatre: Theatre) -> None:
    """A GPU trains another run the second time: which of the two is better has no say."""
    reproduce("one", made(), request(tmp_path))
    shutil.rmtree(tmp_path / "runs")
    theatre.scores = lambda _: (0.9, 0.9)
    result = reproduce("two", made(measure=Measure(), show=shown), request(tmp_path))
    assert content(tmp_path, "two")["runs"] == content(tmp_path)["runs"]
    assert result.values(result.experiment.cell("CRL"), "argmax") == {"0": 0.5, "1": 0.5}


def test_what_is_measured_in_other_trainings_than_those_scored_is_told(tmp_path: Path, theatre: Theatre) -> None:
    told = "in a second training that may differ from the scored one: 2 of 4 runs"
    experiment = made(measure=Measure(), show=shown)
    reproduce("one", made(), request(tmp_path))
    for score, apart in ((0.5, False), (0.9, True)):  # trained once more: to the same end, and to another
        shutil.rmtree(tmp_path / "runs")
        theatre.scores = lambda _, score=score: (score, score)
        result = reproduce("two", experiment, request(tmp_path))
        crl = [run["key"] for run in content(tmp_path, "two")["runs"] if run["row"] == "CRL"]
        assert result.measured_apart == content(tmp_path, "two")["measured_apart"] == (sorted(crl) if apart else [])
        page = tmp_path / "results" / "two.md"
        assert (told in page.read_text(encoding="utf-8")) == apart
        before = page.read_bytes()
        reproduce("two", experiment, request(tmp_path, train=False))
        assert page.read_bytes() == before
        (tmp_path / "results" / "two.json").unlink()
    shutil.rmtree(tmp_path / "runs")
    assert reproduce("two", experiment, request(tmp_path, again=True)).measured_apart == []


def test_a_measurement_that_asks_for_a_cell_that_is_not_there(tmp_path: Path, theatre: Theatre) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"runs": len(context.runs("CLR", ""))}

    with pytest.raises(ValueError, match="Expected cell to be one of the experiment, but got row 'CLR'"):
        reproduce("one", made(measure=measure), request(tmp_path))


def test_an_experiment_may_train_nothing(tmp_path: Path, theatre: Theatre) -> None:
    experiment = Experiment("A title", "A source", "About it.", shown, measure=lambda _: {"seeds": 3})
    reproduce("one", experiment, request(tmp_path))
    assert theatre.seen() == []
    assert content(tmp_path)["found"] == {"seeds": 3}
    assert "Found: 3" in (tmp_path / "results" / "one.md").read_text(encoding="utf-8")


def test_runs_lie_in_folders_that_name_them(finished: Path) -> None:
    for run in content(finished)["runs"]:
        folder = finished / "runs" / f"{run['config']['method']}-mlp-{run['key']}"
        assert key_of(Run(folder).config) == run["key"]
