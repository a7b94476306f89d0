"""Train networks: from a config to a finished run, or several runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

if TYPE_CHECKING:
    from rectifier._base.console import quiet
    from rectifier.training.config import Config
    from rectifier.training.job import RunSpec
    from rectifier.training.many import train_together
    from rectifier.training.opening import data_settings, fingerprints
    from rectifier.training.predict import PredictionTable, predict_images
    from rectifier.training.presets import preset
    from rectifier.training.run.folder import Run
    from rectifier.training.run.results import evaluate
    from rectifier.training.start import BusyError, resume, train

__all__ = [
    "BusyError",
    "Config",
    "PredictionTable",
    "Run",
    "RunSpec",
    "data_settings",
    "evaluate",
    "fingerprints",
    "predict_images",
    "preset",
    "quiet",
    "resume",
    "train",
    "train_together",
]

# A name is imported on first use, so that the command line reads ``settings`` without waiting for torch.
_HOMES = imports.homes(
    {
        "_base.console": ["quiet"],
        "training.config": ["Config"],
        "training.job": ["RunSpec"],
        "training.many": ["train_together"],
        "training.opening": ["data_settings", "fingerprints"],
        "training.predict": ["PredictionTable", "predict_images"],
        "training.presets": ["preset"],
        "training.run.folder": ["Run"],
        "training.run.results": ["evaluate"],
        "training.start": ["BusyError", "resume", "train"],
    }
)


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
