"""Means over seeds with Student's 95 % intervals, and differences paired by seed.

All are plain values for JSON: fractions, and None for values that are not defined.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TypedDict

_LEVEL = 0.95
_NO_SPREAD = 1e-9
_DIGITS = 12  # further digits of a difference of two fractions are rounding, and must not exclude 0


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


def estimate(values: dict[str, float | None]) -> Estimate:
    """Return the mean of one value over seeds, with Student's 95 % interval."""
    defined = [value for value in values.values() if value is not None]
    return {"values": values, "mean": mean_of(defined), "half_width": _half_width(defined)}


def difference(values: Mapping[str, float | None], base: Mapping[str, float | None]) -> Difference:
    """Return the mean difference to a baseline, paired by seed, with its interval."""
    paired: dict[str, float | None] = {}
    for seed, value in values.items():
        other = base.get(seed)
        if value is not None and other is not None:
            paired[seed] = round(value - other, _DIGITS)
    found = estimate(paired)
    mean, half_width = found["mean"] or 0.0, found["half_width"] or 0.0
    # If all seeds have the same difference, such as one test sample, there is no spread to judge by.
    excludes_zero = _NO_SPREAD < half_width < abs(mean)
    return {**found, "seeds": [int(seed) for seed in paired], "excludes_zero": excludes_zero}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the defined values, rounded once, or None without any."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _half_width(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return _quantile(len(values) - 1) * math.sqrt(variance / len(values))


@cache
def _quantile(freedom: int) -> float:
    from scipy.stats import t  # type: ignore[import-untyped]  # a second to import, and one run needs none

    return float(t.ppf((1 + _LEVEL) / 2, freedom))
