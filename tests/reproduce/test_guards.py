"""What keeps results honest: nothing is compared, chosen, shown or measured that must not be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from PIL import Image

from helpers.experiments import NAMES, data_options, load
from helpers.outcomes import made_outcome, made_record
from helpers.pages import page
from helpers.pages import shown as shown_outcome
from helpers.records import SHAPES
from helpers.views import group_cell, tables_of
from rectifier.reproduce import Cell, Context, Experiment, reproduce, views
from rectifier.reproduce.records import key_of, read_records, write_results
from rectifier.reproduce.request import Request
from rectifier.reproduce.work import CHOICE_SEEDS
from rectifier.training import fingerprints
from rectifier.training import many as suite
from rectifier.training.config import Config

CE, CRL = Cell("CE", settings={"method": "ce"}), Cell("CRL", settings={"method": "crl"}, against="CE")


@pytest.fixture(autouse=True)
def _nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(config: Config, *_: Any, **__: Any) -> None:
        raise RuntimeError(f"seed {config.seed} would be trained")

    monkeypatch.setattr(suite, "train", refuse)


def made(*cells: Cell, data: str = "cifar100", **settings: Any) -> Experiment:
    common = {"data": data, "network": "mlp"}
    return Experiment("A title", "A source", "About it.", lambda _: "", common, cells, seeds=1, **settings)


def request(folder: Path, **settings: Any) -> Request:
    """Ask for the results of a folder, where no images lie."""
    return Request(folder / "results", folder / "runs", {"data_root": str(folder)}, **settings)


def recorded(experiment: Experiment, cell: Cell, seed: int = 0, **facts: Any) -> dict[str, Any]:
    """Make the record of a run that was never trained; ``more`` are settings that may be chosen for it."""
    config = replace(experiment.config(cell, quick=False, more=facts.pop("more", {})), seed=seed)
    made_of = {"split_hash": "0123456789abcdef", "ratios": {}, "fingerprint": facts.pop("fingerprint", "")}
    known = {"key": key_of(config), "data": made_of, "precision": "32-true", "parameters": 1000}
    return {**made_record(random.Random(seed), seed), **known, **facts}


def write(
    folder: Path, runs: Sequence[dict[str, Any]], candidates: Sequence[dict[str, Any]] = (), **facts: Any
) -> None:
    lists = {"runs": runs, "candidates": candidates}
    write_results(folder / "results" / "one.json", {"experiment": "one", **facts}, lists)


# What is compared


def test_runs_of_one_seed_and_unlike_splits_are_no_pair() -> None:
    outcome = made_outcome([CE, CRL], 4)
    outcome.records["CRL", ""][2]["data"]["fingerprint"] = "another"
    for found in (outcome.gain(CRL, "argmax"), outcome.gain_of(CRL, "argmax", ["hat", "bald"])):
        assert found is not None
        assert found["seeds"] == [0, 1, 3]


def test_there_is_no_headline_over_unlike_data() -> None:
    assert views.headline(made_outcome([CE, CRL])) != ""
    balanced = replace(CE, settings={"data": "cifar100:bln=1"})
    assert views.headline(made_outcome([balanced, CRL])) == ""


def test_of_all_labels_the_papers_gain_may_be_that_of_its_means(tmp_path: Path) -> None:
    cells = [replace(CE, paper=73.5), replace(CRL, paper={"mean": 80.0, "hat": 90.0})]
    _, gains, _ = tables_of(views.labels()(made_outcome(cells, folder=tmp_path)))
    told = [group_cell(gains, "CRL", "argmax", group)[1] for group in ("all", "less imbalanced", "more imbalanced")]
    assert told == ["+6.5", "", ""]


def test_the_gains_of_the_paper_are_drawn(tmp_path: Path) -> None:
    def picture(paper: float) -> bytes:
        cells = [replace(CE, paper={"hat": 50.0}), replace(CRL, paper={"hat": paper})]
        views.labels()(made_outcome(cells, folder=tmp_path, ratios={"hat": 30.0, "hair": 1.5}))
        with Image.open(tmp_path / "made.png") as image:
            return image.tobytes()

    assert picture(50.0) == picture(50.0)
    assert picture(50.0) != picture(52.0)


# What is chosen


@pytest.mark.parametrize(
    ("likings", "chosen"),
    [
        ({0.1: (0.9, 0.2), 0.5: (0.6, 0.6), 1.0: (0.2, 0.9)}, {("CRL", ""): {"eta": 0.5}}),
        ({0.1: (0.9,), 0.5: (0.6, 0.6)}, {}),  # one may be missing where nothing is trained
    ],
    ids=["both", "one"],
)
def test_a_candidate_is_judged_by_both_of_its_seeds(
    tmp_path: Path, likings: dict[float, tuple[float, ...]], chosen: dict[tuple[str, str], Any]
) -> None:
    choosing = Cell("CRL", settings={"method": "crl"}, choose={"eta": tuple(likings)})
    experiment = made(choosing)
    candidates = [
        recorded(experiment, choosing, seed, more={"eta": eta}, liking=liking)
        for eta, known in likings.items()
        for seed, liking in zip(CHOICE_SEEDS, known, strict=False)
    ]
    write(tmp_path, [], candidates)
    assert reproduce("one", experiment, request(tmp_path, train=False)).chosen == chosen


def test_runs_that_validation_chose_from_are_not_scored(tmp_path: Path) -> None:
    experiment, (first, second) = made(CE), CHOICE_SEEDS
    candidates = [recorded(experiment, CE, first), recorded(experiment, CE, second, diverged="not finite")]
    write(tmp_path, [recorded(experiment, CE, seed) for seed in (0, 5)], candidates)
    outcome = reproduce("one", experiment, request(tmp_path, train=False))
    assert list(outcome.records["CE", ""]) == [0, 5]  # more than are asked for
    assert outcome.diverged == []


# What is recorded

BARE = {"key": "shared", "config": {}, "seed": 0, "data": {}}


@pytest.mark.parametrize("own", ["one", "two"])
def test_of_a_run_that_two_have_an_experiments_own_record_prevails(tmp_path: Path, own: str) -> None:
    for name in ("one", "two"):
        write_results(tmp_path / f"{name}.json", {"experiment": name}, {"runs": [{**BARE, "test": name}]})
    assert read_records(tmp_path, tmp_path / f"{own}.json")["shared"]["test"] == own


@pytest.mark.parametrize("scored", ["one", "two"])
@pytest.mark.parametrize("own", ["one", "two"])
def test_a_record_without_scores_does_not_replace_one_that_has_them(tmp_path: Path, scored: str, own: str) -> None:
    for name in ("one", "two"):
        run = {**BARE, **({"test": name} if name == scored else {})}
        write_results(tmp_path / f"{name}.json", {"experiment": name}, {"runs": [run]})
    assert read_records(tmp_path, tmp_path / f"{own}.json")["shared"] == {**BARE, "test": scored}


def test_recorded_runs_of_other_images_are_trained_anew(tmp_path: Path) -> None:
    experiment = made(CE, data=SHAPES)
    (there,) = fingerprints(experiment.config(CE, quick=False))
    write(tmp_path, [recorded(experiment, CE, fingerprint=there)])
    assert len(reproduce("one", experiment, request(tmp_path)).all_records) == 1
    write(tmp_path, [recorded(experiment, CE, fingerprint="of other images")])
    with pytest.raises(RuntimeError, match="seed 0 would be trained"):
        reproduce("one", experiment, request(tmp_path))


# What experiments ask for, by what they are about


MADE_OF_RECORDS = [name for name in NAMES if load(name).measure is None]


def made_page(name: str, *, seconds: float = 18.0, liking: float = 0.5, test: float = 0.5) -> str:
    """Show an experiment of runs that were never trained, all of this time and of these scores."""
    experiment = load(name)
    outcome = replace(made_outcome(experiment.cells, 2), experiment=experiment)
    for record in outcome.all_records:
        record |= {"seconds": seconds, "liking": liking}
        for scores in record["test"].values():
            scores |= {"class_balanced_accuracy": test, "group_top5": {"group": test}}
    return experiment.show(outcome)


@pytest.mark.parametrize("name", MADE_OF_RECORDS)
def test_what_a_page_shows_decides_how_its_runs_are_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where times are compared, runs have the device to themselves; of validation alone, test is not looked at."""
    monkeypatch.setattr(views, "figures", Mock())  # texts say enough, and pictures take seconds
    shown = made_page(name)
    of_time, of_validation, of_test = (
        made_page(name, **{what: value}) != shown for what, value in (("seconds", 54.0), ("liking", 0.7), ("test", 0.7))
    )
    assert of_time or of_validation or of_test
    assert load(name).alone == of_time
    assert load(name).scored == (of_test or not of_validation)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_scored_has_three_seeds_and_beside_the_papers_numbers_of_imb_1_five(name: str) -> None:
    experiment = load(name)
    compared = [experiment.config(cell, quick=False) for cell in experiment.cells if cell.paper is not None]
    data = [(source, options.get("imb")) for source, options in map(data_options, compared)]
    assert experiment.seeds >= (5 if ("cifar100", "1") in data else 3 if experiment.scored else 1)


