"""Progress of training for the Trainer of Hugging Face."""

from __future__ import annotations

from typing import Any

from rectifier._base.imports import with_extra
from rectifier.callbacks.scheduled import scheduled, tell

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ModuleNotFoundError as error:
    raise with_extra(error, "rectifier.callbacks.huggingface") from None


class ProgressCallback(TrainerCallback):
    """Call ``set_progress`` before each optimizer step, on every module of the model that has it.

    ``ProgressCallback(loss)`` calls it on a loss that is not part of the model, such as one in ``compute_loss_func``.
    All batches of one optimizer step have the same progress.

    >>> from rectifier.losses import RectifiedCrossEntropy
    >>> callback = ProgressCallback(RectifiedCrossEntropy([900, 100], falling=True))
    """

    def __init__(self, *modules: Any) -> None:
        self.modules = modules
        self._scheduled: list[Any] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **others: Any
    ) -> None:
        self._scheduled = scheduled(self.modules or [model], "Pass the loss: ProgressCallback(loss).")

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        tell(self._scheduled, state.global_step / state.max_steps)
