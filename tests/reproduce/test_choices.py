"""Validation alone chooses, by runs of seeds of their own."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    CE,
    CHOOSING,
    CRL,
    DIVIDED,
    ETAS,
    FOCAL,
    FakeTraining,
    content,
    eta,
    interrupt,
    made,
    publish,
    recorded,
    request,
    texts,
    without_data,
)
from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, reproduce
from rectifier.reproduce.work import CHOICE_SEEDS
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.run.folder import Run

pytestmark = pytest.mark.usefixtures("quiet")


def test_validation_chooses_and_test_has_no_say(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = DIVIDED
    result = reproduce("one", made(CE, CHOOSING), request(tmp_path))
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}
    seen = fake.seen()
    assert [(eta(config), config.seed) for config in seen[:6]] == [(e, s) for e in ETAS for s in CHOICE_SEEDS]
    assert [(config.method, eta(config), config.seed) for config in seen[6:]] == [
        ("ce", None, 0),
        ("ce", None, 1),
        ("crl", 0.5, 0),
        ("crl", 0.5, 1),
    ]
    assert result.values(result.experiment.cell("CRL"), "argmax") == {"0": 0.2, "1": 0.2}
    found = content(tmp_path)
    assert found["chosen"] == [{"row": "CRL", "column": "", "eta": 0.5}]
    tried = [(one["config"]["method.eta"], one["seed"]) for one in found["candidates"]]
    assert tried == [(e, s) for e in ETAS for s in CHOICE_SEEDS]
    assert not any("test" in one for one in found["candidates"])  # nor are their test scores kept
    assert all(one["validation"]["argmax"]["class_balanced_accuracy"] for one in found["candidates"])
    assert all("test" in one and one["seed"] not in CHOICE_SEEDS for one in found["runs"])


@pytest.mark.parametrize("gone", ["runs", "results", "neither"])
def test_a_choice_is_made_once(tmp_path: Path, fake: FakeTraining, gone: str) -> None:
    fake.scores = DIVIDED
    experiment = made(CE, CHOOSING)
    reproduce("one", experiment, request(tmp_path))
    fake.seen()
    before = texts(tmp_path)
    shutil.rmtree(tmp_path / gone, ignore_errors=True)
    for _ in range(2):
        assert reproduce("one", experiment, request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}
        assert texts(tmp_path) == before
    assert fake.seen() == []
    assert "CRL: eta 0.5" in before["one.md"]


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
    experiment = made(choosing, settings={"data": "cifar100"})
    candidates = [
        recorded(experiment, choosing, seed, more={"eta": eta}, liking=liking)
        for eta, known in likings.items()
        for seed, liking in zip(CHOICE_SEEDS, known, strict=False)
    ]
    publish(tmp_path, [], candidates)
    assert reproduce("one", experiment, without_data(tmp_path, train=False)).chosen == chosen


def test_runs_that_validation_chose_from_are_not_scored(tmp_path: Path) -> None:
    experiment, (first, second) = made(CE, settings={"data": "cifar100"}), CHOICE_SEEDS
    candidates = [recorded(experiment, CE, first), recorded(experiment, CE, second, diverged="not finite")]
    publish(tmp_path, [recorded(experiment, CE, seed) for seed in (0, 5)], candidates)
    result = reproduce("one", experiment, without_data(tmp_path, train=False))
    assert list(result.records["CE", ""]) == [0, 5]  # more than are asked for
    assert result.diverged == []


def test_the_quick_version_chooses_by_one_seed(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = DIVIDED
    result = reproduce("one", made(CHOOSING, quick={"epochs": 1}), request(tmp_path, quick=True, seeds=1))
    assert [(eta(config), config.seed) for config in fake.seen()] == [
        *((e, CHOICE_SEEDS[0]) for e in ETAS),
        (0.5, 0),
    ]
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}


def test_of_several_settings_all_combinations_compete(tmp_path: Path, fake: FakeTraining) -> None:
    cell = replace(CHOOSING, choose={"eta": (0.1, 0.5), "kappa": (1, 5)})
    scores = {(0.1, 1): 0.4, (0.1, 5): 0.7, (0.5, 1): 0.6, (0.5, 5): 0.3}
    fake.scores = lambda config: (scores[config.method_options["eta"], config.method_options["kappa"]], 0.5)
    result = reproduce("one", made(cell), request(tmp_path))
    assert result.chosen == {("CRL", ""): {"eta": 0.1, "kappa": 5}}


def rate(config: Config) -> float:
    assert config.lr is not None
    return config.lr


def test_a_recipe_is_chosen_for_the_first_cell_and_holds_for_its_column_alone(
    tmp_path: Path, fake: FakeTraining
) -> None:
    cells = [
        replace(cell, column=column, settings={**cell.settings, "network": network})
        for cell in (CE, CRL)
        for column, network in (("small", "mlp"), ("large", "cifarnet"))
    ]
    best = {"mlp": 0.2, "cifarnet": 0.01}
    # Test would choose the other rate, and so would CRL, which is not asked.
    fake.scores = lambda config: (
        (0.9, 0.1) if (rate(config) == best[config.network]) == (config.method == "ce") else (0.1, 0.9)
    )
    result = reproduce("one", made(*cells, recipe={"lr": (0.01, 0.2)}), request(tmp_path))
    assert result.chosen == {("all", "small"): {"lr": 0.2}, ("all", "large"): {"lr": 0.01}}
    seen = fake.seen()
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


def test_a_part_of_an_experiment_has_the_recipe_of_its_column(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = lambda config: (0.9 if config.lr == 0.2 else 0.4, 0.5)
    experiment = made(CE, CRL, recipe={"lr": (0.01, 0.2)})
    part = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert {config.method for config in fake.seen()} == {"ce", "crl"}  # the recipe is cross-entropy's
    assert part.chosen == {("all", ""): {"lr": 0.2}}
    assert list(part.records) == [("CRL", "")]
    whole = reproduce("one", experiment, request(tmp_path))
    assert {(config.method, config.lr) for config in fake.seen()} == {("ce", 0.2)}
    assert list(whole.records) == [("CE", ""), ("CRL", "")]


def test_a_cells_own_choice_is_made_with_the_columns_recipe(tmp_path: Path, fake: FakeTraining) -> None:
    def scores(config: Config) -> tuple[float, float]:
        if config.method == "ce":
            return (0.8, 0.5) if rate(config) == 0.2 else (0.3, 0.5)
        return {0: 0.5, 0.1: 0.2, 0.5: 0.4, 1.0: 0.9}[eta(config) or 0], 0.5

    fake.scores = scores
    result = reproduce("one", made(CE, FOCAL, CHOOSING, recipe={"lr": (0.01, 0.2)}), request(tmp_path))
    assert result.chosen == {("all", ""): {"lr": 0.2}, ("CRL", ""): {"eta": 1.0}}
    seen = fake.seen()
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
    assert fake.seen() == []
    assert len(content(tmp_path)["candidates"]) == 2 * 2 + 3 * 2


@pytest.mark.parametrize(
    "by_eta",  # what each candidate scores by argmax, prior and tuned; what rules.json has for tuned; what it prefers
    [
        {0.1: ((0.7, 0.2, 0.2), 0.2, "argmax"), 0.5: ((0.1, 0.8, 0.1), 0.1, "prior"), 1.0: ((0.6,) * 3, 0.6, "argmax")},
        {0.1: ((0.6, 0.5, 0.75), 0.62, "tuned"), 0.5: ((0.7, 0.5, 0.72), 0.65, "argmax")},
    ],
    ids=["preferred", "held out"],
)
def test_a_candidate_is_judged_by_its_preferred_rule_on_samples_that_it_was_not_tuned_on(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch, by_eta: dict[float, Any]
) -> None:
    """Offsets scored on what they were tuned on always win; ``rules.json`` has what they are worth on other samples."""

    def train(config: Config, out: Path, **_: Any) -> Run:
        scores, held_out, preferred = by_eta[eta(config) or 0]
        inside = dict(zip(RULES, scores, strict=True))
        fake.write(config, out, inside, dict.fromkeys(RULES, 0.5), preferred)
        rules = json.loads((out / "rules.json").read_text())
        (out / "rules.json").write_text(json.dumps({**rules, "validation": {**inside, "tuned": held_out}}))
        return Run(out)

    monkeypatch.setattr(suite, "train", train)
    cell = replace(CHOOSING, choose={"eta": tuple(by_eta)})
    assert reproduce("one", made(cell), request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}


def test_candidates_are_recorded_at_once(tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.scores = DIVIDED
    with monkeypatch.context() as patch:
        interrupt(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(CE, CHOOSING), request(tmp_path))
    assert len(content(tmp_path)["candidates"]) == 4
    shutil.rmtree(tmp_path / "runs")
    fake.seen()
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    assert len(fake.seen()) == 2 + 4


def test_a_diverged_candidate_scores_below_all_others(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_or_diverge(config: Config, out: Path, **_: Any) -> Run:
        trained = fake.train(config, out)
        if config.method_options["eta"] == 0.1:
            (out / "metrics.json").unlink()
            raise FloatingPointError(f"Not finite: {out}")
        return trained

    monkeypatch.setattr(suite, "train", train_or_diverge)
    fake.scores = lambda _: (0.01, 0.5)
    choosing = replace(CHOOSING, choose={"eta": (0.1, 0.5)})
    assert reproduce("one", made(choosing), request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}


def test_settings_of_other_cells_are_chosen_from_recorded_runs(tmp_path: Path, fake: FakeTraining) -> None:
    experiment = made(CHOOSING, Cell("focal", settings={"method": "focal"}, choose={"lr": (0.01, 0.2)}))
    part = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert {config.method for config in fake.seen()} == {"crl"}
    assert list(part.chosen) == [("CRL", "")]
    whole = reproduce("one", experiment, request(tmp_path))
    assert {config.method for config in fake.seen()} == {"focal"}
    after = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert fake.seen() == []
    assert after.chosen == whole.chosen
    assert set(after.records) == set(after.chosen) == {("CRL", ""), ("focal", "")}


def test_other_columns_get_no_recipe(tmp_path: Path, fake: FakeTraining) -> None:
    networks = {"small": "mlp", "large": "cifarnet"}
    cells = [Cell("CE", column, {"method": "ce", "network": network}) for column, network in networks.items()]
    part = reproduce("one", made(*cells, recipe={"lr": (0.01, 0.2)}), request(tmp_path, only=["large"]))
    assert {config.network for config in fake.seen()} == {"cifarnet"}
    assert (list(part.chosen), list(part.records)) == ([("all", "large")], [("CE", "large")])


def test_what_validation_has_not_chosen_yet_has_no_score(done: Path) -> None:
    """Runs with a method's default are no runs of a cell whose setting is to be chosen."""
    choosing = replace(CE, choose={"lr": (0.01, 0.2)})
    assert ("CE", "") not in reproduce("one", made(choosing, CRL), request(done, train=False)).records
    recipe: dict[str, Any] = {"recipe": {"lr": (0.01, 0.2)}}
    assert not reproduce("one", made(**recipe), request(done, train=False)).records


