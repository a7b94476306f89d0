"""Reports for people: comparisons of runs, profiles of data, tables and figures; the paper's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

if TYPE_CHECKING:
    from rectifier.report.comparison import ComparisonResult, compare_runs

__all__ = ["ComparisonResult", "compare_runs"]

# A name is imported on first use: the command line imports tables and figures without what comparisons need.
_HOMES = imports.homes({"report.comparison": ["ComparisonResult", "compare_runs"]})


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
