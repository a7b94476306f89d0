"""Samplers in two processes under the Trainer of Hugging Face, with its default settings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from helpers.processes import in_two_processes
from helpers.samplers import CLASSES, EPOCHS, SAMPLERS, loader_of, padding, plans_of

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

# The Trainer fills the last round of batches with the first entries of the epoch: so many.
FILLED = {"over": 4, "progressive": 1, "7 class batches": 1, "quintuplets": 0}


class Samples(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return len(CLASSES)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": torch.tensor([float(i)]), "labels": CLASSES[i]}


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 3)
        self.drawn: list[list[int]] = []

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.drawn.append(x.flatten().long().tolist())
        logits = self.layer(x / len(CLASSES))
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def train(name: str) -> list[list[list[int]]]:
    from transformers import Trainer, TrainingArguments

    class Plain(Trainer):
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return SAMPLERS[name]()

    class Batched(Trainer):
        def get_train_dataloader(self) -> Any:
            loader = loader_of(SAMPLERS[name](), self.train_dataset, collate_fn=self.data_collator)
            return self.accelerator.prepare(loader)

    network = Network()
    options = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": 7, "use_cpu": True, "report_to": []}
    options |= {"save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    with tempfile.TemporaryDirectory() as folder:
        kind = Batched if "batches" in name or name == "quintuplets" else Plain
        kind(network, TrainingArguments(output_dir=folder, **options), train_dataset=Samples()).train()
    steps = len(network.drawn) // EPOCHS
    return [network.drawn[start : start + steps] for start in range(0, len(network.drawn), steps)]


def run_trainer() -> dict[str, list[list[list[int]]]]:
    return {name: train(name) for name in FILLED}


def test_two_ranks_draw_the_plan_of_each_epoch(tmp_path: Path) -> None:
    ranks = in_two_processes(run_trainer, tmp_path)
    for name, filled in FILLED.items():
        plans = plans_of(SAMPLERS[name]())
        assert padding([rank[name] for rank in ranks], plans) == [sorted(plan[:filled]) for plan in plans], name
