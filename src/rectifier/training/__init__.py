"""Train networks: from a config to a finished run, or several runs side by side."""

from rectifier.training.job import RunSpec
from rectifier.training.many import train_together
from rectifier.training.opening import data_settings, fingerprints
from rectifier.training.start import BusyError, resume, train

__all__ = ["BusyError", "RunSpec", "data_settings", "fingerprints", "resume", "train", "train_together"]