def test_showing_claims_no_choice_that_was_not_made(tmp_path: Path, fake: FakeTraining) -> None:
    experiment = made(CE, CHOOSING, recipe={"lr": (0.01, 0.2)})
    result = reproduce("one", experiment, request(tmp_path, train=False))
    assert fake.seen() == []
    assert result.chosen == {}
    assert not (tmp_path / "results").exists()  # nothing is recorded, and nothing written


def test_of_a_grid_with_a_gap_nothing_is_chosen(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = DIVIDED
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    wider = replace(CHOOSING, choose={"eta": (*ETAS, 0.01)})
    result = reproduce("one", made(CE, wider), request(tmp_path, train=False))
    assert (result.chosen, list(result.records)) == ({}, [("CE", "")])
    narrower = replace(CHOOSING, choose={"eta": ETAS[1:]})
    assert reproduce("one", made(CE, narrower), request(tmp_path, train=False)).chosen == {("CRL", ""): {"eta": 0.5}}


def test_settings_are_not_chosen_before_the_recipe(tmp_path: Path, fake: FakeTraining) -> None:
    fake.scores = DIVIDED
    reproduce("one", made(CE, CHOOSING), request(tmp_path))
    chosen = reproduce("one", made(CE, CHOOSING, recipe={"lr": (0.05, 0.2)}), request(tmp_path, train=False)).chosen
    assert chosen == {}


def test_of_choices_without_scores_it_is_said_that_they_are_there(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            reproduce("one", made(CE, CHOOSING), request(tmp_path))
    said: list[str] = []
    monkeypatch.setattr("rectifier._base.console.say", said.append)
    reproduce("one", made(CE, CHOOSING), request(tmp_path, train=False))
    assert said == [f"No results of one in {tmp_path / 'results'} yet. 2 candidate runs recorded."]
