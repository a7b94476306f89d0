"""Experiments that anyone can repeat: train the missing runs and show the results next to the paper's."""

from rectifier.reproduce.experiment import Cell, Context, Experiment, find_experiments, load_experiment
from rectifier.reproduce.request import Request
from rectifier.reproduce.result import ExperimentResult
from rectifier.reproduce.work import reproduce

__all__ = [
    "Cell",
    "Context",
    "Experiment",
    "ExperimentResult",
    "Request",
    "find_experiments",
    "load_experiment",
    "reproduce",
]
