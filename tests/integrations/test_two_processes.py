"""Two processes train the parameters of one process on the joined batches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from helpers import frameworks
from helpers.frameworks import COUNTS, Samples
from helpers.processes import in_two_processes
from rectifier.losses import FocalLoss, RectifiedCrossEntropy
from rectifier.samplers import ClassBatchSampler

pytest.importorskip("lightning")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

LOSSES: dict[str, Callable[[], torch.nn.Module]] = {
    "rectified": lambda: RectifiedCrossEntropy(COUNTS, alpha=0.5, gather=True),
    "rectified, memory": lambda: RectifiedCrossEntropy(COUNTS, alpha=0.5, gather=True, memory=20),
    "rectified, labels missing": lambda: RectifiedCrossEntropy(COUNTS, alpha=0.5, gather=True),
    "rectified apart": lambda: RectifiedCrossEntropy(COUNTS, alpha=0.5),  # each process mines its own batch
    "focal": FocalLoss,
}
FRAMEWORKS = ("lightning", "accelerate", "huggingface")


def data_of(name: str) -> Samples:
    return Samples(missing=0.4 if "missing" in name else 0.0)


def batches() -> ClassBatchSampler:
    return ClassBatchSampler(Samples().classes, classes=3, samples=2, batches=8)


def train(framework: str, name: str) -> Tensor:
    loss, loader = LOSSES[name](), DataLoader(data_of(name), batch_sampler=batches())
    if framework == "lightning":
        return frameworks.lightning(loader, loss, devices=2, strategy="ddp")
    if framework == "accelerate":
        return frameworks.accelerate(loader, loss)
    return frameworks.huggingface(loader, loss)[1]


def train_with_compute_loss_func() -> Tensor:
    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor) -> Tensor:
        found: Tensor = FocalLoss(reduction="sum")(outputs["logits"], labels) / num_items_in_batch
        return found

    return frameworks.huggingface(DataLoader(Samples(), batch_sampler=batches()), None, loss)[1]


def train_all() -> dict[str, list[Tensor]]:
    """Return the parameters of every loss in each framework."""
    logging.disable(logging.WARNING)
    found = {name: [train(framework, name) for framework in FRAMEWORKS] for name in LOSSES}
    found["focal"].append(train_with_compute_loss_func())
    return found


def one_process(name: str) -> Tensor:
    data, pairs = data_of(name), batches().plan().view(4, -1)
    return frameworks.plain([(data.inputs[pair], data.targets[pair]) for pair in pairs], LOSSES[name]())


def test_two_processes_equal_one(tmp_path: Path) -> None:
    ranks = in_two_processes(train_all, tmp_path)  # one test, so that they start once
    for name in LOSSES:
        expected = one_process(name)
        for found in [*ranks[0][name], *ranks[1][name]]:
            difference = (found - expected).abs().max()
            assert difference > 1e-2 if name == "rectified apart" else difference < 2e-6, name
