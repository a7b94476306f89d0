"""The records of one experiment: the published file ``NAME.json``, and one file for each run recorded since.

Each file is written atomically, and processes that work on one experiment write different files. ``NAME.json`` is
rebuilt from its own content and these files, so no lock is needed and no record is lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rectifier._base.files import read_json, write_json
from rectifier.reproduce.records import LISTS, Record, is_record, placed, read_records, read_results, write_results

Place = tuple[str, str, int]
"""Row, column and seed."""

RETRAINED, OTHER_DATA = "trained anew", "other data"
"""Why a record was replaced, as it is stored."""

_MEASURED = ("found", "measured", "measured_apart")


class RecordStore:
    """The current and earlier records of an experiment's runs.

    Args:
        path: the experiment's ``NAME.json``. Other experiments in its folder may share runs with it.
        folder: the folder with one file for each new record.
        quick: whether this is the small version.
        again: treat runs that were recorded before as unknown.
        scored: keep test scores.
    """

    def __init__(self, path: Path, folder: Path, *, quick: bool, again: bool, scored: bool = True) -> None:
        self.path, self._folder, self._again, self._scored = path, folder, again, scored
        others = read_records(path.parent, path, quick=quick)
        self._new: set[str] = set()  # keys recorded by this command
        self._candidates: dict[str, None] = {}
        self._measured: list[Any] | None = None  # by this command, as named by _MEASURED
        self._own: dict[str, Record] = {}
        self.read()
        lacking = {} if again else {key: one for key, one in others.items() if "test" not in self._own.get(key, ())}
        self._shared = {key: self._kept_of(one) for key, one in lacking.items()}

    def _kept_of(self, record: Record) -> Record:
        return record if self._scored else without_test(record)

    def read(self) -> bool:
        """Read all records, and return whether another process added or replaced any."""
        content = read_results(self.path) if self.path.is_file() else {}
        if not content and self.path.is_file():
            raise ValueError(f"{self.path} is not the result of an experiment. Move it elsewhere.")
        self._files = self._names()
        before, (self._own, self._replaced) = self._own, _merged(content, [_read_file(path) for path in self._files])
        self._own = {key: self._kept_of(one) for key, one in self._own.items()}
        found, measured, apart = self._measured or [content.get(name) for name in _MEASURED]
        self.found: dict[str, Any] = found or {}  # in addition to scores
        self.measured_in: list[str] = measured or []  # the runs that it was measured in
        self.measured_apart: list[str] = apart or []  # those of them that were trained a second time for it
        return any(_mark(one) != _mark(before.get(key, {})) for key, one in self._own.items())

    def _names(self) -> list[Path]:
        return sorted(self._folder.glob("*.json"))

    def get(self, key: str) -> Record | None:
        """Return the record of a run, by this experiment or another one; a scored record is preferred."""
        own, shared = self._own.get(key), self._shared.get(key)
        return shared if shared and (own is None or ("test" in shared and "test" not in own)) else own

    def knows(self, key: str, scored: bool = False) -> bool:
        """Return whether a run is recorded, with test scores if it must be ``scored``."""
        record = None if self._again and key not in self._new else self.get(key)
        return record is not None and (not scored or _is_scored(record))

    def keep(self, record: Record, scored: bool) -> None:
        """Record a run, without test scores if it is a candidate (not ``scored``).

        A recorded run whose folder was lost keeps its record: on a GPU, a second training differs and is not better.
        """
        key, kept = record["key"], record if scored else without_test(record)
        if not self.knows(key, scored):
            self._write_file(kept, None)
            self._own[key] = kept
            self._new.add(key)
        if not scored:
            self._candidates[key] = None

    def forget(self, key: str) -> None:
        """Set aside a record of other data, and drop what was measured in that run."""
        if key in self.measured_in:
            self.measure({}, [], [])
        if own := self._own.pop(key, None):
            self._write_file(own, OTHER_DATA)
        self._shared.pop(key, None)

    def measure(self, found: dict[str, Any], keys: list[str], apart: list[str]) -> None:
        """Set what was measured, the keys of the runs, and those measured in another training than the scored one."""
        self._measured = [found, keys, apart]
        self.found, self.measured_in, self.measured_apart = found, keys, apart

    def _write_file(self, record: Record, replaced: str | None) -> None:
        """Write a record to its own file: as the current one, or as one that was replaced for a reason."""
        known = [one for one in (self._own.get(record["key"]), *self._files_of(record["key"])) if one]
        marks = sorted({_mark(one) for one in known} - {_mark(record)})
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {"record": record, "replaces": [] if replaced else marks, "replaced": replaced}
        write_json(self._folder / f"{record['key']}-{_mark(record)}.json", content)

    def _files_of(self, key: str) -> list[Record]:
        return [_read_file(path)["record"] for path in self._folder.glob(f"{key}-*.json")]

    def candidate(self, key: str) -> Record | None:
        """Return the record of a run that validation chooses from, and list it as a candidate."""
        record = self.get(key)
        if record:
            self._candidates[key] = None
        return record

    def unscored(self) -> int:
        """Return the number of runs recorded without test scores."""
        return sum(not _is_scored(record) for record in self._own.values())

    def seeds(self) -> set[int]:
        """Return the seeds that this experiment recorded; experiments that share its runs may have more."""
        return {record["seed"] for record in self._own.values()}

    def current(self, keys: Mapping[Place, str]) -> dict[Place, Record]:
        """Return the records of these runs; a run that is not retrained yet has its old record."""
        there = {place: record for place, key in keys.items() if (record := self.get(key))}
        return {place: record for place, record in there.items() if not self._scored or _is_scored(record)}

    def superseded(self, current: Mapping[Place, Record]) -> list[Record]:
        """Return the records of settings that the experiment no longer has, and replaced records."""
        keys = {record["key"] for record in current.values()} | set(self._candidates)
        return [*(one for key, one in self._own.items() if key not in keys), *self._replaced]

    def write(self, facts: Mapping[str, Any], current: Mapping[Place, Record]) -> bool:
        """Write ``NAME.json``; return False if another process added a record since the last ``read``."""
        runs: dict[str, Record] = {}
        for (row, column, _), record in current.items():
            runs.setdefault(record["key"], placed(record, row, column))  # two cells may share it
        candidates = [one for key in self._candidates if key not in runs and (one := self.get(key))]
        lists = {"runs": runs.values(), "candidates": candidates, "superseded": self.superseded(current)}
        measured = dict(zip(_MEASURED, (self.found, self.measured_in, self.measured_apart), strict=True))
        write_results(self.path, {**facts, **measured}, lists)
        return self._names() == self._files


def _merged(content: Mapping[str, Any], files: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Record], list[Record]]:
    """Return the current record of each key, and the replaced records.

    A file names the versions of a record that it replaces. If several versions are left, the published one is current.
    """
    listed = [one for part in LISTS for one in content.get(part, ())]
    published = {one["key"]: one for one in listed if "replaced" not in one}
    replaced = [one for one in listed if "replaced" in one]
    versions = [(file["record"], file["replaced"]) for file in files] + [(one, None) for one in published.values()]
    gone = {_mark(record) for record, reason in versions if reason}
    gone |= {mark for file in files if not file["replaced"] for mark in file["replaces"]}
    own = {key: one for key, one in published.items() if _mark(one) not in gone}
    own |= {one["key"]: one for one, _ in versions if one["key"] not in own and _mark(one) not in gone}
    for record, reason in versions:  # except those retrained to the same scores
        seen = [one for one in replaced if one["key"] == record["key"]] + [own.get(record["key"], {})] * (not reason)
        if "test" in record and record["test"] not in [one.get("test") for one in seen]:
            replaced.append({**record, "replaced": reason or RETRAINED})
    return own, replaced


def _read_file(path: Path) -> dict[str, Any]:
    content = {"replaces": [], "replaced": None, **(found if isinstance(found := read_json(path), dict) else {})}
    if not is_record(content.get("record")):
        raise ValueError(f"{path} is not a run record. Move it elsewhere.")
    return content


def _mark(record: Mapping[str, Any]) -> str:
    """Return a hash that identifies a version of a record, whichever list it is in."""
    content = {name: value for name, value in record.items() if name not in ("row", "column", "replaced")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _is_scored(record: Record) -> bool:
    return "test" in record or "diverged" in record


def without_test(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "test"}
