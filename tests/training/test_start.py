"""Runs that stop and resume, runs on two processes, and runs that must not start."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from helpers.cases import StopsAfter
from helpers.training import RESTLESS, SHAPES, assert_same, config, spoil_step
from rectifier._base import console
from rectifier.training import resume, train
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run.folder import Run


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with console.quiet():
        yield


def test_a_run_stopped_after_any_step_ends_as_one_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(SHAPES, **RESTLESS | {"checkpoint_seconds": 1e9})
    unbroken = train(settings, tmp_path / "unbroken")
    steps = 6
    for at in range(1, steps + 1):
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", at)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped, match=r"SIGTERM at (epoch \d, batch \d of 3|the end of epoch \d); everything"):
                train(settings, tmp_path / f"after{at}")
        assert_same(resume(tmp_path / f"after{at}"), unbroken)


def test_a_run_stopped_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(SHAPES, **RESTLESS)
    unbroken = train(settings, tmp_path / "unbroken")
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 1)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            train(settings, tmp_path / "run")
        for _ in range(5):
            with pytest.raises(Stopped):
                resume(tmp_path / "run")
    run = resume(tmp_path / "run")
    assert_same(run, unbroken)
    assert len(run.environment["sessions"]) == 7
    assert resume(run).path == run.path  # what is finished stays as it is


KILLED = """
import os, sys, signal
from rectifier.training.config import Config
from rectifier.training.run.folder import Run
from rectifier.training import train
import torch
torch.set_num_threads(1)
kept, saved = Run.save_checkpoint, 0
def save(self, state, name):
    global saved
    kept(self, state, name)
    saved += 1
    if saved == int(sys.argv[3]):
        os.kill(os.getpid(), int(sys.argv[4]))
