"""Experiments that anyone can repeat: train the missing runs and show the results next to the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

if TYPE_CHECKING:
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

_HOMES = imports.homes(
    {
        "reproduce.experiment": ["Cell", "Context", "Experiment", "find_experiments", "load_experiment"],
        "reproduce.request": ["Request"],
        "reproduce.result": ["ExperimentResult"],
        "reproduce.work": ["reproduce"],
    }
)


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
