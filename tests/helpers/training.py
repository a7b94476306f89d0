"""Shared by the tests of training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rectifier.training.config import Config
from rectifier.training.engine.step_modes import EagerStep
from rectifier.training.run.folder import Run

TRACES = ("weights.safetensors", "history.csv", "labels.csv", "metrics.json", "rules.json", "data.json")


PREDICTIONS = ("predictions/validation.safetensors", "predictions/test.safetensors")


SHAPES = "shapes:samples=96,size=16,ratio=4,labels=shape=3/colour=3,missing=0.1"


def config(data: str = "digits", **settings: Any) -> Config:
    small = {"network": "mlp", "epochs": 3, "batch_size": 32, "tensorboard": False, "accelerator": "cpu"}
    return Config(data).with_settings({**small, **settings})


# Everything that draws or remembers: masks, shifts, momentum, batch statistics, windows of gradients, random mining.
RESTLESS = {
    "network": "resnet32",
    "network.depth": 8,
    "network.dropout": 0.3,
    "padding": 1,
    "flip": True,
    "accumulate": 2,
    "mining": "random",
    "eta": 0.5,
    "checkpoint_seconds": 0,
}


def assert_same(run: Run, other: Run) -> None:
    for name in (*TRACES, *PREDICTIONS):
        assert (run.path / name).read_bytes() == (other.path / name).read_bytes(), name


def spoil_step(
    monkeypatch: pytest.MonkeyPatch, when: int, *, images: float | None = None, weight: float | None = None
) -> None:
    """Let one step see images of one value, or leave a weight of one value."""
    run_step, steps = EagerStep.run, 0

    def spoiled(step: EagerStep, window: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == when and images is not None:
            window[0].images.fill_(images)
        run_step(step, window)
        if steps == when and weight is not None:
            with torch.no_grad():
                next(iter(step.network.parameters())).view(-1)[3] = weight

    monkeypatch.setattr(EagerStep, "run", spoiled)
