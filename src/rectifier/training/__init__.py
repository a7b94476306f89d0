"""train: from a config to a finished run, or several side by side."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rectifier.training.job import data_settings, fingerprints, open_for_training, store_folder
    from rectifier.training.start import (
        TOGETHER,
        BusyError,
        Wanted,
        begun_run,
        diverged_at_the_end,
        resume,
        shared_settings,
        train,
        train_together,
        validate_before_training,
        why_not_together,
    )

__all__ = [
    "TOGETHER",
    "BusyError",
    "Wanted",
    "begun_run",
    "data_settings",
    "diverged_at_the_end",
    "fingerprints",
    "open_for_training",
    "resume",
    "shared_settings",
    "store_folder",
    "train",
    "train_together",
    "validate_before_training",
    "why_not_together",
]

_HOMES = dict.fromkeys(__all__, "start") | dict.fromkeys(
    ("data_settings", "fingerprints", "open_for_training", "store_folder"), "job"
)


def __getattr__(name: str) -> object:
    """Import a name on first use: the command line reads ``settings`` without waiting for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rectifier.training' has no attribute {name!r}")
    return getattr(import_module(f"rectifier.training.{_HOMES[name]}"), name)
