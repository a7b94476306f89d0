"""The verbs about runs, from the command line: train, evaluate, compare, predict, list and demo."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

from helpers.command_line import contents, refuse, run, succeed
from rectifier.cli import demo as demonstration
from rectifier.cli.app import VERBS
from rectifier.cli.listing import KINDS
from rectifier.cli.training import _methods
from rectifier.data.sources import SOURCES
from rectifier.methods import METHODS
from rectifier.networks.registry import NETWORKS
from rectifier.training import presets
from rectifier.training.config import Config
from rectifier.training.engine.step import EagerStep
from rectifier.training.run.folder import Run
from rectifier.training.run.results import score_predictions

PROGRAM = str(Path(sys.executable).with_name("rectifier"))
SHAPES = "shapes:samples=96,size=16,ratio=4"
MLP = ("--network", "mlp", "--accelerator", "cpu")
PREDICTIONS = ("predictions/validation.safetensors", "predictions/test.safetensors")
TRACES = ("weights.safetensors", "history.csv", "labels.csv", "metrics.json", "rules.json", "data.json", *PREDICTIONS)
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for the runs that several tests look at, and an environment without wishes of its own."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RECTIFIER_TRACEBACK", "RECTIFIER_DATA", "RECTIFIER_QUIET", "FORCE_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        patch.setenv("RECTIFIER_CACHE", str(folder / "cache"))
        patch.setenv("COLUMNS", "120")
        yield folder


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bytes_of(folder: Path, names: tuple[str, ...] = TRACES) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


# Train from a table


class Photos(NamedTuple):
    """A folder with table.csv and photos/, and RUN, which was trained from them."""

    folder: Path
    result: Any

    @property
    def run(self) -> Path:
        return self.folder / "RUN"

    @property
    def images(self) -> list[Path]:
        return sorted((self.folder / "photos").iterdir())


@pytest.fixture(scope="module")
def photos(home: Path) -> Photos:
    """Write a table with two labels, some cells blank, and train from it by the command that the issue gives."""
    folder, draw = home / "photos", np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    rows = ["image,colour,light"]
    for number in range(80):
        colour, light = list(COLOURS)[number % 8 // 3], ("day", "night")[number % 5 == 0]
        pixels = np.array(COLOURS[colour]) // (3 if light == "night" else 1) + draw.integers(0, 25, (10, 12, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"{number:02d}.png")
        cells = ["" if number % 9 == 1 else colour, "" if number % 7 == 2 else light]
        rows.append(",".join([f"{number:02d}.png", *cells]))
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    command = "train --data table.csv --images photos --method crl --network mlp --epochs 2 --seed 0 --out RUN"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return Photos(folder, succeed(*command.split(), "--accelerator", "cpu"))


def test_train_prints_every_rule_and_says_where_the_run_is(photos: Photos) -> None:
    head, columns, *_ = photos.result.stdout.splitlines()
    assert head == "Test, percent, under each decision rule"
    assert columns.split() == ["argmax", "prior", "tuned"]
    assert re.search(r"^colour +\d", photos.result.stdout, re.M)
    assert re.search(r"^light +\d", photos.result.stdout, re.M)
    assert photos.result.stderr.endswith("Run: RUN\n")
    assert "(2 labels, 5 classes), crl on mlp" in photos.result.stderr


def test_a_run_holds_everything_that_can_be_known_of_it(photos: Photos) -> None:
    files = {name for name, content in contents(photos.run).items() if content is not None}
    curves = {name for name in files if name.startswith("tensorboard/events.out.tfevents.")}
    assert curves
    assert files - curves == {*TRACES, "config.json", "environment.json", "checkpoint.pt"}  # no half of a file either

    environment = json.loads((photos.run / "environment.json").read_text())
    assert environment["packages"]["torch"] == torch.__version__
    assert environment["commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", environment["commit"])

    data = json.loads((photos.run / "data.json").read_text())
    assert data["labels"] == [
        {"name": "colour", "classes": ["blue", "green", "red"]},
        {"name": "light", "classes": ["day", "night"]},
    ]
    assert data["fingerprint"]
    assert data["split_hash"]
    assert sum(data["samples"].values()) == 80
    labelled = sum(sum(part["colour"].values()) for part in data["counts"].values())
    assert labelled == 80 - sum(number % 9 == 1 for number in range(80))  # blanks are missing, not a class

    history = rows_of((photos.run / "history.csv").read_text())
    assert [row["epoch"] for row in history] == ["1", "2"]
    with safe_open(photos.run / "weights.safetensors", "pt") as weights:
        assert list(weights.keys())


@pytest.mark.parametrize("part", ["validation", "test"])
def test_predictions_hold_logits_features_targets_and_ids(photos: Photos, part: str) -> None:
    samples = json.loads((photos.run / "data.json").read_text())["samples"][part]
    with safe_open(photos.run / "predictions" / f"{part}.safetensors", "pt") as file:
        shapes = {name: tuple(file.get_tensor(name).shape) for name in file.keys()}  # noqa: SIM118  it is no mapping
        ids = json.loads(file.metadata()["rectifier"])["ids"]
    assert shapes["logits"] == (samples, 5)
    assert shapes["targets"] == (samples, 2)
    assert shapes["features"][0] == samples
    assert len(set(ids)) == samples
    assert set(ids) <= {image.name for image in photos.images}


def test_metrics_have_the_shape_that_the_issue_gives(photos: Photos) -> None:
    metrics = json.loads((photos.run / "metrics.json").read_text())
    assert set(metrics) == {"validation", "test", "preferred_rule"}
    for part in ("validation", "test"):
        found = metrics[part]
        assert list(found["rules"]) == ["argmax", "prior", "tuned"]
        assert set(found["labels"]) == {"colour", "light"}
        assert found["class_balanced_accuracy"] == found["rules"]["argmax"]["class_balanced_accuracy"]
        assert found["labels"] == found["rules"]["argmax"]["labels"]
        mean = np.mean([label["class_balanced_accuracy"] for label in found["labels"].values()])
        assert found["class_balanced_accuracy"] == pytest.approx(mean)
    assert metrics["preferred_rule"] in metrics["test"]["rules"]


# Evaluate


def test_evaluate_gives_what_the_run_holds(photos: Photos) -> None:
    before = contents(photos.run)
    result = succeed("evaluate", photos.run, "--json")
    assert json.loads(result.stdout) == json.loads((photos.run / "metrics.json").read_text())
    assert result.stderr == ""
    assert succeed("evaluate", photos.run).stdout == photos.result.stdout
    validation = succeed("evaluate", photos.run, "--part", "validation").stdout
    assert validation.startswith("Validation, percent, under each decision rule\n")
    assert contents(photos.run) == before


@pytest.fixture(scope="module")
def shapes(home: Path) -> Path:
    options = ("--epochs", 2, "--batch-size", 32, "--set", "tensorboard=false")
    succeed("train", "--data", SHAPES, *MLP, *options, "--out", home / "shapes")
    return home / "shapes"


def test_evaluate_adds_one_rule_and_leaves_the_run_as_it_is(shapes: Path) -> None:
    before = contents(shapes)
    kept = json.loads((shapes / "metrics.json").read_text())
    found = json.loads(succeed("evaluate", shapes, "--posthoc", "threshold-adjustment", "--json").stdout)
    for part in ("validation", "test"):
        assert list(found[part]["rules"]) == ["argmax", "prior", "tuned", "threshold-adjustment"]
        added = found[part]["rules"].pop("threshold-adjustment")
        assert added != kept[part]["rules"]["argmax"]
        assert found[part] == kept[part]
    assert contents(shapes) == before


def test_evaluate_says_truly_which_rule_predict_uses(shapes: Path) -> None:
    changed = Run(shutil.copytree(shapes, "run"))
    draw, found = torch.Generator().manual_seed(8), {}
    for part in ("validation", "test"):
        kept = changed.predictions(part)
        found[part] = replace(kept, logits=torch.randn(kept.logits.shape, generator=draw))
        changed.save_predictions(part, found[part])
    rules, metrics = score_predictions(found, changed.train_counts, changed.config.method)
    changed.save_results(rules, metrics)
    more = ("--posthoc", "threshold-adjustment")
    scores = json.loads(succeed("evaluate", "run", *more, "--json").stdout)["validation"]["rules"]
    # The added rule has more of validation than the run's own, but predict does not know it.
    assert scores["threshold-adjustment"]["class_balanced_accuracy"] > max(rules["validation"].values())
    shown = succeed("evaluate", "run", *more).stdout
    assert f"Validation prefers {rules['preferred']}: rectifier predict uses it unless told otherwise." in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--posthoc", "threshold-adjustmnet"], "Did you mean 'threshold-adjustment'?"),
        (["--part", "tset"], "Did you mean 'test'?"),
    ],
)
def test_evaluate_answers_a_misspelt_name_with_the_nearest(shapes: Path, options: list[str], message: str) -> None:
    assert message in refuse("evaluate", shapes, *options)


# Predict


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_predict_files_folders_and_tables(photos: Photos, tmp_path: Path) -> None:
    file, folder, table = photos.images[3], photos.folder / "photos", tmp_path / "wanted.csv"
    table.write_text("image\n05.png\n04.png\n")
    arguments = (file, folder, table, "--images", folder, "--out", "predictions.csv", "--accelerator", "cpu")
    result = succeed("predict", photos.run, *arguments)
    assert result.stdout == ""
    preferred = json.loads((photos.run / "metrics.json").read_text())["preferred_rule"]
    assert f"Decision rule: {preferred}, preferred by validation, with a class-balanced accuracy of" in result.stderr
    assert "predictions.csv: 83 images" in result.stderr

    text = Path("predictions.csv").read_text()
    assert text.splitlines()[0] == "image,colour,colour_probability,light,light_probability"
    rows = rows_of(text)
    assert [row["image"] for row in rows] == [str(file), *map(str, photos.images), "05.png", "04.png"]
    assert rows[0] == rows[1 + 3]
    assert [row["colour"] for row in rows[-2:]] == [rows[1 + 5]["colour"], rows[1 + 4]["colour"]]
    for row in rows:
        assert row["colour"] in COLOURS
        assert row["light"] in ("day", "night")
        assert 1 / 3 <= float(row["colour_probability"]) <= 1
        assert 1 / 2 <= float(row["light_probability"]) <= 1


def test_predict_prints_to_stdout_and_takes_another_rule(photos: Photos) -> None:
    rules = json.loads((photos.run / "rules.json").read_text())
    other = next(rule for rule in ("argmax", "prior", "tuned") if rule != rules["preferred"])
    result = succeed("predict", photos.run, photos.images[0], "--rule", other, "--accelerator", "cpu")
    assert len(rows_of(result.stdout)) == 1
    assert result.stderr == f"Decision rule: {other}, as requested.\n"
    assert "Did you mean 'prior'?" in refuse("predict", photos.run, photos.images[0], "--rule", "priro")


def test_predict_names_images_that_cannot_be_read(photos: Photos, tmp_path: Path) -> None:
    (tmp_path / "damaged.png").write_bytes(b"no image")
    result = succeed("predict", photos.run, "damaged.png", photos.images[0], "--accelerator", "cpu")
    assert "Not readable: damaged.png (" in result.stderr
    first, second = rows_of(result.stdout)
    assert set(first.values()) == {"damaged.png", ""}
    assert "" not in second.values()


# Replay and override


def test_a_config_replays_a_run_from_any_folder(photos: Photos) -> None:
    succeed("train", "--config", photos.run / "config.json", "--out", "OTHER")
    assert config_of(Path("OTHER")) == config_of(photos.run)
    assert bytes_of(Path("OTHER")) == bytes_of(photos.run)


def test_options_override_a_config_and_settings_override_both(shapes: Path) -> None:
    wishes = ("--method", "ce", "--epochs", 3, "--seed", 4, "--set", "epochs=1", "--set", "hidden=8,4")
    succeed("train", "--config", shapes / "config.json", *wishes, "--out", "run")
    before, after = config_of(shapes), config_of(Path("run"))
    assert {key: after[key] for key in after if after[key] != before[key]} == {
        "method": "ce",
        "epochs": 1,
        "seed": 4,
        "network_options": {"hidden": [8, 4]},
    }
    assert len((Path("run") / "history.csv").read_text().splitlines()) == 2


def test_a_preset_is_where_settings_begin() -> None:
    succeed("train", "--preset", "digits", "--epochs", 1, "--accelerator", "cpu", "--out", "run")
    expected = replace(presets.preset("digits"), epochs=1, accelerator="cpu")
    assert config_of(Path("run")) == expected.as_dict()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["epohcs=3"], "Did you mean 'epochs'?"),
        (["ete=0.5"], "Did you mean 'eta'?"),
        (["data.ratoi=5"], "Did you mean 'ratio'?"),
        (["epochs"], "Expected --set to be KEY=VALUE, but got 'epochs'."),
        (["=3"], "Expected --set to be KEY=VALUE, but got '=3'."),
        (["epochs=1", "epochs=2"], "Expected --set to be given once for each key"),
        (["epochs=0"], "Expected epochs to be a positive integer, but got 0."),
        (["nesterov=maybe"], "Expected nesterov to be true or false, but got 'maybe'."),
    ],
)
def test_bad_settings(settings: list[str], message: str) -> None:
    given = [part for setting in settings for part in ("--set", setting)]
    assert message in refuse("train", "--data", "digits", *MLP, "--out", "run", *given)


# Stop and resume


LONG = ("--data", "digits", *MLP, "--epochs", 40, "--batch-size", 32, "--set", "tensorboard=false")


@pytest.fixture(scope="module")
def unbroken(home: Path) -> Path:
    succeed("train", *LONG, "--out", home / "unbroken")
    return home / "unbroken"


def stopped_by(number: signal.Signals, out: str) -> tuple[int, str, str]:
    """Train in a process of its own, stop it by a signal in the midst, and return exit code, stdout and stderr."""
    command = [PROGRAM, "train", *map(str, LONG), "--set", "checkpoint_seconds=0", "--out", out]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )
    try:
        deadline = time.monotonic() + 60
        history = Path(out) / "history.csv"
        while not (history.is_file() and history.stat().st_size):  # an epoch is done, many are to come
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    return process.returncode, stdout, stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_stopped_by_a_signal_ends_as_one_never_stopped(unbroken: Path, number: signal.Signals, code: int) -> None:
    returned, stdout, stderr = stopped_by(number, "run")
    assert (returned, stdout) == (code, "")
    last = stderr.splitlines()[-1]
    assert re.fullmatch(
        rf"Stopped by {number.name} at epoch \d+, batch \d of 7; everything is saved\."
        r" rectifier train --resume run goes on from there\.",
        last,
    )
    assert "Traceback" not in stderr
    assert not Run.open("run").is_finished
    assert len((Path("run") / "history.csv").read_text().splitlines()) < 40

    again = "train --data digits --network mlp --accelerator cpu --epochs 40 --batch-size 32"
    settings = ("--set", "tensorboard=false", "--set", "checkpoint_seconds=0")
    message = refuse(*again.split(), *settings, "--out", "run")
    assert "run already holds the same run, not finished." in message

    resumed = succeed("train", "--resume", "run")
    assert resumed.stdout == succeed("evaluate", unbroken).stdout
    assert resumed.stderr.endswith("Run: run\n")
    assert bytes_of(Path("run")) == bytes_of(unbroken)


def test_an_impatient_second_interrupt_says_how_to_go_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(*_: object) -> None:
        raise KeyboardInterrupt

    command = ("train", "--data", "digits", *MLP, "--epochs", 1, "--set", "tensorboard=false", "--out", "run")
    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "run", impatient)
        result = run(*command)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "Traceback" not in result.stderr
    # The same command would be refused now, for the folder is no longer empty.
    assert "rectifier train --resume run goes on." in result.stderr
    succeed("train", "--resume", "run")


def test_resume_of_a_finished_run_says_so(shapes: Path) -> None:
    before = contents(shapes)
    result = succeed("train", "--resume", shapes)
    assert result.stderr == f"{shapes} is finished.\nRun: {shapes}\n"
    assert result.stdout == succeed("evaluate", shapes).stdout
    assert contents(shapes) == before


@pytest.mark.parametrize(
    "beside",
    [
        ["--data", "digits"],
        ["--images", "photos"],
        ["--data-root", "."],
        ["--method", "ce"],
        ["--epochs", "3"],
        ["--batch-size", "8"],
        ["--lr", "0.1"],
        ["--seed", "0"],
        ["--accelerator", "cpu"],
        ["--out", "other"],
        ["--set", "epochs=3"],
        ["--preset", "digits"],
        ["--config", "config.json"],
    ],
    ids=lambda beside: beside[0],
)
def test_resume_beside_other_options_is_refused(shapes: Path, beside: list[str]) -> None:
    message = refuse("train", "--resume", shapes, *beside)
    assert "Expected --resume to be alone, for the run keeps its settings, but got" in message


@pytest.mark.parametrize("beside", [["--preset", "digits"], ["--set", "epochs=3"]], ids=lambda one: one[0])
def test_resume_names_the_option_that_is_too_much(shapes: Path, beside: list[str]) -> None:
    assert f"{beside[0]} beside it" in refuse("train", "--resume", shapes, *beside)


def test_a_data_root_in_the_environment_is_no_option_beside_resume(shapes: Path) -> None:
    succeed("train", "--resume", shapes, env={"RECTIFIER_DATA": "elsewhere"})


# Compare


class Compared(NamedTuple):
    folder: Path
    result: Any


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("ce, crl:eta=0.5", ["ce", "crl:eta=0.5"]),
        ("lmle:margins=0.1,0.2,.3:rounds=2,ce", ["lmle:margins=0.1,0.2,.3:rounds=2", "ce"]),
        ("crl:alpha=0.5,1e-3,", ["crl:alpha=0.5,1e-3"]),
        ("ce,0.5", ["ce", "0.5"]),  # which is no method, and is told
    ],
)
def test_a_list_of_methods_may_have_options_that_are_lists(given: str, names: list[str]) -> None:
    assert _methods(given) == names


COMPARE = ("compare", "--data", "digits", "--methods", "ce,crl:eta=0.5", "--seeds", 2, *MLP, "--epochs", 1)


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
    assert shown.startswith("digits, 357 test samples, 2 seeds; baseline ce\n")
    assert "95 % interval" in shown
    assert "Class-balanced accuracy: difference to ce, paired by seed" in shown
    assert "Rarest classes: sensitivity of ce and gains over it, rule argmax" in shown
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
    assert "| crl (eta 0.5) |" in (compared.folder / "comparison.md").read_text()
    assert r"\begin{tabular}" in (compared.folder / "comparison.tex").read_text()


def test_compare_again_trains_nothing_and_a_missing_run_alone(compared: Compared) -> None:
    def trained() -> dict[str, int]:
        return {path.parent.name: path.stat().st_mtime_ns for path in compared.folder.glob("runs/*/weights.*")}

    before, tables = trained(), bytes_of(compared.folder, ("comparison.csv", "labels.csv", "comparison.md"))
    again = compare_into(compared.folder)
    assert again.stdout == compared.result.stdout
    assert "training images" not in again.stderr
    assert trained() == before

    shutil.rmtree(compared.folder / "runs" / "crl-eta-0.5-seed1")
    mended = compare_into(compared.folder)
    after = trained()
    assert [name for name in before if after[name] != before[name]] == ["crl-eta-0.5-seed1"]
    assert "[1/1] crl:eta=0.5, seed 1: " in mended.stderr
    assert "[1/4]" not in mended.stderr
    assert mended.stdout == compared.result.stdout
    assert bytes_of(compared.folder, tuple(tables)) == tables


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


def test_compare_shows_labels_under_the_rule_asked_for(compared: Compared) -> None:
    runs = sorted((compared.folder / "runs").iterdir())
    assert "gains over it, rule tuned" in succeed("compare", *runs, "--rule", "tuned").stdout
    assert "Did you mean 'tuned'?" in refuse("compare", *runs, "--rule", "tund")


def test_compare_refuses_unlike_data_by_naming_both_folders(compared: Compared, photos: Photos) -> None:
    one = compared.folder / "runs" / "ce-seed0"
    message = refuse("compare", one, photos.run)
    assert "Expected runs that are compared to be of the same data" in message
    assert f"in {one}" in message
    assert f"in {photos.run}" in message


@pytest.mark.parametrize(
    "beside",
    [
        ["--data", "digits"],
        ["--methods", "ce"],
        ["--epochs", "3"],
        ["--set", "epochs=3"],
        ["--preset", "digits"],
        ["--config", "config.json"],
    ],
    ids=lambda beside: beside[0],
)
def test_compare_of_runs_refuses_settings(shapes: Path, beside: list[str]) -> None:
    assert "given without settings" in refuse("compare", shapes, *beside)


def test_a_data_root_in_the_environment_is_no_setting_beside_runs(shapes: Path) -> None:
    succeed("compare", shapes, "--json", env={"RECTIFIER_DATA": "elsewhere"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "digits"], "Expected --out to be a folder for runs, tables and figures, but got nothing."),
        (["--out", "x"], "Expected --data to be a data set's name, a table or a folder"),
        (["--data", "digits", "--out", "x", "--methods", "ce,clr"], "Did you mean 'crl'?"),
        (["--data", "digits", "--out", "x", "--methods", "crl:ete=1"], "Did you mean 'eta'?"),
        (["--data", "digits", "--out", "x", "--methods", "crl:eta"], "KEY=VALUE, each once, with colons between"),
        (["--data", "digits", "--out", "x", "--seeds", "0"], "at least one method and one seed"),
        (["--data", "digits", "--out", "x", "--methods", ","], "at least one method and one seed"),
    ],
)
def test_comparisons_that_must_not_begin(options: list[str], message: str) -> None:
    assert message in refuse("compare", *MLP, *options)


# List


def test_list_has_everything_there_is_to_choose_from() -> None:
    found = json.loads(succeed("list", "--json").stdout)
    assert tuple(found) == KINDS
    assert list(found["methods"]) == list(METHODS)
    assert set(found["networks"]) >= set(NETWORKS)
    assert list(found["data"]) == list(SOURCES)
    assert list(found["presets"]) == list(presets.PRESETS)
    assert list(found["settings"]) == [field.name for field in fields(Config)]
    assert all(about for entries in found.values() for about in entries.values())
    assert found["settings"]["epochs"].endswith("[30]")
    assert "eta" in found["methods"]["crl"]

    words = set(succeed("list").stdout.replace(",", " ").split())
    for names in found.values():
        assert {word for name in names for word in name.replace(",", " ").split()} <= words


@pytest.mark.parametrize("kind", KINDS)
def test_list_of_one_kind(kind: str) -> None:
    everything = json.loads(succeed("list", "--json").stdout)
    assert json.loads(succeed("list", kind, "--json").stdout) == {kind: everything[kind]}
    assert succeed("list", kind).stdout.split()[0] == kind.capitalize()


def test_list_of_a_wrong_kind_is_answered_with_the_nearest() -> None:
    assert "Did you mean 'methods'?" in refuse("list", "metods")


# Demo


def test_demo_prints_what_to_expect_beside_what_came_out(monkeypatch: pytest.MonkeyPatch) -> None:
    short = presets.Preset("short", {**presets.PRESETS["digits"].settings, "epochs": 1, "tensorboard": False})
    monkeypatch.setitem(presets.PRESETS, "digits", short)
    monkeypatch.setattr(demonstration, "METHODS", ("ce", "crl:eta=0.5"))
    monkeypatch.setattr(demonstration, "EXPECTED", {"ce": (12.3, 45.6), "crl (eta 0.5)": (78.9, 98.7)})
    shown = succeed("demo").stdout
    out = Path("rectifier-demo")
    assert len(list((out / "runs").iterdir())) == 6
    assert {"comparison.md", "summary.png"} <= {path.name for path in out.iterdir()}
    rows = [line.rsplit(maxsplit=4) for line in shown.splitlines()[-2:]]
    for (name, argmax, first, tuned, second), expected in zip(rows, demonstration.EXPECTED.items(), strict=True):
        assert (name, (float(first), float(second))) == expected
        runs = [Run(path).metrics["test"]["rules"] for path in out.glob(f"runs/{name.partition(' ')[0]}-*")]
        assert len(runs) == 3
        for rule, value in (("argmax", argmax), ("tuned", tuned)):
            mean = np.mean([rules[rule]["class_balanced_accuracy"] for rules in runs])
            assert float(value) == pytest.approx(100 * mean, abs=0.051)

    other = succeed("demo", "--seeds", 2)  # what is expected holds for three seeds
    assert "digits, 357 test samples, 2 seeds; baseline ce" in other.stdout
    assert "expected" in shown
    assert "expected" not in other.stdout


def test_what_the_demo_expects_is_of_its_methods() -> None:
    assert {spec.partition(":")[0] for spec in demonstration.METHODS} == {
        name.partition(" ")[0] for name in demonstration.EXPECTED
    }


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digits", "--method", "clr", "--out", "run"], "Did you mean 'crl'?"),
        (["--data", "digits", "--network", "mpl", "--out", "run"], "Did you mean 'mlp'?"),
        (["--data", "digitz", "--out", "run"], "Did you mean 'digits'?"),
        (["--out", "run"], "Expected --data to be a data set's name, a table or a folder (or --preset, --config)"),
        (["--data", "digits"], "Expected --out to be a new folder for the run, but got nothing."),
        (
            ["--preset", "digits", "--config", "c.json", "--out", "run"],
            "Expected --preset to be given without --config",
        ),
        (["--preset", "digit", "--out", "run"], "Did you mean 'digits'?"),
        (["--config", "c.json", "--out", "run"], "Expected c.json to be a config as JSON, but got nothing there."),
        (["--resume", "run"], "Expected run to be the folder of a run, with a config.json, but got nothing there."),
        (["--data", "digits", "--images", "here", "--out", "run"], "Expected images to be given with a table alone"),
    ],
)
def test_runs_that_must_not_begin(arguments: list[str], message: str) -> None:
    assert message in refuse("train", *arguments)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    message = refuse("train", "--data", "digits", "--network", "mlp", "--accelerator", "cuda", "--out", "run")
    assert message == "Error: Expected accelerator to be one that this machine has, but got 'cuda'.\n"


def test_the_folder_of_another_run_is_refused(shapes: Path) -> None:
    before = contents(shapes)
    assert "holds another run (" in refuse("train", "--data", "digits", *MLP, "--out", shapes)
    assert contents(shapes) == before


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_an_unfinished_run_is_named_with_how_to_go_on(photos: Photos, verb: str) -> None:
    Path("begun").mkdir()
    for name in ("config.json", "data.json", "environment.json", "checkpoint.pt"):
        shutil.copy(photos.run / name, "begun")
    more = [photos.images[0], "--out", "predictions.csv", "--accelerator", "cpu"] if verb == "predict" else []
    message = refuse(verb, "begun", *more)
    assert "is missing: the run is not finished." in message


@pytest.mark.parametrize("verb", ["evaluate", "predict", "compare"])
def test_a_folder_that_is_no_run(verb: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    more = ["mine"] if verb == "predict" else []
    message = refuse(verb, "mine", *more)
    assert "Expected mine to be the folder of a run, with a config.json, but got nothing there." in message


def test_an_error_of_the_program_itself_has_no_traceback() -> None:
    command = [PROGRAM, "train", "--data", "digits", "--method", "clr", "--out", "run"]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: Expected method to be one of ")
    assert result.stderr.endswith("but got 'clr'. Did you mean 'crl'?\n")
    assert not Path("run").exists()


# Help


HELP = """
import sys
from rectifier.cli import main
code = None
try:
    main()
