"""Progress of training for Lightning."""

from __future__ import annotations

import math
from typing import Any

from rectifier._base.imports import with_extra
from rectifier.callbacks.scheduled import scheduled, tell

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ModuleNotFoundError as error:
    raise with_extra(error, "rectifier.callbacks.lightning") from None


class ProgressCallback(Callback):
    """Call ``set_progress`` before each batch, on every module of the model that has it.

    ``ProgressCallback(loss)`` calls it on a loss that is not an attribute of the model. All batches of one optimizer
    step have the same progress. The share of training that is done follows from the Trainer's ``max_epochs`` and
    ``max_steps``, whichever ends first. Where an epoch has no known length, it changes only from epoch to epoch.

    >>> from lightning.pytorch import Trainer
    >>> trainer = Trainer(max_epochs=10, callbacks=[ProgressCallback()], logger=False, enable_checkpointing=False)
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        self.modules = modules
        self._scheduled: list[Any] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        advice = "Make the loss an attribute of the LightningModule, or pass it: ProgressCallback(loss)."
        self._scheduled = scheduled(self.modules or [pl_module], advice)
        if _unlimited(trainer.max_epochs) and _unlimited(trainer.max_steps):
            raise ValueError("A schedule needs the length of training. Set max_epochs or max_steps of the Trainer.")

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        tell(self._scheduled, max(_by_epochs(trainer, batch_idx), _by_steps(trainer)))


def _by_epochs(trainer: Trainer, batch_idx: int) -> float:
    if _unlimited(trainer.max_epochs):
        return 0.0
    batches, together = trainer.num_training_batches, trainer.accumulate_grad_batches
    steps = math.ceil(batches / together) if math.isfinite(batches) else math.inf
    share: float = (trainer.current_epoch + batch_idx // together / steps) / max(trainer.max_epochs or 1, 1)
    return share


def _by_steps(trainer: Trainer) -> float:
    # With several optimizers, global_step counts the steps of all, and so does max_steps.
    return 0.0 if _unlimited(trainer.max_steps) else trainer.global_step / max(trainer.max_steps, 1)


def _unlimited(limit: int | None) -> bool:
    return limit is None or limit == -1
