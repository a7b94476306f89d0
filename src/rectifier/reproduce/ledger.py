"""Ledger: what is recorded of an experiment's runs, before and now, and the file that it stands in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier._base import files as atomic
from rectifier.reproduce.records import LISTS, Record, placed, read_records, read_results, write_results

Place = tuple[str, str, int]
"""Row, column and seed."""

TRAINED_ANEW, OTHER_DATA = "trained anew", "other data"


class Ledger:
    """The records of an experiment; what was recorded stays in its file, apart from the rest when it is replaced.

    Args:
        path: of the experiment's file; beside it lie those of others, with whom it may share runs.
        quick: whether it is the small version.
        again: whether what was recorded counts as not known.
        scored: whether the experiment's runs are scored on test; else nothing of test is kept.
    """

    def __init__(self, path: Path, *, quick: bool, again: bool, scored: bool = True) -> None:
        self.path, self._scored = path, scored
        recorded = read_records(path.parent, path, quick=quick)
        content = self._content()
        self.found: dict[str, Any] = content.get("found") or {}  # beside scores
        self.measured_in: list[str] = content.get("measured") or []  # the runs that it was found in
        self.measured_apart: list[str] = content.get("measured_apart") or []  # of these, those in a second training
        self._remember(content)
        own, self._replaced = self._split(content)
        known = {} if again else recorded
        if not scored:
            own, known = ({key: _without_test(one) for key, one in each.items()} for each in (own, known))
        self._own, self._known = own, known  # as they were, and with what is new
        self._kept: set[str] = set()
        self._candidates: dict[str, Record] = {}

    def _content(self) -> dict[str, Any]:
        content = read_results(self.path) if self.path.is_file() else {}
        if not content and self.path.is_file():
            check.fail(str(self.path), "the results of an experiment", "another file: put it elsewhere")
        return content

    def _remember(self, content: Mapping[str, Any]) -> None:
        """Note what the file holds, to see later what others have changed."""
        self._read, self._read_found = self._split(content)[0], content.get("found") or {}

    @staticmethod
    def _split(content: Mapping[str, Any]) -> tuple[dict[str, Record], list[Record]]:
        """Return what is recorded by key, and what was replaced."""
        listed = [one for part in LISTS for one in content.get(part, ())]
        own = {one["key"]: one for one in listed if "replaced" not in one}
        return own, [one for one in listed if "replaced" in one]

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Record:
        return self._known[key]

    def recorded(self, key: str) -> Record | None:
        """Return what is recorded of a run, though it may have to be trained anew."""
        return self._known.get(key) or self._own.get(key)

    def knows(self, key: str, scored: bool) -> bool:
        """Say whether a run is recorded; one that was there to be chosen from has no scores."""
        return key in self._known and (not scored or _is_scored(self._known[key]))

    def forget(self, key: str) -> None:
        """Leave a record alone that is of other data, and what was found in that; its file keeps it apart."""
        if key in self.measured_in:
            self.found, self.measured_in, self.measured_apart = {}, [], []
        self._known.pop(key, None)
        self._put_aside(self._own.pop(key, None), OTHER_DATA)

    def keep(self, record: Record, scored: bool) -> None:
        """Record a run that is scored, or one that is there to be chosen from: its test scores are not looked at.

        A run of which only the folder was lost has its record; on a GPU the new one is another run, not a better one.
        """
        key, kept = record["key"], record if scored else _without_test(record)
        if not self.knows(key, scored):
            if (old := self._own.get(key, {})).get("test") != kept.get("test"):
                self._put_aside(old, TRAINED_ANEW)
            self._known[key] = kept
            self._kept.add(key)
        if not scored:
            self._candidates[key] = self._known[key]

    def _put_aside(self, record: Record | None, reason: str) -> None:
        """Keep a record of what was scored on test before."""
        if record and "test" in record:
            self._replaced.append({**record, "replaced": reason})

    def consider(self, keys: Iterable[str]) -> dict[str, Record]:
        """Return what is known of runs that validation chooses from, and list it as such."""
        known = {key: record for key in keys if (record := self.recorded(key))}
        self._candidates |= known
        return known

    def candidates(self) -> int:
        """Count the runs that are recorded without scores on test."""
        return sum(not _is_scored(record) for record in self._own.values())

    def seeds(self) -> set[int]:
        """Return the seeds that are recorded here; others may have more of a run that is shared with them."""
        return {record["seed"] for record in self._own.values()}

    def current(self, keys: Mapping[Place, str]) -> dict[Place, Record]:
        """Return what is recorded of these runs; what is not trained anew yet is what it was."""
        recorded = self._own | self._known
        there = {place: recorded[key] for place, key in keys.items() if key in recorded}
        return {place: record for place, record in there.items() if not self._scored or _is_scored(record)}

    def superseded(self, current: Mapping[Place, Record]) -> list[Record]:
        """Return what was recorded of settings that the experiment no longer has, and what was replaced."""
        keys = {record["key"] for record in current.values()} | set(self._candidates)
        return [*(one for key, one in self._own.items() if key not in keys), *self._replaced]

    @contextmanager
    def open_file(self) -> Iterator[bool]:
        """Keep others from the file until it is written; take up what they have recorded, and say whether they have."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.claimed(self.path.parent, wait=True):
            content = self._content()
            own, replaced = self._split(content)
            new = {key: one for key, one in own.items() if one != self._read.get(key) and key not in self._kept}
            self._own |= new
            self._known |= new
            self._replaced += [one for one in replaced if one not in self._replaced]
            if (content.get("found") or {}) != self._read_found and self.found == self._read_found:
                self.found, self.measured_in = content["found"], content["measured"]
                self.measured_apart = content["measured_apart"]
            yield bool(new)
            self._remember(self._content())

    def write(self, facts: Mapping[str, Any], current: Mapping[Place, Record]) -> int:
        """Write the file: facts, what is current, and apart from it what settings of before had; count the runs."""
        runs: dict[str, Record] = {}
        for (row, column, _), record in current.items():
            runs.setdefault(record["key"], placed(record, row, column))  # two cells may share it
        found = {"found": self.found, "measured": self.measured_in, "measured_apart": self.measured_apart}
        candidates = [one for key, one in self._candidates.items() if key not in runs]
        lists = {"runs": runs.values(), "candidates": candidates, "superseded": self.superseded(current)}
        write_results(self.path, {**facts, **found}, lists)
        return len(runs)


def _is_scored(record: Record) -> bool:
    return "test" in record or "diverged" in record


def _without_test(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "test"}
