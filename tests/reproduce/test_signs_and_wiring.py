"""Which way a difference is counted, and that what is named, chosen or asked for is what is used."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from helpers.command_line import refuse, run, succeed
from helpers.experiments import load, write_experiment
from helpers.outcomes import made_outcome
from helpers.records import SHAPES, SMALL
from helpers.theatre import CE, CHOOSING, WILD, Theatre, content, made, request
from helpers.views import SHOWN_RULES, assert_shows, number, tables_of
from rectifier._base import console
from rectifier.labels.space import LabelSpace
from rectifier.report.comparison import estimate
from rectifier.reproduce import Cell, Context, Outcome, neighbourhoods, reproduce
from rectifier.training import many as suite
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.run.folder import Run
from rectifier.training.run.predictions import Predictions


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "400")  # nothing is wrapped
    for name in ("RECTIFIER_DATA", "RECTIFIER_QUIET", "RECTIFIER_TRACEBACK", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


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
    return experiment.show(Outcome(name, experiment, {}, {}, found, Path()))


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
    outcome = replace(made_outcome(experiment.cells, 3, gains={"all classes": 0.2}), experiment=experiment)
    *tables, _ = tables_of(experiment.show(outcome))  # the last is of times
    for rule, table in zip(SHOWN_RULES, tables, strict=True):
        assert_shows(
            table.at('all classes, over "minority classes"', "fashion"), outcome.gain_over(every, minority, rule)
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
    (table,) = tables_of(recipes.show(replace(made_outcome(cells, 2), experiment=replace(recipes, cells=cells))))
    (taken,) = [line[0] for line in table.lines if line[-1] == "taken"]
    assert recipes.config(recipes.cell(taken, column), quick=False) == tables.config(tables.cell(row), quick=False)


@pytest.mark.parametrize(
    ("words", "setting"),
    [(r"rate ([\d.]+)", "lr"), (r"decay ([\d.]+)", "weight_decay"), (r"(\d+) epochs", "epochs")],
)
def test_a_row_of_recipes_says_what_is_tried(words: str, setting: str) -> None:
    experiment = load("training-recipes")
    told = [(cell, found[1]) for cell in experiment.cells if (found := re.search(words, cell.row))]
    assert len(told) >= 4
    for cell, text in told:
        assert (cell.row, getattr(experiment.config(cell, quick=False), setting)) == (cell.row, float(text))


# Section 4.3, "Parameter Settings": "For the class imbalanced cases, we set eta = 0.01/0.5/0.5 for
# CifarNet/ResNet32/DenseNet, respectively."
@pytest.mark.parametrize(("network", "eta"), [("CifarNet", 0.01), ("ResNet32", 0.5), ("DenseNet", 0.5)])
def test_eta_on_imbalanced_cifar_is_the_papers(network: str, eta: float) -> None:
    experiment = load("cifar100-imbalanced")
    config = experiment.config(experiment.cell("imb(1) + CRL", network), quick=False)
    assert (config.network, config.method, config.method_options) == (network.lower(), "crl", {"eta": eta})


def test_a_small_version_keeps_the_rates_of_cells_alone() -> None:
    experiment = made(CE, settings={"lr": 0.3, "weight_decay": 0.3}, quick={"lr": 0.05, "weight_decay": 0.05})
    own = replace(CE, settings={**CE.settings, "lr": 0.2, "weight_decay": 0.2})

    def rate_and_decay(cell: Cell, **chosen: float) -> tuple[float | None, float]:
        config = experiment.config(cell, quick=True, more=chosen)
        return config.lr, config.weight_decay

    assert rate_and_decay(CE) == (0.05, 0.05)
    assert rate_and_decay(own) == (0.2, 0.05)
    assert rate_and_decay(own, lr=0.7) == rate_and_decay(CE, lr=0.7) == (0.7, 0.05)  # as validation chooses them


# What is asked for is what is measured


def write_state(path: Path) -> Run:
    """Write what is looked at of a run that collapsed halfway: of four units one is dead."""
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
    outcome = replace(made_outcome(experiment.cells, 2), experiment=experiment, found=found)
    (table,) = tables_of(experiment.show(outcome))
    assert [line[0] for line in table.lines] == rows
    assert {table.at(row, "dead units (%)") for row in rows} == {"25.0"}
    assert {table.at(row, "validation (%)") for row in rows} == {"75.0"}  # of the last epoch


# What is chosen, and what diverged


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with console.quiet():
        return train(Config(SHAPES).with_settings(SMALL), tmp_path_factory.mktemp("template") / "run").path


@pytest.fixture
def theatre(template: Path, monkeypatch: pytest.MonkeyPatch) -> Theatre:
    actors = Theatre(template)
    monkeypatch.setattr(suite, "train", actors.train)
    return actors


@pytest.fixture
def quiet() -> Iterator[None]:
    with console.quiet():
        yield


@pytest.mark.usefixtures("quiet")
def test_what_diverges_is_liked_less_than_the_worst_that_does_not(
    tmp_path: Path, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_or_diverge(config: Config, out: Path, **_: Any) -> Run:
        trained = theatre.train(config, out)
        if config.method_options["eta"] == 0.1:
            (out / "metrics.json").unlink()
            raise FloatingPointError(f"Not finite: {out}")
        return trained

    monkeypatch.setattr(suite, "train", train_or_diverge)
    theatre.scores = lambda _: (0.01, 0.5)
    choosing = replace(CHOOSING, choose={"eta": (0.1, 0.5)})
    assert reproduce("one", made(choosing), request(tmp_path)).chosen == {("CRL", ""): {"eta": 0.5}}


@pytest.mark.usefixtures("quiet")
def test_runs_that_diverge_side_by_side_are_recorded_with_their_own_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "why_not_together", lambda _: None)  # as on a GPU
    outcome = reproduce("one", made(CE, WILD), request(tmp_path))
    assert list(outcome.records) == [("CE", "")]
    wild = [one for one in content(tmp_path)["runs"] if one["row"] == "wild"]
    assert [(one["seed"], one["together"]) for one in wild] == [(0, 4), (1, 4)]
    for one in wild:
        assert [other["key"] in one["diverged"] for other in wild] == [other is one for other in wild]


@pytest.mark.usefixtures("quiet")
def test_cells_that_are_not_asked_for_are_chosen_for_by_what_is_recorded(tmp_path: Path, theatre: Theatre) -> None:
    experiment = made(CHOOSING, Cell("focal", settings={"method": "focal"}, choose={"lr": (0.01, 0.2)}))
    part = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert {config.method for config in theatre.seen()} == {"crl"}
    assert list(part.chosen) == [("CRL", "")]
    whole = reproduce("one", experiment, request(tmp_path))
    assert {config.method for config in theatre.seen()} == {"focal"}
    after = reproduce("one", experiment, request(tmp_path, only=["CRL"]))
    assert theatre.seen() == []
    assert after.chosen == whole.chosen
    assert set(after.records) == set(after.chosen) == {("CRL", ""), ("focal", "")}


@pytest.mark.usefixtures("quiet")
def test_columns_that_are_not_asked_for_get_no_recipe(tmp_path: Path, theatre: Theatre) -> None:
    networks = {"small": "mlp", "large": "cifarnet"}
    cells = [Cell("CE", column, {"method": "ce", "network": network}) for column, network in networks.items()]
    part = reproduce("one", made(*cells, recipe={"lr": (0.01, 0.2)}), request(tmp_path, only=["large"]))
    assert {config.network for config in theatre.seen()} == {"cifarnet"}
    assert (list(part.chosen), list(part.records)) == ([("all", "large")], [("CE", "large")])


# Several experiments at once, from the command line

OF_ONE_CELL = """
from rectifier.reproduce import Cell, Experiment, views

