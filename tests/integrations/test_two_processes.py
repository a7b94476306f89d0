"""Two processes train the parameters of one process on the joined batches."""

from __future__ import annotations

import logging
from collections.abc import Callable
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
pytestmark = pytest.mark.xdist_group("two processes")  # which one worker starts, once

LOSSES: dict[str, Callable[[], torch.nn.Module]] = {
    "rectified": lambda: RectifiedCrossEntropy(COUNTS, alpha=0.5, gather=True),
    "rectified, memory": lambda: RectifiedCrossEntropy(COUNTS, alpha=0.5, gather=True, memory=20),
    "focal": FocalLoss,
}
APART = "rectified apart"  # each process mines its own batch
FRAMEWORKS = ("lightning", "accelerate", "huggingface")


def make(name: str) -> torch.nn.Module:
    return RectifiedCrossEntropy(COUNTS, alpha=0.5) if name == APART else LOSSES[name]()


def batches() -> ClassBatchSampler:
    return ClassBatchSampler(Samples().classes, classes=3, samples=2, batches=8)


def loader() -> DataLoader[Any]:
    return DataLoader(Samples(), batch_sampler=batches())


def train(framework: str, name: str) -> Tensor:
    loss = make(name)
    if framework == "lightning":
        return frameworks.lightning(loader(), loss, devices=2, strategy="ddp")
    if framework == "accelerate":
        return frameworks.accelerate(loader(), loss)
    return frameworks.huggingface(loader(), loss)[1]


def train_all() -> dict[tuple[str, str], Tensor]:
    logging.disable(logging.WARNING)
    found = {(framework, name): train(framework, name) for framework in FRAMEWORKS for name in [*LOSSES, APART]}

    def by_items(outputs: Any, labels: Tensor, num_items_in_batch: Tensor) -> Tensor:
        loss: Tensor = FocalLoss(reduction="sum")(outputs["logits"], labels) / num_items_in_batch
        return loss

    return {**found, ("huggingface", "focal, by items"): frameworks.huggingface(loader(), None, by_items)[1]}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], Tensor]]:
    return in_two_processes(train_all, tmp_path_factory.mktemp("processes"))


def one_process(name: str) -> Tensor:
    pairs = batches().plan().view(4, -1)
    data, loss = Samples(), make(name)
    return frameworks.plain([(data.inputs[pair], data.targets[pair]) for pair in pairs], loss)


CASES = [*((framework, name) for framework in FRAMEWORKS for name in LOSSES), ("huggingface", "focal, by items")]


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_two_processes_equal_one(ranks: list[dict[tuple[str, str], Tensor]], case: tuple[str, str]) -> None:
    expected = one_process(case[1].removesuffix(", by items"))
    for rank in ranks:
        torch.testing.assert_close(rank[case], expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_gather_each_process_mines_its_own_batch(
    ranks: list[dict[tuple[str, str], Tensor]], framework: str
) -> None:
    for rank in ranks:
        assert (rank[framework, APART] - one_process("rectified")).abs().max() > 1e-2
    torch.testing.assert_close(ranks[0][framework, APART], ranks[1][framework, APART], rtol=0, atol=0)
