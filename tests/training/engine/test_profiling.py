"""A profile says where time goes, and leaves training as it is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric

from rectifier.data import Loader, open_data
from rectifier.methods import build_objective
from rectifier.networks.registry import build_network
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.engine.options import Options
from rectifier.training.engine.profiling import STEPS, describe, profile_step

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["ce", "crl", "crl-instance-relative"])
@pytest.mark.parametrize("batch", [16, 209])  # many batches an epoch, and one
def test_every_part_of_a_step_is_timed(method: str, device: str, batch: int) -> None:
    data = open_data("digits")
    fabric = Fabric(accelerator=device, devices=1)
    network = build_network("resnet32", data.space, (8, 8, 1), seed=0, depth=8).to(fabric.device)
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    objective = build_objective(method, data.counts("train"), data.space).to(fabric.device)
    loader = Loader(data, "train", batch, shuffle=True, device=fabric.device)
    found = profile_step(fabric, network, objective, loader, Options())
    assert tuple(found) == ("data", "network", "cross-entropy", "rectification", "optimizer")
    assert all(found[name] > 0 for name in ("data", "network", "cross-entropy", "optimizer"))
    assert found["network"] > found["optimizer"]
    if method != "ce":
        assert found["rectification"] > 0
    assert loader.epoch == 0
    assert all(torch.equal(before[name], weight) for name, weight in network.state_dict().items())
    assert "100 %" in describe({"data": 1.0})


def test_training_is_the_same_with_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Config("digits").with_settings(
        {"network": "mlp", "network.dropout": 0.3, "epochs": 2, "tensorboard": False, "accelerator": "cpu"}
    )
    plain = train(config, tmp_path / "plain")
    assert "Time of a step, waiting after each part" not in capsys.readouterr().err
    profiled = train(config, tmp_path / "profiled", profile=True)
    assert "Time of a step, waiting after each part" in capsys.readouterr().err
    assert (plain.path / "weights.safetensors").read_bytes() == (profiled.path / "weights.safetensors").read_bytes()


def test_no_part_is_timed_while_things_are_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of one batch is gone through often enough to leave the first steps out."""
    data, fabric = open_data("digits"), Fabric(accelerator="cpu", devices=1)
    network = build_network("mlp", data.space, (8, 8, 1), seed=0)
    steps = 0

    def forward(network: Any, images: Any) -> Any:
        nonlocal steps
        steps += 1
        time.sleep(0.2 if steps <= 2 else 0)
        return plain(network, images)

    plain = type(network).forward
    monkeypatch.setattr(type(network), "forward", forward)
    loader = Loader(data, "train", 209, shuffle=True)
    objective = build_objective("ce", data.counts("train"), data.space)
    assert profile_step(fabric, network, objective, loader, Options())["network"] < 0.2
    assert steps == STEPS + 3
