"""Look into figures that were drawn."""

from __future__ import annotations

from typing import Any

import pytest

GAIN_RULES = ("preferred", "argmax")


def series_of(axis: Any) -> dict[str, Any]:
    """Return what is drawn with intervals, by its name."""
    return {one.get_label(): one for one in axis.containers}


def ends_of(container: Any, along: int = 1) -> list[tuple[float, float]]:
    """Return where each interval begins and ends."""
    (intervals,) = container.lines[2]
    return [(float(ends[0][along]), float(ends[1][along])) for ends in intervals.get_segments()]


def points_aside(axis: Any, part: Any) -> float:
    """Return how far something stands from its values, in points, which has to be as much at every place."""
    moved = part.get_transform().transform((1.0, 1.0)) - axis.transData.transform((1.0, 1.0))
    assert moved[1] == pytest.approx(0)
    return float(moved[0] * 72 / axis.figure.dpi)


def names_in(legend: Any) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]
