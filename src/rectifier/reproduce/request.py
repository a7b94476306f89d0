"""Request: how an experiment is run, and which of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.reproduce.experiment import Cell, Experiment


@dataclass(frozen=True)
class Request:
    """How an experiment is run.

    Args:
        results: the folder of ``NAME.json``, ``NAME.md`` and figures.
        runs: the folder that runs are trained in.
        settings: settings of every run, such as ``data_root``.
        seeds: number of seeds of each cell; None: as many as the experiment asks for.
        quick: run the small version.
        again: retrain what is recorded already.
        together: number of runs side by side on one GPU.
        train: train missing runs; if False, only show recorded ones.
        only: train only cells whose row or column contains one of these texts; show recorded runs of the others.
        experiments: the folder of the experiments, if it is not the default.
    """

    results: Path
    runs: Path
    settings: Mapping[str, Any]
    seeds: int | None = None
    quick: bool = False
    again: bool = False
    together: int | None = None
    train: bool = True
    only: Sequence[str] = ()
    experiments: Path | None = None


def only_what_each_has(experiments: Mapping[str, Experiment], only: Sequence[str]) -> dict[str, list[str]]:
    """Return for each experiment the texts of ``only`` that its rows or columns contain; each text must occur."""
    cells = {name: experiment.cells for name, experiment in experiments.items()}
    found = {name: [text for text in only if with_text(own, text)] for name, own in cells.items()}
    there = dict.fromkeys(part for own in cells.values() for cell in own for part in (cell.row, cell.column) if part)
    for text in only:
        if not text or not any(text in texts for texts in found.values()):
            listed = ", ".join(there) or "there are none"
            check.fail("only", f"text that occurs in a row or column name ({listed})", repr(text))
    return found


def with_text(cells: Sequence[Cell], text: str) -> list[Cell]:
    """Return the cells whose row or column is this text or, where there are none, contains it."""
    names = [(cell, cell.row.lower(), cell.column.lower()) for cell in cells]
    exact = [cell for cell, *own in names if text.lower() in own]
    return exact or [cell for cell, *own in names if any(text.lower() in name for name in own)]