Run.save_checkpoint = save
train(Config.from_file(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_run_that_is_killed_ends_as_one_never_killed(tmp_path: Path, number: signal.Signals) -> None:
    settings = config(SHAPES, **RESTLESS)
    (tmp_path / "config.json").write_text(json.dumps(settings.as_dict()))
    command = [
        sys.executable,
        "-c",
        KILLED,
        str(tmp_path / "config.json"),
        str(tmp_path / "run"),
        "4",
        str(int(number)),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == (-signal.SIGKILL if number == signal.SIGKILL else 1), ended.stderr
    assert not Run.open(tmp_path / "run").is_finished
    assert_same(resume(tmp_path / "run"), train(settings, tmp_path / "unbroken"))


@pytest.mark.parametrize(
    ("network", "spec", "method"),
    [
        ({"network": "mlp"}, SHAPES, {"method": "crl", "eta": 0.5}),
        ({"network": "resnet32", "network.depth": 8}, SHAPES, {"method": "crl", "eta": 0.5}),
        # 62 steps: rounding alone would grow beyond 1e-5 at the kinks of ReLU, in float64 it does not.
        ({"network": "resnet32", "network.depth": 8, "precision": "64"}, "digits", {"method": "over-sampling"}),
    ],
)
def test_two_processes_train_what_one_does(
    tmp_path: Path, network: dict[str, Any], spec: str, method: dict[str, Any]
) -> None:
    settings = {**network, **method, "padding": 1, "epochs": 2, "lr": 0.02, "drop_last": True}
    one = train(config(spec, **settings), tmp_path / "one")
    two = train(config(spec, **settings, devices=2), tmp_path / "two")
    weights = one.weights()
    for name, weight in two.weights().items():
        assert torch.allclose(weight, weights[name], atol=1e-5, rtol=0), name
    for part in ("validation", "test"):
        mine, theirs = one.predictions(part), two.predictions(part)
        assert mine.ids == theirs.ids
        assert torch.allclose(mine.logits, theirs.logits, atol=1e-4)
    tables = [(run.path / "history.csv").read_text().splitlines() for run in (one, two)]
    for row, other in zip(*tables, strict=True):
        for value, its in zip(row.split(","), other.split(","), strict=True):
            assert value == its or float(value) == pytest.approx(float(its), abs=1e-5)


def test_two_processes_bring_errors_home(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv does not exist"):
        train(config("nowhere.csv", devices=2), tmp_path / "run")
    assert nothing_written(tmp_path / "run")


def test_a_signal_during_the_last_validation_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(epochs=2)
    end_epochs = fitting._end_epochs

    def interrupted(courses: Any) -> None:
        end_epochs(courses)
        if courses[0].state.epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_end_epochs", interrupted)
        with pytest.raises(Stopped, match="SIGTERM at the end of epoch 2"):
            train(settings, tmp_path / "run")
    assert_same(resume(tmp_path / "run"), train(settings, tmp_path / "unbroken"))


def test_what_a_kill_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.4711.tmp").write_text("{")
    run = train(config(epochs=1), tmp_path / "run")
    assert not list(run.path.glob(".*"))


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    run = train(config(epochs=1), tmp_path / "run")
    (run.path / "metrics.json").unlink()
    whole = (run.path / "checkpoint.pt").read_bytes()
    (run.path / "checkpoint.pt").write_bytes(whole[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.pt to be a checkpoint, but got a damaged file .*delete it"):
        resume(run)


def nothing_written(folder: Path) -> bool:
    return not folder.exists() or not any(folder.iterdir())


def images_of(folder: Path, classes: dict[str, int]) -> Path:
    generator = torch.Generator().manual_seed(0)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = torch.randint(0, 256, (8, 8, 3), generator=generator, dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "clr"}, r"No method 'clr'\. Did you mean 'crl'\?"),
        ({"network": "resnet23"}, r"No network 'resnet23'\. Did you mean 'resnet32'\?"),
        ({"network": "deepid2"}, "Expected .*deepid2.* but got"),
        ({"accelerator": "cuda"}, "This machine has no CUDA GPU"),
        ({"eta": -1}, "Expected eta to be a number of at least 0, but got -1"),
        ({"ratio": 1000}, "Expected ratio to be from 1"),
        ({"epohcs": 3}, r"'epohcs' is neither .*\. Did you mean 'epochs'\?"),
        ({"drop_last": True, "batch_size": 5000}, "Expected an epoch to be of at least one batch of 5000"),
        ({"nesterov": True, "momentum": 0}, "nesterov needs momentum, but momentum is 0"),
        ({"padding": 100}, "Expected padding to be below 8"),
        ({"seed": 10**20}, "Expected seed to be an integer from 0 to 4294967295"),
        ({"batch_size": 33, "devices": 2}, "Expected batch_size to be a multiple of the 2 devices"),
    ],
)
def test_what_must_not_start_leaves_nothing_behind(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    if settings.get("accelerator") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has the GPU that the case is about lacking")
    out = tmp_path / "run"
    with pytest.raises(ValueError, match=message):
        train(config(**settings), out)
    assert nothing_written(out)


def test_a_part_without_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    folder = images_of(tmp_path / "images" / "train", {"cat": 12, "dog": 6}).parent
    images_of(tmp_path / "images" / "test", {"cat": 1, "dog": 1})
    for file in (tmp_path / "images" / "test").rglob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"The test split of 'images' has no images\. Add images"):
        train(config(str(folder), size="8"), tmp_path / "run")
    assert nothing_written(tmp_path / "run")


def test_a_label_of_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    images_of(tmp_path / "images", {"all": 12})
    rows = [
        f"all/{i}.png,{'red' if i % 2 else 'blue'},round,{part}" for i, part in enumerate(["train", "val", "test"] * 4)
    ]
    table = tmp_path / "images" / "labels.csv"
    table.write_text("\n".join(["image,colour,form,split", *rows]))
    settings = config(str(table), size="8", **{"data.labels": "colour,form"})
    with pytest.raises(
        ValueError, match=r"Label 'form' has only one class in training; at least two are needed\. Leave"
    ):
        train(settings, tmp_path / "run")
    assert nothing_written(tmp_path / "run")


def test_the_folder_of_another_run(tmp_path: Path) -> None:
    train(config(epochs=1), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(FileExistsError, match=r"already holds another run \(epochs 1 there, 2 here\)"):
        train(config(epochs=2), tmp_path / "run")
    with pytest.raises(FileExistsError, match="already holds the same run, finished"):
        train(config(epochs=1), tmp_path / "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"mine holds other files\. A run needs a new or empty folder"):
        train(config(), tmp_path / "mine")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_full_disk_while_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(SHAPES, **RESTLESS)
    saves = 0

    def full(descriptor: int) -> None:
        nonlocal saves
        saves += 1
        if saves > 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device while saving .*\. What was saved before is intact"):
            train(settings, tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*"))  # no half of a file
    assert Run.open(tmp_path / "run").checkpoint() is not None
    assert_same(resume(tmp_path / "run"), train(settings, tmp_path / "unbroken"))


def test_a_loss_that_is_not_finite_ends_training_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(SHAPES, network="mlp", checkpoint_seconds=0)
    with monkeypatch.context() as patch:
        spoil_step(patch, 5, images=math.nan)  # the second batch of the second epoch
        message = r"The loss is not finite in batch 2 of epoch 2 \(images train/\d+, .*\.\.\.\)"
        with pytest.raises(FloatingPointError, match=message):
            train(settings, tmp_path / "run")
    checkpoint = Run.open(tmp_path / "run").checkpoint()
    assert checkpoint is not None
    assert (checkpoint["epoch"], checkpoint["batch"]) == (1, 1)
    assert all(bool(weight.isfinite().all()) for weight in checkpoint["network"].values())
    assert_same(resume(tmp_path / "run"), train(settings, tmp_path / "unbroken"))


def test_weights_that_are_not_finite_end_training_before_they_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (math.nan, math.inf, -math.inf):
        folder = tmp_path / str(value)
        with monkeypatch.context() as patch:
            # The last of the second epoch: its loss is finite, and no batch of the epoch sees what follows.
            spoil_step(patch, 6, weight=value)
            with pytest.raises(FloatingPointError, match=r"The weights are not finite in epoch 2\."):
                train(config(SHAPES, network="mlp", checkpoint_seconds=0), folder)
        checkpoint = Run.open(folder).checkpoint()
        assert checkpoint is not None
        assert checkpoint["epoch"] == 1
        assert all(bool(weight.isfinite().all()) for weight in checkpoint["network"].values())


def test_data_that_changed_under_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    folder = images_of(tmp_path / "images", {"cat": 20, "dog": 10})
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 1)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            train(config(str(folder), size="8", batch_size=8), tmp_path / "run")
    checkpoint = (tmp_path / "run" / "checkpoint.pt").read_bytes()
    (folder / "cat" / "0.png").unlink()
    with pytest.raises(ValueError, match=r"The data of .*run has changed since the run started: .*fingerprint"):
        resume(tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.pt").read_bytes() == checkpoint
    Image.new("RGB", (8, 8), "red").save(folder / "cat" / "0.png")  # the name is back, with other pixels
    with pytest.raises(ValueError, match=r"started: .*pixels"):
        resume(tmp_path / "run")


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        resume(tmp_path / "nowhere")
