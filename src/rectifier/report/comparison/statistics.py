"""Means over seeds with Student's 95 % intervals, and differences paired by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from rectifier.report.comparison.result import Difference, Estimate

_LEVEL = 0.95
_NO_SPREAD = 1e-9
_DIGITS = 12  # further digits of a difference of two fractions are rounding, and must not exclude 0


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
    mean, half_width = found["mean"], found["half_width"]
    # If all seeds have the same difference, such as one test sample, there is no spread to judge by.
    spread = half_width is not None and half_width > _NO_SPREAD
    excludes_zero = mean is not None and half_width is not None and spread and abs(mean) > half_width
    return {**found, "seeds": [int(seed) for seed in paired], "excludes_zero": excludes_zero}


def mean_of(values: Iterable[float]) -> float | None:
    """Return the mean, rounded once, or None without values."""
    known = list(values)
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
