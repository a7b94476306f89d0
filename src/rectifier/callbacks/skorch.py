"""Progress of training for skorch."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from rectifier._base.imports import with_extra
from rectifier.callbacks.scheduled import scheduled, tell

try:
    from skorch.callbacks import Callback  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise with_extra(error, "rectifier.callbacks.skorch") from None


class ProgressCallback(Callback):  # type: ignore[misc]
    """Call ``set_progress`` before each batch, on every module of the net that has it: in ``criterion_``, ``module_``.

    Training is as long as the epochs that the history already has, after a checkpoint or a warm start, and
    ``max_epochs`` more. Where an epoch has no known length, the progress changes only from epoch to epoch.

    >>> from skorch import NeuralNetClassifier
    >>> from rectifier.losses import RectifiedCrossEntropy
    >>> loss = RectifiedCrossEntropy([900, 100], falling=True)
    >>> net = NeuralNetClassifier(nn.Linear(4, 2), criterion=loss, callbacks=[ProgressCallback()])
    """

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **others: Any) -> None:  # noqa: N803
        modules = [part for part in vars(net).values() if isinstance(part, nn.Module)]
        advice = "Use a loss with a schedule as the criterion, or leave ProgressCallback out."
        self.scheduled_ = scheduled(modules, advice)
        self.epochs_ = 0

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, **others: Any) -> None:
        self.epoch_, self.batch_ = len(net.history) - 1, 0
        if not self.epochs_:  # only now: another callback may load the history of a checkpoint in on_train_begin
            self.epochs_ = self.epoch_ + net.max_epochs
            self.batches_ = _length(net.get_iterator(dataset_train, training=True))

    def on_batch_begin(self, net: Any, batch: Any = None, training: bool = False, **others: Any) -> None:
        if training:
            tell(self.scheduled_, (self.epoch_ + self.batch_ / self.batches_) / self.epochs_)
            self.batch_ += 1


def _length(batches: Any) -> float:
    try:
        return len(batches)
    except TypeError:  # an iterable data set
        return math.inf