except SystemExit as ended:
    code = ended.code
heavy = {"torch", "numpy", "matplotlib", "pandas", "lightning", "sklearn", "scipy", "PIL"}
print("code", code, "heavy", *sorted(heavy & set(sys.modules)))
"""


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_imports_nothing_heavy(verb: str) -> None:
    arguments = [*filter(None, [verb]), "--help"]
    result = subprocess.run(
        [sys.executable, "-c", HELP, *arguments], capture_output=True, text=True, encoding="utf-8", timeout=60
    )
    *shown, last = result.stdout.splitlines()
    assert last == "code 0 heavy", result.stderr
    assert any("Usage: rectifier" in line and verb in line for line in shown)


# Several processes


def test_torchrun_trains_once_and_speaks_once() -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "rectifier", "train", "--data", "digits", "--network", "mlp", "--epochs", "1"]
    options = ["--accelerator", "cpu", "--set", "tensorboard=false"]
    ended = subprocess.run(
        [*launcher, *command, *options, "--devices", "2", "--out", "run"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Test, percent, under each decision rule") == 1
    assert Run.open("run").is_finished
    alone = subprocess.run([*launcher, *command, *options, "--out", "x"], capture_output=True, text=True, check=False)
    assert alone.returncode != 0
    assert "Expected devices times nodes to be 2, the number of started processes" in alone.stderr
    assert not Path("x").exists()
