"""Schedules under Lightning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from helpers.schedules import BATCH, DATA, Recorder, falling
from rectifier.callbacks.lightning import ProgressCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
]
LOADER: DataLoader[Any] = DataLoader(DATA, BATCH)
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


class Classifier(LightningModule):
    def __init__(self, loss: Any = None) -> None:
        super().__init__()
        self.network = torch.nn.Linear(4, 2)
        self.loss = Recorder() if loss is None else loss

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        loss: Tensor = self.loss(self.network(batch[0]), batch[1])
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class TwoOptimizers(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], _: int) -> None:  # type: ignore[override]
        self.manual_backward(super().training_step(batch, 0))
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([weight], 0.1) for weight in self.parameters()]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(DATA)


def fit(model: Classifier, *modules: Any, loader: Any = LOADER, path: Path | None = None, **options: Any) -> Trainer:
    options = {"enable_checkpointing": False, "callbacks": [ProgressCallback(*modules)], **options}
    trainer = Trainer(**QUIET, **options)
    trainer.fit(model, loader, ckpt_path=path, weights_only=False)
    return trainer


CASES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "epochs": ({"max_epochs": 2}, [i / 10 for i in range(10)]),
    "steps": ({"max_steps": 7}, [i / 7 for i in range(7)]),
    "steps end first": ({"max_steps": 4, "max_epochs": 9}, [i / 4 for i in range(4)]),
    "epochs end first": ({"max_steps": 90, "max_epochs": 1}, [i / 5 for i in range(5)]),
    "fewer batches": ({"max_epochs": 1, "limit_train_batches": 2}, [0, 1 / 2]),
    # Five batches are three steps: two, two, one.
    "accumulation": ({"max_epochs": 2, "accumulate_grad_batches": 2}, [i / 6 for i in (0, 0, 1, 1, 2, 3, 3, 4, 4, 5)]),
    "accumulation, steps": ({"max_steps": 4, "accumulate_grad_batches": 2}, [i / 4 for i in (0, 0, 1, 1, 2, 3, 3)]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_follows_training(case: str) -> None:
    options, shares = CASES[case]
    model = Classifier()
    fit(model, **options)
    assert model.loss.alphas == falling(shares)


@pytest.mark.parametrize("options", [{"max_epochs": 2}, {"max_steps": 20}])  # max_steps counts both optimizers
def test_several_optimizers(options: dict[str, Any]) -> None:
    model = TwoOptimizers()
    fit(model, **options)
    assert model.loss.alphas == falling(i / 10 for i in range(10))


def test_a_stream_counts_epochs() -> None:
    model = Classifier()
    fit(model, loader=DataLoader(Stream(), BATCH), max_epochs=2)
    assert model.loss.alphas == falling([0] * 5 + [1 / 2] * 5)


@pytest.mark.parametrize("batches", [3, 5])  # in the middle of an epoch, and at its end
@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:You.re resuming")
def test_a_resumed_training_goes_on_where_it_stopped(batches: int, tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=batches, filename="{step}", save_top_k=-1)
    options = {"max_epochs": 2, "enable_checkpointing": True, "callbacks": [ProgressCallback(), saving]}
    fit(Classifier(), **options)
    resumed = Classifier()
    fit(resumed, path=tmp_path / f"step={batches}.ckpt", **options)
    assert resumed.loss.alphas == falling(i / 10 for i in range(batches, 10))


def test_a_loss_that_is_not_in_the_model_is_given() -> None:
    loss = Recorder()
    fit(Classifier(lambda *batch: loss(*batch)), loss, max_epochs=1)
    assert loss.alphas == falling(i / 5 for i in range(5))


def test_a_model_without_a_schedule() -> None:
    with pytest.raises(ValueError, match=r"Nothing in Classifier has set_progress.*pass it: ProgressCallback\(loss\)"):
        fit(Classifier(torch.nn.CrossEntropyLoss()), max_epochs=1)


def test_training_without_an_end() -> None:
    with pytest.raises(ValueError, match="Set max_epochs or max_steps of the Trainer"):
        fit(Classifier(), max_epochs=-1)
