"""Which runs may stand beside each other, and which of them are one group: runs that differ in their seed alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from rectifier._base import check
from rectifier.report.comparison.result import GroupFacts


@dataclass(frozen=True)
class Entry:
    """One finished run, as compare sees it.

    ``settings`` are flat and make the run what it is, but for seed and machine; ``resplit`` says that its seed drew the
    data's split anew; ``data`` and ``metrics`` are the run folder's data.json and metrics.json.
    """

    folder: str
    settings: dict[str, Any]
    seed: int
    resplit: bool
    data: dict[str, Any]
    metrics: dict[str, Any]


def check_comparable(entries: Sequence[Entry]) -> None:
    """Refuse runs that are not finished, and runs of unlike data, with the names of two folders."""
    if not entries:
        check.fail("runs to compare", "at least one", "none")
    for entry in entries:
        if not (entry.metrics.get("test") or {}).get("rules"):
            check.fail(f"run {entry.folder}", "finished, with metrics of the test part", "none")
    first_of_seed: dict[int, Entry] = {}
    redrawn = all(entry.resplit for entry in entries)
    for entry in entries:
        _check_same(entries[0], entry, ("labels", "shape"))
        like = first_of_seed.setdefault(entry.seed, entry) if redrawn else entries[0]
        _check_same(like, entry, ("split_hash", "fingerprint", "normalisation"))


_DATA_WORDS = {"labels": "label space", "split_hash": "split"}


def _check_same(one: Entry, other: Entry, keys: Iterable[str]) -> None:
    for key in keys:
        if one.data[key] != other.data[key]:
            _refuse(one, other, _DATA_WORDS.get(key, key), one.data[key], other.data[key])


def _refuse(one: Entry, other: Entry, what: str, mine: object, its: object) -> NoReturn:
    mine, its = _first_difference(mine, its)
    got = f"another {what}: {json.dumps(mine)} in {one.folder}, {json.dumps(its)} in {other.folder}"
    check.fail("runs that are compared", "of the same data", got)


def _first_difference(one: Any, other: Any) -> tuple[Any, Any]:
    """Go down to the first entry in which two nested values differ: of 1,000 labels, one is worth reading."""
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return f"{len(one)} entries", f"{len(other)} entries"
        pairs = list(zip(one, other, strict=True))
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key]) for key in one]
    else:
        return one, other
    return next(_first_difference(a, b) for a, b in pairs if a != b)


@dataclass(frozen=True)
class Group:
    """The runs that differ in their seed alone, under one name."""

    name: str
    runs: dict[int, Entry]  # by seed, ascending

    @property
    def settings(self) -> dict[str, Any]:
        return next(iter(self.runs.values())).settings

    @property
    def method(self) -> str:
        return str(self.settings["method"])

    def facts(self) -> GroupFacts:
        folders = {str(seed): run.folder for seed, run in self.runs.items()}
        return {"name": self.name, "settings": dict(self.settings), "seeds": list(self.runs), "folders": folders}


def form_groups(ordered: Iterable[Entry]) -> list[Group]:
    by_settings: dict[str, dict[int, Entry]] = {}
    for entry in ordered:
        runs = by_settings.setdefault(json.dumps(entry.settings, sort_keys=True), {})
        if twin := runs.get(entry.seed):
            got = f"seed {entry.seed} in both {twin.folder} and {entry.folder}"
            check.fail("runs of the same settings", "of different seeds", got)
        runs[entry.seed] = entry
    names = _names([next(iter(runs.values())).settings for runs in by_settings.values()])
    return [Group(name, runs) for name, runs in zip(names, by_settings.values(), strict=True)]


def with_baseline_first(groups: list[Group], baseline: str | None) -> list[Group]:
    if baseline is None:
        return groups  # their order puts ce first
    names = [group.name for group in groups]
    if baseline not in names:  # the method is enough where it stands for one group
        alike = [group.name for group in groups if group.method == baseline]
        baseline = alike[0] if len(alike) == 1 else baseline
    check.raise_all([check.choice("baseline", baseline, names)])
    return sorted(groups, key=lambda group: group.name != baseline)


def order(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Order settings: ce first, other methods by name, then by value, numbers as numbers."""

    def place(value: Any) -> tuple[bool, float, str]:
        is_number = isinstance(value, int | float)
        return not is_number, value if is_number else 0, "" if is_number else json.dumps(value)

    method = settings["method"]
    return method != "ce", method, tuple((key, place(settings[key])) for key in sorted(settings))


def _names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names: list[str] = []
    for own in settings:
        # A method's options are there only where somebody chose them, and always worth naming.
        telling = [key for key in sorted(own) if key.startswith("method.") or _varies(key, settings)]
        listed = ", ".join(f"{key.removeprefix('method.')} {_text(own[key])}" for key in telling if key != "method")
        name = f"{own['method']} ({listed})" if listed else str(own["method"])
        names.append(name if name not in names else f"{name} #{len(names) + 1}")
    return names


def _varies(key: str, settings: Iterable[Mapping[str, Any]]) -> bool:
    return len({json.dumps(other[key]) if key in other else None for other in settings}) > 1


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
