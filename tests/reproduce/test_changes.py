"""What changes between two commands, data, seeds, another process: nothing is mixed up, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.cases import StopsAfter
from helpers.theatre import (
    CE,
    CHOOSING,
    CRL,
    DIVIDED,
    WILD,
    Count,
    Theatre,
    content,
    interrupt,
    made,
    request,
    write_table,
)
from rectifier._base import files as atomic
from rectifier.reproduce import Cell, Context, Experiment, reproduce
from rectifier.reproduce.views import summary_line
from rectifier.training import BusyError, resume
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run.folder import Run


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    return write_table(tmp_path / "images", "rb" * 8 + "br" * 8)


def change(table: Path) -> None:
    """Give an image another label."""
    table.write_text(table.read_text().replace("5.png,b", "5.png,r"))


def of_table(table: Path, *cells: Cell, **options: Any) -> Experiment:
    settings = {"data": str(table), "size": "8", **options.pop("settings", {})}
    return made(*cells, settings=settings, **options)


def prints(folder: Path) -> dict[tuple[str, int], str]:
    return {(run["row"], run["seed"]): run["data"]["fingerprint"] for run in content(folder)["runs"]}


def page(folder: Path) -> str:
    return (folder / "results" / "one.md").read_text(encoding="utf-8")


def stop_within(experiment: Experiment, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin to train, and be stopped after some steps of the first run."""
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 4)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            reproduce("one", experiment, request(folder))


# Other data


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


def test_runs_of_other_data_are_kept_apart_and_told_of(tmp_path: Path, table: Path) -> None:
    experiment = of_table(table, CE, seeds=1)
    reproduce("one", experiment, request(tmp_path))
    (old,) = prints(tmp_path).values()
    change(table)
    for _ in range(2):  # what is kept apart is not read as a record of today
        reproduce("one", experiment, request(tmp_path))
        (kept,) = content(tmp_path)["superseded"]
        assert (kept["data"]["fingerprint"], kept["replaced"]) == (old, "other data")
        assert "Earlier runs scored on test on data that has changed since" in page(tmp_path)


