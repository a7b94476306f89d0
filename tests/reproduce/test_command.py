"""Several experiments at once, from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.command_line import refuse, run, succeed
from helpers.experiments import write_experiment
from helpers.fake_training import FakeTraining
from helpers.records import SHAPES


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("COLUMNS", "400")  # nothing is wrapped
    for name in ("RECTIFIER_DATA", "RECTIFIER_QUIET", "RECTIFIER_TRACEBACK", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


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
def test_only_selects_the_experiments_that_contain_its_text(
    tmp_path: Path, fake: FakeTraining, only: list[str], methods: list[str]
) -> None:
    folder = tmp_path / "elsewhere"
    for method in ("ce", "focal"):
        body = OF_ONE_CELL.replace("METHOD", method).replace("DATA", SHAPES)
        write_experiment(folder, f"of_{method}", body=body)
    asked = [part for text in only for part in ("--only", text)]
    result = succeed(*command(folder, ["of-ce", "of-focal"], *asked))
    assert [config.method for config in fake.seen()] == methods
    assert written() == {f"of-{method}" for method in methods}
    assert result.stderr.count("Written: ") == len(methods)


@pytest.fixture
def half_there(tmp_path: Path) -> Path:
    """A folder with an experiment whose data is nowhere, and one that needs none."""
    body = OF_ONE_CELL.replace("METHOD", "ce").replace("DATA", "cifar100")
    write_experiment(tmp_path / "elsewhere", "absent", body=body)
    return write_experiment(tmp_path / "elsewhere", "there", body=OF_NONE)


HINT = "A small version needs no data: rectifier reproduce absent --quick"
NOWHERE = ("--data-root", "empty")


def test_one_experiment_without_its_data_says_what_can_be_done_without(half_there: Path) -> None:
    Path("empty").mkdir()
    text = refuse(*command(half_there, ["absent"], *NOWHERE))
    assert "cifar-100-python" in text
    assert text.rstrip().endswith(HINT)


def test_a_data_root_that_does_not_exist_is_refused(half_there: Path) -> None:
    assert "--data-root nowhere does not exist." in refuse(*command(half_there, ["there"], "--data-root", "nowhere"))


def test_data_that_is_missing_keeps_no_other_experiment_from_its_own(half_there: Path) -> None:
    Path("empty").mkdir()
    result = run(*command(half_there, ["absent", "there"], *NOWHERE))
    assert result.exit_code == 2
    assert written() == {"there"}
    assert f"Written: {Path('results/there.md')}" in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Skipped absent. ")
    assert "cifar-100-python" in last
    assert HINT not in result.stderr
    assert run(*command(half_there, ["there"])).exit_code == 0
