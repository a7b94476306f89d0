"""Train networks: from a config to a finished run, or several runs side by side."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rectifier.training.job import RunSpec
    from rectifier.training.many import train_together
    from rectifier.training.opening import data_settings, fingerprints
    from rectifier.training.start import BusyError, resume, train

__all__ = ["BusyError", "RunSpec", "data_settings", "fingerprints", "resume", "train", "train_together"]

# A name is imported on first use, so that the command line reads ``settings`` without waiting for torch.
_HOMES = {
    **{"BusyError": "start", "RunSpec": "job", "data_settings": "opening", "fingerprints": "opening"},
    **{"resume": "start", "train": "start", "train_together": "many"},
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'rectifier.training' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