def test_a_run_that_was_begun_on_other_data_stays_and_another_is_begun(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = {"epochs": 3, "checkpoint_seconds": 1e9, "batch_size": 4}
    experiment = of_table(table, CE, seeds=1, settings=long)
    stop_within(experiment, tmp_path, monkeypatch)
    change(table)
    result = reproduce("one", experiment, request(tmp_path))
    assert len(result.all_records) == 1
    assert [Run(path).is_finished for path in sorted((tmp_path / "runs").iterdir())] == [False, True]


def test_training_anew_that_goes_on_does_not_go_on_with_other_data(
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


# Trained anew


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


# Seeds


def test_fewer_seeds_lose_nothing_that_was_measured(tmp_path: Path, theatre: Theatre) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"seeds": [run.config.seed for run in context.runs("CRL", "")]}

    experiment = made(seeds=3, measure=measure)
    reproduce("one", experiment, request(tmp_path))
    shutil.rmtree(tmp_path / "runs")
    theatre.seen()
    reproduce("one", experiment, request(tmp_path, seeds=1))
    assert (theatre.seen(), content(tmp_path)["found"]) == ([], {"seeds": [0, 1, 2]})
    reproduce("one", experiment, request(tmp_path, seeds=4))
    assert content(tmp_path)["found"] == {"seeds": [0, 1, 2, 3]}


Diverging = Callable[[Config], bool]


def let_diverge(theatre: Theatre, monkeypatch: pytest.MonkeyPatch, which: Diverging) -> None:
    def train(config: Config, out: Path, **options: Any) -> Run:
        run = theatre.train(config, out, **options)
        if which(config):
            (out / "metrics.json").unlink()
            raise FloatingPointError(f"{out}: the loss is not finite")
        return run

    monkeypatch.setattr(suite, "train", train)


def test_seeds_that_diverged_are_seeds_of_the_command(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_diverge(theatre, monkeypatch, lambda config: config.seed == 2)
    reproduce("one", made(seeds=3), request(tmp_path))
    assert "`rectifier reproduce one`" in page(tmp_path)


def test_a_headline_says_that_runs_diverged(tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch) -> None:
    theatre.scores = lambda config: (0.6, 0.6) if config.method == "crl" else (0.5, 0.5)
    let_diverge(theatre, monkeypatch, lambda config: config.method == "crl" and config.seed > 0)
    result = reproduce("one", made(seeds=3), request(tmp_path))
    assert summary_line(result) == "CRL +10.0 over CE, 2 runs diverged"


# Choices


def test_nothing_is_chosen_beside_a_recipe_that_is_not(tmp_path: Path, theatre: Theatre) -> None:
    theatre.scores = DIVIDED
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    chosen = reproduce("one", made(CE, CHOOSING, recipe={"lr": (0.05, 0.2)}), request(tmp_path, train=False)).chosen
    assert chosen == {}


@pytest.mark.parametrize(("text", "trained"), [("CE", {"ce"}), ("C", {"ce", "crl", "crt"}), ("crl", {"crl"})])
def test_a_name_is_that_name_alone(tmp_path: Path, theatre: Theatre, text: str, trained: set[str]) -> None:
    cells = (CE, CRL, Cell("CE and more", settings={"method": "crt"}))
    reproduce("one", made(*cells), request(tmp_path, only=[text]))
    assert {config.method for config in theatre.seen()} == trained


@pytest.mark.parametrize("part", ["settings", "recipe", "choose"])
def test_seeds_cannot_be_set(part: str) -> None:
    cell = replace(CE, choose={"seed": (1, 2)}) if part == "choose" else CE
    settings = {"settings": {"seed": 1}} if part == "settings" else {"recipe": {"seed": (1, 2)}}
    with pytest.raises(ValueError, match="without a seed, because seeds are 0, 1, 2 and so on"):
        made(cell, **({} if part == "choose" else settings))


@pytest.mark.parametrize("cell", [replace(CE, settings={"lr": 1.0}), replace(CE, choose={"lr": (0.1, 1.0)})])
def test_what_a_recipe_chooses_is_no_cells_own(cell: Cell) -> None:
    with pytest.raises(
        ValueError, match="of 'CE' to be without settings of the recipe, which is chosen for the whole column, but got lr"
    ):
        made(cell, recipe={"lr": (0.1, 0.2)})


# Others at work


def test_two_at_work_on_one_experiment_lose_nothing(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Config] = []

    def train(config: Config, out: Path, **options: Any) -> Run:
        begun.append(config)
        if len(begun) == 1:  # somebody else is at it, too
            reproduce("one", made(), request(tmp_path, only=["CRL"]))
        return theatre.train(config, out, **options)

    monkeypatch.setattr(suite, "train", train)
    result = reproduce("one", made(), request(tmp_path, only=["CE"]))
    assert set(prints(tmp_path)) == {("CE", 0), ("CE", 1), ("CRL", 0), ("CRL", 1)}
    assert result.gain(CRL, "argmax")
    assert len(begun) == 4


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = made(CE, seeds=1, settings={"epochs": 3, "checkpoint_seconds": 1e9})
    stop_within(experiment, tmp_path, monkeypatch)
    (folder,) = (tmp_path / "runs").iterdir()
    with atomic.claimed(folder, wait=False) as ours:
        assert ours
        with pytest.raises(
            BusyError, match="to be a run that nobody trains, but got one that another process does now"
        ):
            resume(folder)
    assert resume(folder).is_finished


def test_what_another_process_trains_is_waited_for(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: list[Path] = []

    def train(config: Config, out: Path, **options: Any) -> Run:
        if not busy:
            busy.append(out)
            theatre.train(config, out, **options)  # by somebody else, who is done when the claim is free
            raise BusyError(out)
        return theatre.train(config, out, **options)

    monkeypatch.setattr(suite, "train", train)
    assert len(reproduce("one", made(), request(tmp_path)).all_records) == 4
    assert len(theatre.seen()) == 4


Elsewhere = Callable[[], Any]


def meanwhile(theatre: Theatre, monkeypatch: pytest.MonkeyPatch, elsewhere: Elsewhere) -> None:
    """Let something happen elsewhere when the next run is trained."""
    begun: list[Config] = []

    def train(config: Config, out: Path, **options: Any) -> Run:
        begun.append(config)
        if len(begun) == 1:
            elsewhere()
        return theatre.train(config, out, **options)

    monkeypatch.setattr(suite, "train", train)


def test_what_others_train_anew_is_not_put_back(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce("one", made(CE), request(tmp_path))
    theatre.scores = lambda _: (0.9, 0.9)
    meanwhile(theatre, monkeypatch, lambda: reproduce("one", made(), request(tmp_path, only=["CE"], again=True)))
    result = reproduce("one", made(), request(tmp_path, only=["CRL"]))
    assert set(result.values(CE, "argmax").values()) == {0.9}
    assert [one["replaced"] for one in content(tmp_path)["superseded"]] == ["trained anew"] * 2


def test_what_others_find_and_choose_is_taken_up(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    theatre.scores = DIVIDED
    experiment = made(CE, CHOOSING, measure=lambda _: {"answer": 42})
    reproduce("one", made(CE, seeds=1), request(tmp_path))
    theatre.seen()

    def elsewhere() -> None:
        reproduce("one", experiment, request(tmp_path, seeds=1))

    meanwhile(theatre, monkeypatch, elsewhere)  # while the second seed of CE is trained here
    result = reproduce("one", experiment, request(tmp_path, only=["CE"]))
    assert result.found == {"answer": 42}
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}
    assert list(result.values(result.experiment.cell("CRL"), "argmax")) == ["0"]
    assert content(tmp_path)["superseded"] == []


def test_a_claim_ends_and_leaves_nothing(tmp_path: Path) -> None:
    with atomic.claimed(tmp_path, wait=False) as first, atomic.claimed(tmp_path, wait=False) as second:
        assert (first, second) == (True, False)
    with atomic.claimed(tmp_path, wait=True) as third:
        assert third
    assert not list(tmp_path.iterdir())


# Files that are not what they should be


@pytest.mark.parametrize("option", ["results", "runs"])
def test_folders_that_cannot_be_written_to_are_told_at_once(tmp_path: Path, theatre: Theatre, option: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"Expected (results|runs) to be a writable folder, but got .*file"
    ):
        reproduce("one", made(), request(tmp_path, **{option: tmp_path / "file" / "below"}))
    assert theatre.seen() == []


RECORDS = "Expected .*results/one.json to be the results of an experiment, as rectifier reproduce writes them"


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ([], "one.json to be the results of an experiment, but got another file"),
        (3, "one.json to be the results of an experiment, but got another file"),
        ({"runs": []}, "one.json to be the results of an experiment, but got another file"),
        ({"experiment": "one", "runs": 3}, f"{RECORDS}, but got damaged runs"),
        ({"experiment": "one", "runs": [{"key": "a"}]}, f"{RECORDS}, but got damaged runs"),
        ({"experiment": "one", "runs": [], "candidates": ["a"]}, f"{RECORDS}, but got damaged candidates"),
        ({"experiment": "one", "measured": 5, "found": []}, f"{RECORDS}, but got damaged measured"),
        ({"experiment": "one", "found": [1]}, f"{RECORDS}, but got damaged found"),
    ],
)
def test_results_of_another_shape_are_told_before_anything_is_trained(
    tmp_path: Path, theatre: Theatre, there: Any, told: str
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "one.json").write_text(json.dumps(there))
    with pytest.raises(ValueError, match=told):
        reproduce("one", made(), request(tmp_path))
    assert theatre.seen() == []
    assert json.loads((tmp_path / "results" / "one.json").read_text()) == there


def test_other_files_beside_results_are_left_alone(tmp_path: Path, theatre: Theatre) -> None:
    (tmp_path / "results").mkdir()
    for name, there in {"a": [1], "b": {"runs": "mine"}, "c": None}.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(there))
    assert len(reproduce("one", made(), request(tmp_path)).all_records) == 4


def test_a_list_of_what_is_trained_anew_that_is_none_is_told(tmp_path: Path, theatre: Theatre) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one.again.json").write_text("[]")
    with pytest.raises(
        ValueError, match=r"one\.again\.json to be the list of runs that --again retrains, but got another file"
    ):
        reproduce("one", made(), request(tmp_path, again=True))


# What is shown


def test_of_choices_without_scores_it_is_said_that_they_are_there(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(CE, CHOOSING), request(tmp_path))
    said: list[str] = []
    monkeypatch.setattr("rectifier._base.console.say", said.append)
    reproduce("one", made(CE, CHOOSING), request(tmp_path, train=False))
    assert said == [f"No results of one in {tmp_path / 'results'} yet. 2 candidate runs recorded."]


def test_what_was_never_asked_for_is_not_shown_though_others_share_its_runs(tmp_path: Path, theatre: Theatre) -> None:
    reproduce("one", made(), request(tmp_path))
    reproduce("two", made(), request(tmp_path, train=False))
    assert not (tmp_path / "results" / "two.md").exists()


def test_a_picture_is_drawn_from_what_was_found_where_it_is_missing(tmp_path: Path, theatre: Theatre) -> None:
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
    theatre.seen()
    reproduce("one", experiment, request(tmp_path))
    assert (len(drawn), theatre.seen()) == (2, [])
    reproduce("one", experiment, request(tmp_path, again=True))
    assert len(drawn) == 3


@pytest.mark.parametrize("quick", [False, True])
def test_what_came_out_is_told_of_the_full_version_alone(tmp_path: Path, theatre: Theatre, quick: bool) -> None:
    experiment = made(finding="It came out so.", quick={"epochs": 1})
    reproduce("one", experiment, request(tmp_path, quick=quick))
    assert ("It came out so." in page(tmp_path)) != quick


def test_a_small_version_varies_what_its_cells_say(tmp_path: Path) -> None:
    experiment = made(CE, replace(CRL, quick={"epochs": 7}), quick={"epochs": 2})
    assert [experiment.config(cell, quick=True).epochs for cell in experiment.cells] == [2, 7]
    assert {experiment.config(cell, quick=False).epochs for cell in experiment.cells}.isdisjoint({2, 7})


def test_the_folder_of_experiments_stands_in_the_command(tmp_path: Path, theatre: Theatre) -> None:
    reproduce("one", made(), request(tmp_path, experiments=Path("mine")))
    assert "`rectifier reproduce one --experiments mine`" in page(tmp_path)
