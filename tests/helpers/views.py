"""Shared by the tests of views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, ExperimentResult

SHOWN_RULES = (*RULES, "preferred")


class Table(NamedTuple):
    heads: list[str]
    lines: list[list[str]]

    def line(self, *firsts: str) -> list[str]:
        """Return the cells of the one line that begins with these, without them."""
        (found,) = [line[len(firsts) :] for line in self.lines if tuple(line[: len(firsts)]) == firsts]
        return found

    def at(self, row: str, head: str) -> str:
        return self.line(row)[self.heads.index(head) - 1]


def tables_of(page: str) -> list[Table]:
    """Read the tables off a page of Markdown."""
    found: list[Table] = []
    for block in re.findall(r"(?:^\|.*\|$\n?)+", page, re.MULTILINE):
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.strip().splitlines()]
        heads, rule, *lines = rows
        assert all(re.fullmatch(r"-{3,}:?", mark) for mark in rule)
        assert {len(line) for line in rows} == {len(heads)}, "every line has a cell for every head"
        found.append(Table(heads, lines))
    return found


class Number(NamedTuple):
    mean: float
    half: float | None
    bold: bool
    signed: bool


def number(text: str) -> Number:
    """Read a mean with its half-width off a cell."""
    found = re.fullmatch(r"(\*\*)?([+-]?)(\d+\.\d+)(?: ± (\d+\.\d+))?(\*\*)?", text)
    assert found, text
    begin, sign, mean, half, end = found.groups()
    assert begin == end
    value = -float(mean) if sign == "-" else float(mean)
    return Number(value, None if half is None else float(half), begin is not None, bool(sign))


def assert_shows(text: str, found: Mapping[str, Any] | None) -> None:
    """Compare a cell with an estimate or a difference, in percent; only a gain has a sign, and it may be bold."""
    assert found is not None
    shown, is_gain = number(text), "excludes_zero" in found
    assert shown.mean == pytest.approx(100 * found["mean"], abs=0.0501)
    if found["half_width"] is None:
        assert shown.half is None
    else:
        assert shown.half == pytest.approx(100 * found["half_width"], abs=0.0501)
    assert shown.bold == found.get("excludes_zero", False)
    assert shown.signed == is_gain


def assert_shows_gain(text: str, result: ExperimentResult, cell: Cell, rule: str) -> None:
    if cell.against is None:
        assert text == ""
    else:
        assert_shows(text, result.gain(cell, rule))


PAPER = {"hat": 90.0, "hair": 79.0, "beard": 88.0, "bald": 93.0, "mean": 81.0}


METHODS = [
    Cell("DeepID2", paper=PAPER),
    Cell("LMLE", paper={**PAPER, "hat": 99.0, "bald": 90.0, "mean": 84.0}, against="DeepID2"),
    Cell("CRL", paper={"hat": 99.0, "hair": 84.0, "mean": 87.0}, against="DeepID2"),
    Cell("Ours", against="DeepID2"),
]


def group_cell(table: Table, row: str, rule: str, group: str) -> tuple[str, str]:
    """Return ours and the paper's gain of a group."""
    (place,) = [i for i, head in enumerate(table.heads) if head.startswith(f"{group} (")]
    line = table.line(row, rule)
    return line[place - 2], line[place - 1]


CURVE = [
    Cell("CE", paper=73.53),
    Cell("0.5", against="CE"),
    Cell("0.001", paper=75.0, against="CE"),
    Cell("0.01", against="CE"),
]
