"""Which runs can be compared, and which form a group: runs that differ only in their seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rectifier._base import check

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Entry:
    """One finished run.

    ``settings`` is flat and identifies the run, except for seed and machine. ``resplit``: its seed drew the split of
    the data. ``data`` is the run's data.json, ``rows`` its metrics as a long table. ``unused_prior``: its rule prior
    adds nothing, because training already corrects for class frequencies. ``chosen``: the settings that the recipe
    chose, which name no group. ``baselines``: scores on test of models that know nothing of the run, by name.
    """

    folder: str
    settings: dict[str, Any]
    seed: int
    resplit: bool
    data: dict[str, Any]
    rows: DataFrame
    unused_prior: bool = False
    chosen: frozenset[str] = frozenset()
    baselines: Mapping[str, float] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, Any]:
        """The settings without those that the recipe chose."""
        return {key: value for key, value in self.settings.items() if key not in self.chosen}


def check_comparable(entries: Sequence[Entry]) -> None:
    """Refuse unfinished runs, and runs of different data; name two folders."""
    if not entries:
        check.fail("runs", "a list of at least one run", "an empty one")
    for entry in entries:
        if not (entry.rows["part"] == "test").any():
            raise ValueError(f"{entry.folder} has no test metrics. Only finished runs can be compared.")
    redrawn = all(entry.resplit for entry in entries)
    for entry in entries:
        _check_same(entries[0], entry, ("labels",))
        like = next(one for one in entries if one.seed == entry.seed) if redrawn else entries[0]
        _check_same(like, entry, ("split_hash", "fingerprint"))
        if _prepared_alike(like, entry):  # then another mean comes from other pixels
            _check_same(like, entry, ("normalisation",))


def _prepared_alike(one: Entry, other: Entry) -> bool:
    return one.data["shape"] == other.data["shape"] and one.settings.get("network") == other.settings.get("network")


_DATA_WORDS = {"labels": "label space", "split_hash": "split"}


def _check_same(one: Entry, other: Entry, keys: Iterable[str]) -> None:
    for key in keys:
        if one.data[key] != other.data[key]:
            mine, its = map(json.dumps, _first_difference(one.data[key], other.data[key]))
            differs = f"The {_DATA_WORDS.get(key, key)} differs: {mine} in {one.folder}, {its} in {other.folder}."
            raise ValueError(f"Only runs of the same data can be compared. {differs}")


def _first_difference(one: Any, other: Any) -> tuple[Any, Any]:
    """Return the first entries in which two nested values differ: of 1,000 labels, one is worth reading."""
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            return check.amount(len(one), "entry"), check.amount(len(other), "entry")
        pairs = list(zip(one, other, strict=True))
    elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key]) for key in one]
    else:
        return one, other
    return next(_first_difference(a, b) for a, b in pairs if a != b)


@dataclass(frozen=True)
class Group:
    """The runs that differ only in their seed, under one name."""

    name: str
    runs: dict[int, Entry]  # by seed, ascending

    @property
    def settings(self) -> dict[str, Any]:
        return next(iter(self.runs.values())).settings

    def facts(self) -> dict[str, Any]:
        """Return name, settings, seeds and folders (by seed), ready for JSON."""
        folders = {str(seed): run.folder for seed, run in self.runs.items()}
        return {"name": self.name, "settings": dict(self.settings), "seeds": list(self.runs), "folders": folders}


def form_groups(ordered: Iterable[Entry]) -> list[Group]:
    by_settings: dict[str, dict[int, Entry]] = {}
    for entry in ordered:
        runs = by_settings.setdefault(json.dumps(entry.settings, sort_keys=True), {})
        if twin := runs.get(entry.seed):
            raise ValueError(f"{twin.folder} and {entry.folder} have the same settings and the same seed {entry.seed}.")
        runs[entry.seed] = entry
    names = _names([next(iter(runs.values())).asked for runs in by_settings.values()])
    return [Group(name, runs) for name, runs in zip(names, by_settings.values(), strict=True)]


def with_baseline_first(groups: list[Group], baseline: str | None) -> list[Group]:
    if baseline is None:
        return groups  # their order puts ce first
    names = [group.name for group in groups]
    if baseline not in names:  # the method is enough if it has one group
        alike = [group.name for group in groups if group.settings["method"] == baseline]
        baseline = alike[0] if len(alike) == 1 else baseline
    check.raise_all([check.choice("baseline", baseline, names)])
    return sorted(groups, key=lambda group: group.name != baseline)


def order(settings: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a sort key: ce first, other methods by name, then by value, numbers as numbers."""

    def place(value: Any) -> tuple[bool, float, str]:
        is_number = isinstance(value, int | float)
        return not is_number, value if is_number else 0, "" if is_number else json.dumps(value)

    method = settings["method"]
    return method != "ce", method, tuple((key, place(settings[key])) for key in sorted(settings))


def _names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    def worth_naming(key: str) -> bool:
        # A method's options are present only if the user set them.
        values = {json.dumps(own[key]) if key in own else None for own in settings}
        return key.startswith("method.") or (key != "method" and len(values) > 1)

    names: list[str] = []
    for own in settings:
        texts = {key: own[key] if isinstance(own[key], str) else json.dumps(own[key]) for key in sorted(own)}
        listed = ", ".join(f"{key.removeprefix('method.')} {text}" for key, text in texts.items() if worth_naming(key))
        name = f"{own['method']} ({listed})" if listed else str(own["method"])
        names.append(name if name not in names else f"{name} #{len(names) + 1}")
    return names
