"""Numbers by seed as text: means with 95 % intervals, in percent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def by_seed(results: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, float | None]:
    """Return one number of each seed."""
    return {seed: own[key] for seed, own in results.items()}


def percent(found: Any, sign: str = "") -> str:
    """Return an estimate or a difference of fractions in percent. The sign "+" also shows that of a gain.

    >>> percent({"mean": 0.015, "half_width": 0.004}, "+")
    '+1.5 ± 0.4'
    """
    if found["mean"] is None:
        return "?"
    half = "" if found["half_width"] is None else f" ± {100 * found['half_width']:.1f}"
    return f"{100 * found['mean']:{sign}.1f}{half}"
