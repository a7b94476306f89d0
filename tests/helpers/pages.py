"""Shared by the tests of pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers.outcomes import made_outcome
from rectifier.reproduce import Cell, Outcome
from rectifier.reproduce.page import write_page

CELLS = [Cell("ce"), Cell("crl", against="ce")]


def page(outcome: Outcome, quick: bool = False) -> str:
    write_page(outcome, quick)
    return (outcome.folder / "made.md").read_text(encoding="utf-8")


def shown(folder: Path, seeds: int = 3) -> Outcome:
    outcome = made_outcome(CELLS, seeds, folder=folder)
    return replace(outcome, experiment=replace(outcome.experiment, show=lambda _: "\nThe table.\n\n"))
