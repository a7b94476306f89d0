"""Schedules under the Trainer of Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Trainer, TrainingArguments

from helpers.schedules import BATCH, DATA, Recorder, falling
from rectifier.callbacks.huggingface import ProgressCallback

SAMPLES = [{"x": image, "labels": target} for image, target in DATA]


class Classifier(torch.nn.Module):
    def __init__(self, loss: Any) -> None:
        super().__init__()
        self.network = torch.nn.Linear(4, 2)
        self.loss = loss

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(x)
        return {"loss": self.loss(logits, labels), "logits": logits}


def fit(loss: Any, folder: Path, *modules: Any, resume: str | None = None, **options: Any) -> None:
    settings: dict[str, Any] = {"per_device_train_batch_size": BATCH, "use_cpu": True, "disable_tqdm": True}
    settings |= {"save_strategy": "no", "report_to": [], "dataloader_pin_memory": False, **options}
    arguments = TrainingArguments(str(folder), **settings)
    trainer = Trainer(Classifier(loss), arguments, train_dataset=SAMPLES, callbacks=[ProgressCallback(*modules)])
    trainer.train(resume_from_checkpoint=resume and str(folder / resume))


CASES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "epochs": ({"num_train_epochs": 2}, [i / 10 for i in range(10)]),
    "steps": ({"max_steps": 7}, [i / 7 for i in range(7)]),
    # Five batches are three steps: two, two, one.
    "accumulation": (
        {"num_train_epochs": 2, "gradient_accumulation_steps": 2},
        [i / 6 for i in (0, 0, 1, 1, 2, 3, 3, 4, 4, 5)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_follows_training(case: str, tmp_path: Path) -> None:
    options, shares = CASES[case]
    loss = Recorder()
    fit(loss, tmp_path, **options)
    assert loss.alphas == falling(shares)


def test_a_resumed_training_goes_on_where_it_stopped(tmp_path: Path) -> None:
    loss = Recorder()
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 3}
    fit(Recorder(), tmp_path, **options)
    fit(loss, tmp_path, resume="checkpoint-3", **options)
    assert loss.alphas == falling(i / 10 for i in range(3, 10))


def test_a_loss_that_is_not_in_the_model_is_given(tmp_path: Path) -> None:
    loss = Recorder()
    fit(lambda *batch: loss(*batch), tmp_path, loss, num_train_epochs=1)
    assert loss.alphas == falling(i / 5 for i in range(5))


def test_a_model_without_a_schedule(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Nothing in Classifier has set_progress.*Pass the loss: ProgressCallback"):
        fit(torch.nn.CrossEntropyLoss(), tmp_path)
