"""Experiments that anyone can run again: what is missing is trained, and what came out stands beside the paper's."""

from rectifier.reproduce.experiment import Cell, Context, Experiment, find_experiments, load_experiment
from rectifier.reproduce.result import ExperimentResult
from rectifier.reproduce.work import Request, reproduce

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
