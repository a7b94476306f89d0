"""What keeps results honest: nothing is compared, chosen, shown or measured that must not be."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.pages import page
from helpers.pages import shown as shown_outcome
from helpers.records import SHAPES
from helpers.results import made_record, made_result
from rectifier.reproduce import Cell, Context, Experiment, reproduce, views
from rectifier.reproduce.records import key_of, read_records, write_results
from rectifier.reproduce.work import CHOICE_SEEDS, Request
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
    result = made_result([CE, CRL], 4)
    result.records["CRL", ""][2]["data"]["fingerprint"] = "another"
    for found in (result.gain(CRL, "argmax"), result.gain_of(CRL, "argmax", ["hat", "bald"])):
        assert found is not None
        assert found["seeds"] == [0, 1, 3]


def test_there_is_no_headline_over_unlike_data() -> None:
    assert views.summary_line(made_result([CE, CRL])) != ""
    balanced = replace(CE, settings={"data": "cifar100:bln=1"})
    assert views.summary_line(made_result([balanced, CRL])) == ""


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
    result = reproduce("one", experiment, request(tmp_path, train=False))
    assert list(result.records["CE", ""]) == [0, 5]  # more than are asked for
    assert result.diverged == []


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


# What is measured


def test_what_was_found_in_other_runs_is_measured_again(tmp_path: Path) -> None:
    experiment = made(CE, measure=lambda _: {"answer": "new"})
    run = recorded(experiment, CE)
    for measured, answer in ((run["key"], "old"), ("another", "new")):
        write(tmp_path, [run], found={"answer": "old"}, measured=[measured])
        assert reproduce("one", experiment, request(tmp_path)).found == {"answer": answer}


def test_runs_that_are_recorded_as_diverged_are_not_measured(tmp_path: Path) -> None:
    experiment = made(CE, measure=lambda context: {"runs": len(context.runs("CE", ""))})
    write(tmp_path, [recorded(experiment, CE, diverged="not finite")])
    assert reproduce("one", experiment, request(tmp_path)).found == {"runs": 0}  # nor trained once more


@pytest.mark.parametrize(("quick", "folder"), [(True, "quick-pictures"), (False, "pictures")])
def test_pictures_of_the_small_version_lie_apart(tmp_path: Path, quick: bool, folder: str) -> None:
    def measure(context: Context) -> dict[str, Any]:
        return {"pictures": str(context.pictures)}

    result = reproduce("one", made(measure=measure), request(tmp_path, quick=quick))
    assert result.found == {"pictures": str(tmp_path / folder)}


# What is told


def test_settings_that_are_not_set_are_not_told(tmp_path: Path) -> None:
    result = shown_outcome(tmp_path)
    for record in result.all_records:
        record |= {"config": {"network": "net", "size": None, "flip": False, "padding": 4}, "precision": "32-true"}
    (line,) = [line for line in page(result).splitlines() if line.startswith("Training settings")]
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
    with pytest.raises(ValueError, match=r"Expected cell 'odd' of mine to be trainable, .*epoch"):
        reproduce("mine", experiment, request)
    assert not (tmp_path / "runs").exists()