# What is measured


def test_what_was_found_in_other_runs_is_measured_again(tmp_path: Path) -> None:
    experiment = made(CE, measure=lambda _: {"answer": "new"})
    run = recorded(experiment, CE)
    for measured, answer in ((run["key"], "old"), ("another", "new")):
        write(tmp_path, [run], found={"answer": "old"}, measured=[measured])
        assert reproduce("one", experiment, request(tmp_path)).found == {"answer": answer}


def test_runs_that_are_recorded_as_diverged_are_not_measured(tmp_path: Path) -> None:
    experiment = made(CE, measure=lambda laboratory: {"runs": len(laboratory.runs("CE", ""))})
    write(tmp_path, [recorded(experiment, CE, diverged="not finite")])
    assert reproduce("one", experiment, request(tmp_path)).found == {"runs": 0}  # nor trained once more


@pytest.mark.parametrize(("quick", "folder"), [(True, "quick-pictures"), (False, "pictures")])
def test_pictures_of_the_small_version_lie_apart(tmp_path: Path, quick: bool, folder: str) -> None:
    def measure(laboratory: Context) -> dict[str, Any]:
        return {"pictures": str(laboratory.pictures)}

    outcome = reproduce("one", made(measure=measure), request(tmp_path, quick=quick))
    assert outcome.found == {"pictures": str(tmp_path / folder)}


# What is told


def test_settings_that_are_not_set_are_not_told(tmp_path: Path) -> None:
    outcome = shown_outcome(tmp_path)
    for record in outcome.all_records:
        record |= {"config": {"network": "net", "size": None, "flip": False, "padding": 4}, "precision": "32-true"}
    (line,) = [line for line in page(outcome).splitlines() if line.startswith("How runs were trained")]
    assert "network net; padding 4" in line
    assert "None" not in line
    assert "False" not in line


def test_settings_of_all_cells_are_checked_before_anything_is_trained(tmp_path: Path) -> None:
    cells = [
        Cell("crl", settings={"method": "crl"}, choose={"eta": (0.1, 0.5)}),
        Cell("odd", settings={"method": "ce", "epoch": 3}),
    ]
    experiment = Experiment("", "", "", show=lambda _: "", settings={"data": "digits", "network": "mlp"}, cells=cells)
    request = Request(results=tmp_path / "results", runs=tmp_path / "runs", settings={"accelerator": "cpu"})
    with pytest.raises(ValueError, match=r"Expected cell 'odd' of mine to be one that can be trained, .*epoch"):
        reproduce("mine", experiment, request)
    assert not (tmp_path / "runs").exists()
