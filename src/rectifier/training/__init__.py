"""train: from a config to a finished run, or several side by side."""

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
