"""What the pages of experiments show: which way a difference is counted, and that what is named is used."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from experiments import figures, labels, neighbourhoods, training_recipes
from helpers.experiments import NAMES, load
from helpers.results import made_result
from helpers.views import SHOWN_RULES, assert_shows, number, tables_of
from rectifier.labels.space import LabelSpace
from rectifier.report.comparison import estimate
from rectifier.reproduce import Context, ExperimentResult
from rectifier.training.config import Config
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions

# Which way a difference is counted


def assert_is_difference(text: str, after: str, before: str) -> None:
    """Compare what is shown with what is shown, each of them rounded."""
    assert number(text).signed
    assert number(text).mean == pytest.approx(number(after).mean - number(before).mean, abs=0.151)


def by_seed(draw: random.Random, low: int, high: int) -> dict[str, int]:
    return {str(seed): draw.randrange(low, high) for seed in range(3)}


def shares(draw: random.Random, low: int, high: int) -> dict[str, float]:
    return {seed: percent / 100 for seed, percent in by_seed(draw, low, high).items()}


def page_of(name: str, found: Mapping[str, Any]) -> str:
    """Show an experiment that is said to have found this."""
    experiment = load(name)
    return experiment.show(ExperimentResult(name, experiment, {}, {}, found, Path()))


def exchanges(draw: random.Random, found: tuple[int, int], lost: tuple[int, int]) -> dict[str, Any]:
    """Make up how many of 200 rare images a run finds that another misses, and how many it loses."""
    spans = {"missed": (100, 150), "found": found, "lost": lost, "alarms": (20, 40), "other_alarms": (40, 80)}
    rules = {rule: {kind: by_seed(draw, *span) for kind, span in spans.items()} for rule in SHOWN_RULES}
    return {"rare": 200, "others": 400, "ratio": 30.0, "class": "yes", "rules": rules}


def test_the_balance_is_what_crl_alone_finds_less_what_it_loses() -> None:
    draw, many, few = random.Random(0), (50, 90), (0, 20)
    better, worse = exchanges(draw, many, few), exchanges(draw, few, many)
    rows = {"hat": better, "bald": worse, "all labels": exchanges(draw, many, few)}
    found = {"labels": [{"label": label, **rows[label]} for label in ("hat", "bald")], "all": rows["all labels"]}
    for rule, table in zip(SHOWN_RULES, tables_of(page_of("examples", found)), strict=True):
        for row, one in rows.items():
            ours, theirs = (table.at(row, f"{who} alone finds") for who in ("CRL, class level", "DeepID2"))
            for text, kind in ((ours, "found"), (theirs, "lost")):
                assert_shows(text, estimate({seed: n / 200 for seed, n in one["rules"][rule][kind].items()}))
            assert_is_difference(table.at(row, "balance"), ours, theirs)
        assert number(table.at("hat", "balance")).mean > 0 > number(table.at("bald", "balance")).mean


def test_features_of_crl_are_held_against_those_of_cross_entropy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhoods, "draw_maps", Mock())
    draw, (base, rectified) = random.Random(0), ("imb(1)", "imb(1) + CRL")
    # With CRL less is overwhelmed, and the silhouette is higher.
    spans = {"overwhelmed": ((60, 90), (10, 40)), "silhouette": ((-40, 0), (10, 40))}
    spans["overwhelmed_of_all"] = spans["overwhelmed"]
    rows = {
        row: {name: shares(draw, *span[which]) for name, span in spans.items()}
        for row, which in (("bln(1)", 1), (base, 0), (rectified, 1))
    }
    classes = {role: {"name": role, "images": 9} for role in ("Maj-1", "Maj-2", "Min-1")}
    (table,) = tables_of(page_of("features", {"classes": classes, "rows": rows, "neighbours": 10, "third": 33}))
    gains, ours, theirs = (table.line(row) for row in (f"{rectified}, difference", rectified, base))
    for texts in zip(gains, ours, theirs, strict=True):
        assert_is_difference(*texts)
    assert [number(text).mean > 0 for text in gains] == [False, True, False]


def test_answers_about_clothes_are_held_against_those_of_cross_entropy() -> None:
    draw, low, high = random.Random(0), (40, 60), (70, 90)

    def right(**spans: tuple[int, int]) -> dict[str, Any]:
        """Make up shares of right answers, by seed, rule and label."""
        rules = ("argmax", "preferred")
        return {
            str(seed): {rule: {label: draw.randrange(*span) / 100 for label, span in spans.items()} for rule in rules}
            for seed in range(3)
        }

    found = {"MTCT": right(colour=low, sleeve=high), "CRL": right(colour=high, sleeve=low)}
    for _, table in zip(("argmax", "preferred"), tables_of(page_of("clothing-examples", found)), strict=True):
        for label in ("colour", "sleeve"):
            assert_is_difference(*(table.at(label, head) for head in ("difference", "CRL", "MTCT")))
        assert number(table.at("colour", "difference")).mean > 0 > number(table.at("sleeve", "difference")).mean


def test_all_classes_are_held_against_the_minority_alone() -> None:
    """They differ in nothing but the classes that are rectified: the page has what that is worth."""
    experiment = load("scope")
    minority, every = (experiment.cell(row, "fashion") for row in ("minority classes", "all classes"))
    result = replace(made_result(experiment.cells, 3, gains={"all classes": 0.2}), experiment=experiment)
    *tables, _ = tables_of(experiment.show(result))  # the last is of times
    for rule, table in zip(SHOWN_RULES, tables, strict=True):
        assert_shows(
            table.at('all classes, over "minority classes"', "fashion"), result.gain_over(every, minority, rule)
        )
    ours, control = (experiment.config(cell, quick=False) for cell in (every, minority))
    assert ours == replace(control, method_options={**control.method_options, "scope": "all"})


# What is named is what is used


@pytest.mark.parametrize(
    ("column", "name", "row"),
    [("CelebA, DeepID2", "celeba", "DeepID2"), ("fashion products, MTCT", "clothing", "MTCT")],
)
def test_the_recipe_that_is_called_taken_is_the_one_of_the_tables(column: str, name: str, row: str) -> None:
    recipes, tables = load("training-recipes"), load(name)
    cells = [cell for cell in recipes.cells if cell.column == column]
    (table,) = tables_of(recipes.show(replace(made_result(cells, 2), experiment=replace(recipes, cells=cells))))
    (taken,) = [line[0] for line in table.lines if line[-1] == "taken"]
    assert recipes.config(recipes.cell(taken, column), quick=False) == tables.config(tables.cell(row), quick=False)


@pytest.mark.parametrize(
    ("words", "setting"),
    [(r"rate ([\d.]+)", "lr"), (r"decay ([\d.]+)", "weight_decay"), (r"(\d+) epochs", "epochs")],
)
def test_a_row_of_recipes_says_what_is_tried(words: str, setting: str) -> None:
    experiment = load("training-recipes")
    named = [(cell, found[1]) for cell in experiment.cells if (found := re.search(words, cell.row))]
    assert len(named) >= 4
    for cell, text in named:
        assert (cell.row, getattr(experiment.config(cell, quick=False), setting)) == (cell.row, float(text))


# Section 4.3, "Parameter Settings": "For the class imbalanced cases, we set eta = 0.01/0.5/0.5 for
# CifarNet/ResNet32/DenseNet, respectively."
@pytest.mark.parametrize(("network", "eta"), [("CifarNet", 0.01), ("ResNet32", 0.5), ("DenseNet", 0.5)])
def test_eta_on_imbalanced_cifar_is_the_papers(network: str, eta: float) -> None:
    experiment = load("cifar100-imbalanced")
    config = experiment.config(experiment.cell("imb(1) + CRL", network), quick=False)
    assert (config.network, config.method, config.method_options) == (network.lower(), "crl", {"eta": eta})


# What is asked for is what is measured


def write_state(path: Path) -> Run:
    """Write the files of a run that collapsed halfway. One of its four units is dead."""
    space = LabelSpace.from_names({"hat": ["no", "yes"]})
    logits, targets = torch.tensor([[0.0, 1.0], [0.0, 3.0]]), torch.zeros(2, 1, dtype=torch.int64)
    features = torch.tensor([[1.0, 2.0, 3.0, 0.0], [2.0, 3.0, 4.0, 0.0]])
    one = Run.create(path, Config("shapes"))
    one.save_predictions("validation", Predictions(logits, targets, ("a", "b"), space, features))
    (path / "history.csv").write_text("epoch,rectification,validation\n1,0.1,0.9\n2,0.5,0.75\n")
    return one


def test_every_row_is_looked_at_for_collapse(tmp_path: Path) -> None:
    experiment, one = load("collapse"), write_state(tmp_path / "run")
    asked: list[str] = []

    def runs(row: str, _: str) -> list[Run]:
        asked.append(row)
        return [one]

    assert experiment.measure is not None
    found = experiment.measure(Context(None, False, {}, tmp_path, runs, Mock()))
    rows = [cell.row for cell in experiment.cells]
    assert list(found) == asked == rows
    assert all(states == found[rows[0]] != {} for states in found.values())
    result = replace(made_result(experiment.cells, 2), experiment=experiment, found=found)
    (table,) = tables_of(experiment.show(result))
    assert [line[0] for line in table.lines] == rows
    assert {table.at(row, "dead units (%)") for row in rows} == {"25.0"}
    assert {table.at(row, "validation (%)") for row in rows} == {"75.0"}  # of the last epoch


# What experiments ask for, by what they are about


def made_page(name: str, *, seconds: float = 18.0, liking: float = 0.5, test: float = 0.5) -> str:
    """Show an experiment of runs that were never trained, all of this time and of these scores."""
    experiment = load(name)
    result = replace(made_result(experiment.cells, 2), experiment=experiment)
    for record in result.all_records:
        record |= {"seconds": seconds, "liking": liking}
        for scores in record["test"].values():
            scores |= {"class_balanced_accuracy": test, "group_top5": {"group": test}}
    return experiment.show(result)


def test_what_a_page_shows_decides_how_its_runs_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments that compare times train one run at a time. Those that show only validation do not score test."""
    for module, draw in ((figures, "draw_curve"), (figures, "draw_ranking"), (labels, "draw_gains")):
        monkeypatch.setattr(module, draw, Mock())  # texts say enough, and pictures take seconds
    changes = {"seconds": 54.0, "liking": 0.7, "test": 0.7}
    for name in NAMES:
        experiment = load(name)
        if experiment.measure is not None:
            continue
        shown = made_page(name)
        of_time, of_validation, of_test = (made_page(name, **{what: value}) != shown for what, value in changes.items())
        assert of_time or of_validation or of_test, name
        assert experiment.alone == of_time, name
        assert experiment.scored == (of_test or not of_validation), name


def test_a_choice_is_shown_by_validation_alone() -> None:
    recipes = load("training-recipes")
    result = replace(made_result(recipes.cells), experiment=recipes)
    tables = tables_of(recipes.show(result))
    lines = [line for table in tables for line in table.lines]
    for cell, (row, shown, taken) in zip(recipes.cells, lines, strict=True):
        assert row == cell.row
        assert_shows(shown, result.validation_score(cell))
        assert taken == ("taken" if training_recipes.TAKEN[cell.column] == row else "")
    assert [line[-1] for line in lines].count("taken") == len(tables)
