"""Estimates of one quantity, as plain values for JSON: fractions, and None for values that are not defined."""

from __future__ import annotations

from typing import TypedDict


class Estimate(TypedDict):
    """A value for every seed, their mean, and the half-width of its interval (None with fewer than two values)."""

    values: dict[str, float | None]
    mean: float | None
    half_width: float | None


class Difference(Estimate):
    """The difference to the baseline, seed by seed, over the ``seeds`` where both have a value."""

    seeds: list[int]
    excludes_zero: bool


class Result(TypedDict):
    """One quantity of every group, and the differences of all groups but the baseline."""

    groups: dict[str, Estimate]
    differences: dict[str, Difference]


class Bin(Result):
    """The mean over some labels or classes; ``low`` and ``high`` bound their imbalance ratio or training count."""

    members: list[str]
    low: float | None
    high: float | None
