"""Which way a difference is counted, and that what is named, chosen or asked for is what is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.command_line import refuse, run, succeed
from helpers.experiments import write_experiment
from helpers.records import SHAPES, SMALL
from helpers.theatre import CE, CHOOSING, WILD, Theatre, content, made, request
from rectifier._base import console
from rectifier.reproduce import Cell, reproduce
from rectifier.training import many as suite
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.run.folder import Run


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "400")  # nothing is wrapped
    for name in ("RECTIFIER_DATA", "RECTIFIER_QUIET", "RECTIFIER_TRACEBACK", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_a_small_version_keeps_the_rates_of_cells_alone() -> None:
    experiment = made(CE, settings={"lr": 0.3, "weight_decay": 0.3}, quick={"lr": 0.05, "weight_decay": 0.05})
    own = replace(CE, settings={**CE.settings, "lr": 0.2, "weight_decay": 0.2})

    def rate_and_decay(cell: Cell, **chosen: float) -> tuple[float | None, float]:
        config = experiment.config(cell, quick=True, more=chosen)
        return config.lr, config.weight_decay

    assert rate_and_decay(CE) == (0.05, 0.05)
    assert rate_and_decay(own) == (0.2, 0.05)
    assert rate_and_decay(own, lr=0.7) == rate_and_decay(CE, lr=0.7) == (0.7, 0.05)  # as validation chooses them


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
    result = reproduce("one", made(CE, WILD), request(tmp_path))
    assert list(result.records) == [("CE", "")]
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
