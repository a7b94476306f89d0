"""Schedules under skorch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.base import clone
from skorch import NeuralNetClassifier
from skorch.callbacks import LoadInitState, TrainEndCheckpoint
from torch.utils.data import DataLoader, IterableDataset

from helpers.schedules import BATCH, DATA, IMAGES, TARGETS, Recorder, falling
from rectifier.callbacks.skorch import ProgressCallback

X, Y = IMAGES.numpy(), TARGETS.numpy()


def net(**options: Any) -> NeuralNetClassifier:
    settings: dict[str, Any] = {"criterion": Recorder, "callbacks": [ProgressCallback()], "batch_size": BATCH}
    settings |= {"max_epochs": 2, "train_split": None, "verbose": 0, **options}
    return NeuralNetClassifier(torch.nn.Linear(4, 2), **settings)


def alphas(fitted: NeuralNetClassifier) -> list[float]:
    found: list[float] = fitted.criterion_.alphas
    return found


@pytest.mark.parametrize("callbacks", [[ProgressCallback()], [ProgressCallback], [("progress", ProgressCallback())]])
def test_the_loss_follows_training(callbacks: list[Any]) -> None:
    fitted = net(callbacks=callbacks).fit(X, Y)
    assert alphas(fitted) == falling(i / 10 for i in range(10))


def test_batches_of_validation_do_not_count() -> None:
    fitted = net(train_split=lambda data, y: (data, data), max_epochs=1).fit(X, Y)
    assert alphas(fitted) == falling(i / 5 for i in range(5))


def test_a_loss_in_the_module() -> None:
    class Network(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.auxiliary = Recorder()

    network = Network()
    settings = {"criterion": torch.nn.CrossEntropyLoss, "train_split": None, "verbose": 0}
    NeuralNetClassifier(network, callbacks=[ProgressCallback()], batch_size=BATCH, max_epochs=2, **settings).fit(X, Y)
    assert network.auxiliary.progress.item() == pytest.approx(9 / 10)


def test_a_second_fit_and_a_clone_start_again() -> None:
    expected = falling(i / 10 for i in range(10))
    fitted = net().fit(X, Y)
    assert alphas(fitted.fit(X, Y)) == expected
    assert alphas(clone(fitted).fit(X, Y)) == expected


def test_a_warm_start_goes_on() -> None:
    fitted = net().fit(X, Y)
    fitted.set_params(max_epochs=1)
    alphas(fitted).clear()
    fitted.partial_fit(X, Y)
    assert alphas(fitted) == falling(i / 15 for i in range(10, 15))


@pytest.mark.parametrize("last", [False, True])
def test_a_resumed_training_goes_on_where_it_stopped(last: bool, tmp_path: Path) -> None:
    checkpoint = TrainEndCheckpoint(dirname=str(tmp_path))
    net(callbacks=[checkpoint, ProgressCallback()]).fit(X, Y)
    loading, progress = LoadInitState(checkpoint), ProgressCallback()
    resumed = net(callbacks=[loading, progress] if last else [progress, loading], max_epochs=3).fit(X, Y)
    assert alphas(resumed) == falling(i / 25 for i in range(10, 25))


def test_a_stream_counts_epochs() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(DATA)

    fitted = net(iterator_train=DataLoader).fit(Stream(), None)
    assert alphas(fitted) == falling([0] * 5 + [1 / 2] * 5)


def test_a_net_without_a_schedule() -> None:
    with pytest.raises(ValueError, match=r"Nothing in Linear and CrossEntropyLoss has set_progress.*as the criterion"):
        net(criterion=torch.nn.CrossEntropyLoss).fit(X, Y)
