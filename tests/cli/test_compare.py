"""rectifier compare."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from helpers.command_line import MLP, Photos, refuse, rows_of, succeed
from rectifier.cli.compare import split_methods
from rectifier.training.run.folder import Run


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("ce, crl:eta=0.5", ["ce", "crl:eta=0.5"]),
        ("lmle:margins=0.1,0.2,.3:rounds=2,ce", ["lmle:margins=0.1,0.2,.3:rounds=2", "ce"]),
        ("crl:alpha=0.5,1e-3,", ["crl:alpha=0.5,1e-3"]),
        ("ce,0.5", ["ce,0.5"]),  # not a method, which is reported later
    ],
)
def test_a_list_of_methods_may_have_options_that_are_lists(given: str, names: list[str]) -> None:
    assert split_methods(given) == names


COMPARE = ("compare", "--data", "digits", "--methods", "ce,crl:eta=0.5", "--seeds", 2, *MLP, "--epochs", 1)


class Compared(NamedTuple):
    folder: Path
    result: Any


def compare_into(folder: Path, *more: object) -> Any:
    return succeed(*COMPARE, "--set", "tensorboard=false", "--out", folder, *more)


@pytest.fixture(scope="module")
def compared(home: Path) -> Compared:
    return Compared(home / "compared", compare_into(home / "compared"))


def test_compare_trains_what_it_compares(compared: Compared) -> None:
    names = ["ce-seed0", "ce-seed1", "crl-eta-0.5-seed0", "crl-eta-0.5-seed1"]
    runs = [Run.open(compared.folder / "runs" / name) for name in names]
    assert sorted(path.name for path in (compared.folder / "runs").iterdir()) == names
    assert all(one.is_finished for one in runs)
    assert [(one.config.method, one.config.method_options, one.config.seed) for one in runs] == [
        ("ce", {}, 0),
        ("ce", {}, 1),
        ("crl", {"eta": 0.5}, 0),
        ("crl", {"eta": 0.5}, 1),
    ]
    for number, name in enumerate(["ce, seed 0", "ce, seed 1", "crl:eta=0.5, seed 0", "crl:eta=0.5, seed 1"], 1):
        assert f"[{number}/4] {name}: " in compared.result.stderr


def test_compare_prints_and_writes_tables_and_figures(compared: Compared) -> None:
    shown = compared.result.stdout
    assert "digits, 357 test samples, 2 seeds" in shown
    assert "95 % interval" in shown
    assert "crl (eta 0.5)" in shown
    files = {path.name for path in compared.folder.iterdir() if path.is_file()}
    tables = {"comparison.csv", "labels.csv", "comparison.md", "comparison.tex"}
    figures = {"gain-per-class.png", "sensitivity-against-class-size.png", "summary.png"}
    assert files == tables | figures
    for name in files:
        assert name in compared.result.stderr
    for name in figures:
        with Image.open(compared.folder / name) as image:
            assert image.format == "PNG"
            assert len(image.convert("L").getcolors()) > 10  # something is drawn
    rows = rows_of((compared.folder / "comparison.csv").read_text())
    assert {row["rule"] for row in rows} == {"argmax", "prior", "tuned", "preferred"}
    assert {row["group"] for row in rows} == {"ce", "crl (eta 0.5)"}
    assert "| crl (eta 0.5) " in (compared.folder / "comparison.md").read_text()
    assert r"\begin{tabular}" in (compared.folder / "comparison.tex").read_text()


def test_groups_have_the_names_that_were_given(tmp_path: Path) -> None:
    """The rule under which an epoch is chosen fits the method, so it differs and says nothing."""
    given = ("--methods", "ce,logit-adjustment", "--seeds", 1, "--out", tmp_path / "out", "--json")
    found = json.loads(succeed("compare", "--data", "digits", *MLP, "--epochs", 1, *given).stdout)
    assert [group["name"] for group in found["groups"]] == ["ce", "logit-adjustment"]
    assert [group["settings"]["select"] for group in found["groups"]] == ["prior", "argmax"]


def test_compare_again_trains_nothing_and_a_missing_run_alone(compared: Compared) -> None:
    def trained() -> dict[str, int]:
        return {path.parent.name: path.stat().st_mtime_ns for path in compared.folder.glob("runs/*/weights.*")}

    def tables() -> list[bytes]:
        return [(compared.folder / name).read_bytes() for name in ("comparison.csv", "labels.csv", "comparison.md")]

    before, written = trained(), tables()
    again = compare_into(compared.folder)
    assert again.stdout == compared.result.stdout
    assert "seed" not in again.stderr  # no run is announced
    assert trained() == before

    shutil.rmtree(compared.folder / "runs" / "crl-eta-0.5-seed1")
    mended = compare_into(compared.folder)
    after = trained()
    assert [name for name in before if after[name] != before[name]] == ["crl-eta-0.5-seed1"]
    assert "[1/1] crl:eta=0.5, seed 1: " in mended.stderr
    assert "[1/4]" not in mended.stderr
    assert mended.stdout == compared.result.stdout
    assert tables() == written


def test_compare_as_json(compared: Compared) -> None:
    runs = sorted((compared.folder / "runs").iterdir())
    result = succeed("compare", *runs, "--json")
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert [(group["name"], group["seeds"]) for group in found["groups"]] == [("ce", [0, 1]), ("crl (eta 0.5)", [0, 1])]
    assert found["groups"][1]["settings"]["method.eta"] == 0.5
    assert list(found["rules"]) == ["argmax", "prior", "tuned", "preferred"]
    for rule, values in found["rules"].items():
        for group in found["groups"]:
            own = values["test"]["class_balanced_accuracy"]["groups"][group["name"]]
            runs_metrics = [Run(group["folders"][seed]).metrics for seed in ("0", "1")]
            kept = [one["test"]["rules"][{"preferred": one["preferred_rule"]}.get(rule, rule)] for one in runs_metrics]
            assert list(own["values"].values()) == pytest.approx([one["class_balanced_accuracy"] for one in kept])
            assert own["mean"] == pytest.approx(np.mean(list(own["values"].values())))
    assert list(Path().iterdir()) == []


def test_compare_with_another_baseline(compared: Compared) -> None:
    runs = sorted((compared.folder / "runs").iterdir())
    found = json.loads(succeed("compare", *runs, "--baseline", "crl", "--json").stdout)
    assert found["baseline"] == "crl (eta 0.5)"
    assert list(found["rules"]["argmax"]["test"]["accuracy"]["differences"]) == ["ce"]
    assert "one of 'ce', 'crl (eta 0.5)', but got 'crll'" in refuse("compare", *runs, "--baseline", "crll")


def test_compare_shows_labels_under_another_rule(compared: Compared) -> None:
    runs = sorted((compared.folder / "runs").iterdir())
    assert "rule tuned" in succeed("compare", *runs, "--rule", "tuned").stdout
    assert "Did you mean 'tuned'?" in refuse("compare", *runs, "--rule", "tund")


def test_compare_refuses_unlike_data_by_naming_both_folders(compared: Compared, photos: Photos) -> None:
    one = compared.folder / "runs" / "ce-seed0"
    message = refuse("compare", one, photos.run)
    assert f"in {one}" in message
    assert f"in {photos.run}" in message


@pytest.mark.parametrize(
    "other",
    [
        ["--data", "digits"],
        ["--methods", "ce"],
        ["--epochs", "3"],
        ["--set", "epochs=3"],
        ["--preset", "digits"],
        ["--config", "config.json"],
    ],
    ids=lambda other: other[0],
)
def test_compare_of_runs_refuses_settings(shapes: Path, other: list[str]) -> None:
    message = refuse("compare", shapes, *other)
    assert f"Finished runs keep their settings. Remove {other[0]}, or the folders of the runs." in message


def test_a_run_given_twice() -> None:
    assert refuse("compare", "runs/a", "runs/b", "runs/a/") == "Error: runs/a is given twice.\n"


def test_compare_ignores_the_data_root_of_the_environment(shapes: Path) -> None:
    result = succeed("compare", shapes, "--json", env={"RECTIFIER_DATA": "elsewhere"})
    assert result.stdout == succeed("compare", shapes, "--json").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "digits"], "Give --out: a folder for runs, tables and figures."),
        (["--out", "x"], "Give --data: a data set's name, a table or a folder."),
        (["--data", "digits", "--out", "x", "--methods", "ce,clr"], "Did you mean 'crl'?"),
        (["--data", "digits", "--out", "x", "--methods", "crl:ete=1"], "Did you mean 'eta'?"),
        (
            ["--data", "digits", "--out", "x", "--methods", "crl:eta=1,kappa=2"],
            "No method 'kappa=2'. Separate",
        ),
        (["--data", "digits", "--out", "x", "--methods", "crl:eta"], "KEY=VALUE, each once, with colons between"),
        (["--data", "digits", "--out", "x", "--seeds", "0"], "--seeds must be at least 1."),
        (["--data", "digits", "--out", "x", "--methods", ","], "at least one method and one seed"),
    ],
)
def test_wrong_comparisons_train_nothing(options: list[str], message: str) -> None:
    assert message in refuse("compare", *MLP, *options)


def test_a_method_given_twice_is_used_once() -> None:
    options = ("--data", "digits", *MLP, "--epochs", "1", "--seeds", "1", "--methods", "ce,ce", "--out", "x")
    assert "--methods names ce twice. It is used once.\n" in succeed("compare", *options).stderr
    assert [run.name for run in Path("x/runs").iterdir()] == ["ce-seed0"]
