"""rectifier train: a run from a table, replayed, overridden, stopped and resumed."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from helpers.command_line import MLP, PROGRAM, Photos, contents, refuse, rows_of, run, succeed
from helpers.training import PREDICTIONS, TRACES, spoil_step
from rectifier._base.files import claimed
from rectifier.training import presets
from rectifier.training.engine.step_modes import EagerStep
from rectifier.training.run.folder import Run


def bytes_of(folder: Path, names: tuple[str, ...] = (*TRACES, *PREDICTIONS)) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def config_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def test_train_prints_every_rule_and_says_where_the_run_is(photos: Photos) -> None:
    head, columns, *_ = photos.result.stdout.splitlines()
    assert head.startswith("Metrics on test")
    assert columns.split() == ["Metric", "argmax", "prior", "tuned"]
    assert re.search(r"^colour +\d", photos.result.stdout, re.M)
    assert re.search(r"^light +\d", photos.result.stdout, re.M)
    assert photos.result.stderr.endswith("Run: RUN\n")


def test_a_run_folder_is_complete(photos: Photos) -> None:
    files = {name for name, content in contents(photos.run).items() if content is not None}
    curves = {name for name in files if name.startswith("tensorboard/events.out.tfevents.")}
    assert curves
    assert files - curves == {
        *TRACES,
        *PREDICTIONS,
        "config.json",
        "asked.json",
        "environment.json",
        "checkpoint.pt",
        "baselines.json",
    }  # no half of a file either

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


def test_metrics_have_one_entry_per_part_rule_and_label(photos: Photos) -> None:
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


def test_a_preset_is_a_start() -> None:
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
        (["epochs=1", "epochs=2"], "--set gives epochs twice."),
        (["epochs=0"], "Expected epochs to be a positive integer, but got 0."),
        (["nesterov=maybe"], "Expected nesterov to be true or false, but got 'maybe'."),
    ],
)
def test_bad_settings(settings: list[str], message: str) -> None:
    given = [part for setting in settings for part in ("--set", setting)]
    assert message in refuse("train", "--data", "digits", *MLP, "--out", "run", *given)


SHORT = ("train", "--data", "digits", *MLP, "--epochs", 1, "--set", "tensorboard=false", "--out", "run")
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
    assert re.fullmatch(rf"Stopped by {number.name} .+ Resume with: rectifier train --resume run", last)
    assert "Traceback" not in stderr
    assert not Run.open("run").is_finished
    assert len((Path("run") / "history.csv").read_text().splitlines()) < 40

    again = "train --data digits --network mlp --accelerator cpu --epochs 40 --batch-size 32"
    settings = ("--set", "tensorboard=false", "--set", "checkpoint_seconds=0")
    message = refuse(*again.split(), *settings, "--out", "run")
    assert "Choose another folder with --out.\nResume with: rectifier train --resume run\n" in message

    resumed = succeed("train", "--resume", "run")
    assert resumed.stdout == succeed("evaluate", unbroken).stdout
    assert resumed.stderr.endswith("Run: run\n")
    assert bytes_of(Path("run")) == bytes_of(unbroken)


def test_a_second_interrupt_says_how_to_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "run", impatient)
        result = run(*SHORT)
    assert (result.exit_code, result.stdout) == (130, "")
    assert "Traceback" not in result.stderr
    # The same command would be refused now, for the folder is no longer empty.
    assert "Interrupted. Resume with: rectifier train --resume run\n" in result.stderr
    succeed("train", "--resume", "run")


def test_an_error_in_training_says_how_to_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "run", fail)
        result = run(*SHORT)
    assert result.exit_code == 2
    assert "Error: No space left on device\nResume with: rectifier train --resume run\n" in result.stderr
    succeed("train", "--resume", "run")


def test_divergence_says_what_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil_step(monkeypatch, 2, images=float("nan"))
    result = run(*SHORT)
    assert result.exit_code == 2
    assert "rectifier train --config run/config.json --lr RATE --set clip=1 --out DIR\n" in result.stderr
    assert "Resume with" not in result.stderr


def test_a_run_that_another_process_trains() -> None:
    Path("run").mkdir()
    with claimed(Path("run"), wait=False):
        result = run(*SHORT)
    assert result.exit_code == 2
    assert "Wait until it is finished, or choose another folder with --out.\n" in result.stderr


def test_a_folder_of_other_files_is_refused() -> None:
    Path("run").mkdir()
    Path("run/thesis.txt").write_text("years of work")
    assert refuse(*SHORT).endswith("\nChoose another folder with --out.\n")


def test_errors_before_training_do_not_speak_of_resuming() -> None:
    assert "Resume" not in refuse(*SHORT, "--set", "data.ratio=-1")


def test_resume_of_a_finished_run_says_so(shapes: Path) -> None:
    before = contents(shapes)
    result = succeed("train", "--resume", shapes)
    assert result.stderr.endswith(f"\nRun: {shapes}\n")
    assert result.stdout == succeed("evaluate", shapes).stdout
    assert contents(shapes) == before


@pytest.mark.parametrize(
    "other",
    [
        ["--data", "digits"],
        ["--method", "ce"],
        ["--epochs", "3"],
        ["--seed", "0"],
        ["--out", "other"],
        ["--set", "epochs=3"],
        ["--preset", "digits"],
        ["--config", "config.json"],
    ],
    ids=lambda other: other[0],
)
def test_resume_refuses_other_options(shapes: Path, other: list[str]) -> None:
    message = refuse("train", "--resume", shapes, *other)
    assert f"A resumed run keeps its settings. Remove {other[0]}, or" in message


def test_resume_ignores_the_data_root_of_the_environment(shapes: Path) -> None:
    before = contents(shapes)
    result = succeed("train", "--resume", shapes, env={"RECTIFIER_DATA": "elsewhere"})
    assert f"Run: {shapes}" in result.stderr.replace("\n", "")
    assert contents(shapes) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digits", "--method", "crl:eta=0.5,kappa=2", "--out", "run"], "with colons: crl:eta=0.5:kappa=2."),
        (["--data", "cifar100", "--out", "run"], "Options of the reader: --images DIR, --set data.NAME=VALUE."),
        (["--data", "digits", "--method", "clr", "--out", "run"], "Did you mean 'crl'?"),
        (["--data", "digits", "--network", "mpl", "--out", "run"], "Did you mean 'mlp'?"),
        (["--data", "digitz", "--out", "run"], "Did you mean 'digits'?"),
        (["--out", "run"], "Or start from --preset or --config."),
        (["--data", "digits"], "Give --out: a new folder for the run."),
        (["--preset", "digits", "--config", "c.json", "--out", "run"], "Give either --preset or --config, not both."),
        (["--preset", "digit", "--out", "run"], "Did you mean 'digits'?"),
        (["--config", "c.json", "--out", "run"], "c.json"),
        (["--resume", "run"], "run does not exist."),
        (["--data", "digits", "--images", "here", "--out", "run"], "images"),
    ],
)
def test_wrong_commands_train_nothing(arguments: list[str], message: str) -> None:
    assert message in refuse("train", *arguments)


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    message = refuse("train", "--data", "digits", "--network", "mlp", "--accelerator", "cuda", "--out", "run")
    assert "This machine has no CUDA GPU. Use --accelerator cpu." in message


def test_the_folder_of_another_run_is_refused(shapes: Path) -> None:
    before = contents(shapes)
    assert "\nChoose another folder with --out.\n" in refuse("train", "--data", "digits", *MLP, "--out", shapes)
    assert contents(shapes) == before


def test_torchrun_trains_once_and_speaks_once() -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "rectifier", "train", "--data", "digits", "--network", "mlp", "--epochs", "1"]
    options = ["--accelerator", "cpu", "--set", "tensorboard=false"]
    ended = subprocess.run(
        [*launcher, *command, *options, "--devices", "2", "--out", "run"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert len(re.findall("^Metrics on test", ended.stdout, re.M)) == 1
    assert Run.open("run").is_finished
    alone = subprocess.run([*launcher, *command, *options, "--out", "x"], capture_output=True, text=True, check=False)
    assert alone.returncode != 0
    assert "Error: " in alone.stderr
    assert not Path("x").exists()
