"""Shared by the tests of pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers.results import made_result
from rectifier.reproduce import Cell, ExperimentResult
from rectifier.reproduce.page import write_page

CELLS = [Cell("ce"), Cell("crl", against="ce")]


def page(result: ExperimentResult, quick: bool = False) -> str:
    write_page(result, quick)
    return (result.folder / "made.md").read_text(encoding="utf-8")


def shown(folder: Path, seeds: int = 3) -> ExperimentResult:
    result = made_result(CELLS, seeds, folder=folder)
    return replace(result, experiment=replace(result.experiment, show=lambda _: "\nThe table.\n\n"))
