"""What the modules of this room share: configuration that is not state, and schedules over training."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check


def in_training(module: torch.nn.Module) -> bool:
    """Tell whether a loss is called for a step of training: in training mode, with gradients.

    A loss that is not part of the model stays in training mode during validation, where gradients are off.
    """
    return module.training and torch.is_grad_enabled()


class LossModule(torch.nn.Module):
    """A module whose configuration follows ``.to()`` but is not in the state dict.

    So a loaded state never replaces the options of a newly configured loss. State dicts of earlier versions, which did
    contain configuration, still load: these entries are ignored.
    """

    former_state: tuple[str, ...] = ()
    """Configuration that was state in earlier versions, under other names."""

    def configure(self, name: str, value: Tensor | None) -> None:
        """Hold a tensor of the configuration."""
        self.register_buffer(name, value, persistent=False)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in (*self._non_persistent_buffers_set, *self.former_state):
            state_dict.pop(prefix + name, None)
        super()._load_from_state_dict(state_dict, prefix, *others)


class ScheduledModule(LossModule):
    """A module that changes over training. ``set_progress`` tells it how much of training is done.

    ``rectifier.callbacks`` calls it in Lightning, Hugging Face's Trainer and skorch. Without any call, training stays
    at its beginning, and the first batch warns of it.
    """

    progress: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.configure("progress", torch.zeros(()))
        self._told = False

    def set_progress(self, share: float) -> None:
        """Set the share of training that is done, from 0 to 1. It changes a tensor, which a captured step reads."""
        share = float(share)  # a tensor too
        check.raise_all([check.portion("progress", share)])
        self.progress.fill_(share)
        self._told = True

    def warn_if_untold(self, *schedules: str) -> None:
        """Warn once if these options wait for a ``set_progress`` that has not come by the first batch of training."""
        if schedules and in_training(self) and not (self._told or torch.compiler.is_compiling()):
            self._told = True
            warnings.warn(
                f"The loss has a schedule ({', '.join(schedules)}), but set_progress was not called, so it stays"
                " at the beginning of training. Call set_progress(step / steps) before each step, or use"
                " rectifier.callbacks.",
                stacklevel=3,
            )
