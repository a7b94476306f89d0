"""What came out of an experiment: its scores in one long table, and the means, gains and intervals read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from rectifier.report.comparison import PREFERRED, difference, estimate
from rectifier.report.comparison.statistics import Difference, Estimate
from rectifier.reproduce.experiment import BALANCED, GROUPS, Cell, Experiment, Where
from rectifier.reproduce.records import Record

ALL = "all"
"""Stands for all rows of a column where validation chooses settings for the whole column."""

Values = dict[str, float | None]
"""A score by seed; None where it is not defined."""

_KEYS = ["row", "column", "part", "rule", "label", "metric"]
_VALIDATION_SCORE = "validation_score"


@dataclass(frozen=True)
class ExperimentResult:
    """An experiment with the records of its runs.

    Args:
        name: name of the experiment.
        experiment: the experiment.
        records: by cell (its row and column) and seed.
        chosen: the settings that validation chose, by cell.
        found: what the experiment measured in addition to scores.
        folder: where pages and figures are written.
        diverged: row, column and seed of runs without scores because they diverged.
        superseded: records of settings that the experiment no longer has.
        measured_in: keys of the runs that ``found`` was measured in.
        measured_apart: those of them that were measured in another training than the one that is scored.
    """

    name: str
    experiment: Experiment
    records: Mapping[Where, Mapping[int, Record]]
    chosen: Mapping[Where, Mapping[str, Any]]
    found: Mapping[str, Any]
    folder: Path
    diverged: Sequence[tuple[str, str, int]] = ()
    superseded: Sequence[Record] = ()
    measured_in: Sequence[str] = ()
    measured_apart: Sequence[str] = ()

    @cached_property
    def table(self) -> pd.DataFrame:
        """Every score of every run: row, column, seed, part, rule, label, metric, value.

        Columns from ``part`` on mean the same as in ``rows`` of a run: label None stands for all labels together. Rule
        ``preferred`` repeats each run's preferred rule. Part ``train`` holds the imbalance ratio of each label.
        """
        rows = [
            (*where, seed, *entry)
            for where, by_seed in self.records.items()
            for seed, record in by_seed.items()
            for entry in _entries(record)
        ]
        names = ["row", "column", "seed", "part", "rule", "label", "metric", "value"]
        return pd.DataFrame(rows, columns=names, dtype=object).astype({"seed": int, "value": float})

    @cached_property
    def _by_seed(self) -> dict[tuple[str | None, ...], Values]:
        table = self.table
        values: list[float | None] = [None if value != value else value for value in table["value"].tolist()]
        found: dict[tuple[str | None, ...], Values] = {}
        for *key, seed, value in zip(*(table[name].tolist() for name in [*_KEYS, "seed"]), values, strict=True):
            found.setdefault(tuple(key), {})[str(seed)] = value
        return found

    def values(self, cell: Cell, rule: str, label: str | None = None, metric: str = BALANCED) -> Values:
        """Return a test score of each scored seed, of all labels together or of one."""
        return dict(self._by_seed.get((cell.row, cell.column, "test", rule, label, metric), {}))

    def mean_of(self, cell: Cell, rule: str, labels: Sequence[str]) -> Values:
        """Return the mean test score over some labels of each seed."""
        by_label = {label: self.values(cell, rule, label) for label in labels}
        seeds = dict.fromkeys(seed for values in by_label.values() for seed in values)
        return {seed: estimate({name: own.get(seed) for name, own in by_label.items()})["mean"] for seed in seeds}

    def score(self, cell: Cell, rule: str, label: str | None = None, metric: str = BALANCED) -> Estimate:
        """Return the mean test score over seeds with its interval."""
        return estimate(self.values(cell, rule, label, metric))

    def validation_score(self, cell: Cell) -> Estimate:
        """Return the validation score of a cell under the preferred rule."""
        key = (cell.row, cell.column, "validation", PREFERRED, None, _VALIDATION_SCORE)
        return estimate(self._by_seed.get(key, {}))

    def gain(self, cell: Cell, rule: str, label: str | None = None, metric: str = BALANCED) -> Difference | None:
        """Return the difference to the cell that this one is compared against, paired by seed."""
        return self._difference(cell, self.base(cell), lambda one: self.values(one, rule, label, metric))

    def gain_over(self, cell: Cell, other: Cell, rule: str, metric: str = BALANCED) -> Difference | None:
        """Return the difference to any other cell, paired by seed."""
        return self._difference(cell, other, lambda one: self.values(one, rule, metric=metric))

    def gain_of(self, cell: Cell, rule: str, labels: Sequence[str]) -> Difference | None:
        """Return the difference in the mean over some labels."""
        return self._difference(cell, self.base(cell), lambda one: self.mean_of(one, rule, labels))

    def _difference(self, cell: Cell, base: Cell | None, values: Callable[[Cell], Values]) -> Difference | None:
        if base is None:
            return None
        ours, theirs = values(cell), values(base)
        return difference({seed: ours[seed] for seed in self._of_the_same_data(cell, base) if seed in ours}, theirs)

    def _of_the_same_data(self, cell: Cell, base: Cell) -> list[str]:
        """Return the seeds for which both cells have runs on the same images, labels and splits."""
        ours, theirs = (self.records.get((one.row, one.column), {}) for one in (cell, base))
        prints = {seed: record["data"]["fingerprint"] for seed, record in theirs.items()}
        return [str(seed) for seed, record in ours.items() if record["data"]["fingerprint"] == prints.get(seed)]

    def paper_gain(self, cell: Cell, labels: Sequence[str] = ("mean",)) -> float | None:
        """Return the paper's gain in points, the mean over labels, or None where the paper lacks some of them."""
        base = self.base(cell)
        if base is None or not labels:
            return None
        pairs = [(cell.paper_of(label), base.paper_of(label)) for label in labels]
        known = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
        return sum(known) / len(known) if len(known) == len(pairs) else None

    def base(self, cell: Cell) -> Cell | None:
        """Return the cell that this one is compared against."""
        return self.experiment.base(cell)

    def controls(self, cell: Cell) -> list[Cell]:
        """Return the controls of a cell that apply to the settings chosen for it."""
        chosen = self.chosen.get((cell.row, cell.column), {})
        own = [one for one in self.experiment.cells if (one.control_of, one.column) == (cell.row, cell.column)]
        return [one for one in own if all(chosen.get(name) == value for name, value in one.control_when.items())]

    def grid(self, where: Where) -> Mapping[str, Sequence[Any]]:
        """Return the values that validation chose from, for a cell or for all rows of a column."""
        row, column = where
        return self.experiment.recipe if row == ALL else self.experiment.cell(row, column).choose

    def ratios(self) -> dict[str, float]:
        """Return the imbalance ratio of each label in the first run, the lowest first."""
        ratios = self.table[self.table["part"] == "train"]
        first = ratios.drop_duplicates("label").dropna(subset="value").sort_values(["value", "label"])
        return dict(zip(first["label"].tolist(), first["value"].tolist(), strict=True))

    @property
    def all_records(self) -> list[Record]:
        return [record for by_seed in self.records.values() for record in by_seed.values()]


def _entries(record: Record) -> Iterator[tuple[str, str | None, str | None, str, float | None]]:
    """Yield part, rule, label, metric and value of every score in a record."""
    for label, ratio in record["data"]["ratios"].items():
        yield "train", None, label, "ratio", ratio
    yield "validation", PREFERRED, None, _VALIDATION_SCORE, record["liking"]
    for part in ("validation", "test"):
        by_rule = record.get(part, {})
        for rule in [*by_rule, PREFERRED] if by_rule else []:
            scores = by_rule[record["preferred_rule"] if rule == PREFERRED else rule]
            yield from ((part, rule, None, name, scores[name]) for name in scores if name not in ("labels", GROUPS))
            yield from ((part, rule, label, BALANCED, value) for label, value in scores["labels"].items())
            groups = scores.get(GROUPS) or {}
            yield from ((part, rule, label, GROUPS, value) for label, value in groups.items())
            yield part, rule, None, GROUPS, estimate(groups)["mean"]