EXPERIMENT = Experiment(
    "A title", "A source", "About it.", views.table(), settings={"data": "DATA", "network": "mlp"},
    cells=[Cell("METHOD", settings={"method": "METHOD"})],
)
"""
OF_NONE = """
from rectifier.reproduce import Experiment

EXPERIMENT = Experiment("A title", "A source", "About it.", lambda _: "", measure=lambda _: {"answer": 42})
"""


def command(folder: Path, names: Sequence[str], *more: str) -> tuple[object, ...]:
    return ("reproduce", *names, "--experiments", folder, "--accelerator", "cpu", "--seeds", 1, *more)


def written() -> set[str]:
    return {path.stem for path in Path("results").glob("*.json")}


@pytest.mark.parametrize(("only", "methods"), [(["foc"], ["focal"]), (["foc", "CE"], ["ce", "focal"])])
def test_of_several_experiments_those_are_done_that_have_what_is_asked_for(
    tmp_path: Path, theatre: Theatre, only: list[str], methods: list[str]
) -> None:
    folder = tmp_path / "elsewhere"
    for method in ("ce", "focal"):
        body = OF_ONE_CELL.replace("METHOD", method).replace("DATA", SHAPES)
        write_experiment(folder, f"of_{method}", body=body)
    asked = [part for text in only for part in ("--only", text)]
    result = succeed(*command(folder, ["of-ce", "of-focal"], *asked))
    assert [config.method for config in theatre.seen()] == methods
    assert written() == {f"of-{method}" for method in methods}
    assert result.stderr.count("Written: ") == len(methods)


@pytest.fixture
def half_there(tmp_path: Path) -> Path:
    """A folder with an experiment whose data is nowhere, and one that needs none."""
    body = OF_ONE_CELL.replace("METHOD", "ce").replace("DATA", "cifar100")
    write_experiment(tmp_path / "elsewhere", "absent", body=body)
    return write_experiment(tmp_path / "elsewhere", "there", body=OF_NONE)


HINT = "Without the data there is a small version: rectifier reproduce absent --quick."
NOWHERE = ("--data-root", "nowhere")


def test_one_experiment_without_its_data_says_what_can_be_done_without(half_there: Path) -> None:
    told = refuse(*command(half_there, ["absent"], *NOWHERE))
    assert "cifar-100-python" in told
    assert told.rstrip().endswith(HINT)


def test_data_that_is_missing_keeps_no_other_experiment_from_its_own(half_there: Path) -> None:
    result = run(*command(half_there, ["absent", "there"], *NOWHERE))
    assert result.exit_code == 2
    assert written() == {"there"}
    assert f"Written: {Path('results/there.md')}" in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Left out: absent. ")
    assert "cifar-100-python" in last
    assert HINT not in result.stderr
    assert run(*command(half_there, ["there"])).exit_code == 0
