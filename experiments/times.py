"""Training times: our seconds next to the paper's hours."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from statistics import median
from typing import TypedDict

from rectifier.reproduce.records import Record
from rectifier.reproduce.result import ExperimentResult
from rectifier.reproduce.views import markdown_table


class RunTime(TypedDict):
    """The time of a run.

    Runs trained side by side start and end together, so ``seconds`` is an equal share of their time. It is None if a
    session was killed before its time was saved.
    """

    seconds: float | None
    together: int  # the largest number of runs that shared the device, including this one
    hardware: str
    commit: str | None


Times = Mapping[str, Mapping[str, RunTime]]
"""Times by name and seed."""

_SHARED, _TWO_COMMITS = ", shared device", ", several commits"


def time_remark(shown: str) -> str:
    """Explain tables of times, and the marks that occur in them."""
    text = (
        "Seconds are from the first step to the scores: the median, with the shortest and the longest in brackets. The"
        " first run of a command also prepares the device, and is often the longest."
    )
    if _SHARED in shown:
        text += (
            " Runs trained side by side share a device and end together, so each has the same share of the group's"
            ' time. A ratio marked "shared device" therefore does not compare methods. `--together 1` trains one run'
            " after"
            " another."
        )
    if _TWO_COMMITS in shown:
        text += (
            ' A ratio marked "several commits" compares runs of different days and code. `--again` measures all of them'
            " again."
        )
    return text


def time_of_record(record: Record) -> RunTime:
    """Return the time of a recorded run."""
    return {name: record[name] for name in RunTime.__annotations__}  # type: ignore[return-value]


def times_of(result: ExperimentResult, rows: Iterable[str], column: str) -> Times:
    """Return the times of all runs of some rows."""
    by_row = {row: result.records.get((row, column), {}) for row in rows}
    return {row: {str(seed): time_of_record(one) for seed, one in own.items()} for row, own in by_row.items()}


def time_ratios(own: Mapping[str, RunTime], base: Mapping[str, RunTime]) -> list[float]:
    """Return the ratio of training times of runs with the same seed and hardware.

    >>> one, two = ({"0": RunTime(seconds=s, together=1, hardware="a GPU", commit="1a2b3c4")} for s in (10.0, 25.0))
    >>> time_ratios(two, one)
    [2.5]
    """
    return [ratio for ratio, _, _ in _compared(own, base)]


def _compared(own: Mapping[str, RunTime], base: Mapping[str, RunTime]) -> list[tuple[float, RunTime, RunTime]]:
    found = []
    for seed, time in own.items():
        other = base.get(seed)
        if other and time["seconds"] and other["seconds"] and time["hardware"] == other["hardware"]:
            found.append((time["seconds"] / other["seconds"], time, other))
    return found


def time_table(times: Times, base: str, hours: Mapping[str, float]) -> str:
    """Return a table of seconds and their ratio to those of ``base``, with the paper's hours and ratio."""
    lines = []
    for name, own in times.items():
        ratios = time_ratios(own, times.get(base, {}))
        marks = _marks(own, times.get(base, {}))
        paper = [f"{hours[name]:g}", f"{hours[name] / hours[base]:.2f}"] if name in hours else ["", ""]
        seconds = [time["seconds"] for time in own.values() if time["seconds"]]
        lines.append([name, _middle(seconds, 1), f"{_most_together(own) or ''}", _middle(ratios, 2) + marks, *paper])
    heads = [
        "method",
        "seconds per run",
        "runs at a time",
        f"ratio to {base}",
        "paper, hours",
        f"paper, ratio to {base}",
    ]
    return markdown_table(heads, lines)


def _marks(own: Mapping[str, RunTime], base: Mapping[str, RunTime]) -> str:
    """Return marks for reasons other than the method that affect a ratio."""
    compared = _compared(own, base)
    shared = any(max(time["together"], other["together"]) > 1 for _, time, other in compared)
    two_commits = any(time["commit"] != other["commit"] for _, time, other in compared)
    return _SHARED * shared + _TWO_COMMITS * two_commits


def _most_together(own: Mapping[str, RunTime]) -> int:
    return max((time["together"] for time in own.values()), default=0)


def _middle(values: Collection[float], digits: int) -> str:
    if not values:
        return ""
    shown = [f"{value:,.{digits}f}" for value in (median(values), min(values), max(values))]
    if len(values) == 1:
        return f"{shown[0]} (one run)"
    return shown[0] if len(set(shown)) == 1 else f"{shown[0]} ({shown[1]} to {shown[2]})"
