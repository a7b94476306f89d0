"""Outcome: what an experiment gave, to be asked for means, gains and the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rectifier.evaluation.scoring import own_rule
from rectifier.report.comparison import difference, estimate
from rectifier.report.comparison.statistics import Difference, Estimate
from rectifier.reproduce.experiment import BALANCED, GROUPS, Cell, Experiment, Where
from rectifier.reproduce.records import Record

ALL = "all"
"""Stands for the rows of a column, in what is chosen for them together."""


@dataclass(frozen=True)
class Outcome:
    """An experiment with the records of its runs.

    Args:
        name: of the experiment.
        records: by cell (its row and column) and seed.
        chosen: the settings that validation chose, by cell.
        found: what the experiment measured beside its runs' scores.
        folder: where results are written, figures too.
        diverged: row, column and seed of runs that have no scores because they diverged.
        superseded: records of settings that the experiment no longer has.
        measured_in: the runs that ``found`` was found in, by their keys.
        measured_apart: those of them of which it was found in another training than the one that is scored.
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

    def values(
        self, cell: Cell, rule: str, label: str | None = None, metric: str = BALANCED
    ) -> dict[str, float | None]:
        """Return a score on test of each seed that is scored, of all labels together or of one."""
        found: dict[str, float | None] = {}
        for seed, record in self.records.get((cell.row, cell.column), {}).items():
            if "test" not in record:
                continue
            scores = record["test"][own_rule(rule, record["preferred_rule"])]
            if metric == GROUPS:
                found[str(seed)] = estimate(scores[GROUPS])["mean"] if label is None else scores[GROUPS].get(label)
            else:
                found[str(seed)] = scores[metric] if label is None else scores["labels"].get(label)
        return found

    def mean_of(self, cell: Cell, rule: str, labels: list[str]) -> dict[str, float | None]:
        """Return the mean score over some labels of each seed."""
        columns = [self.values(cell, rule, label) for label in labels]
        means: dict[str, float | None] = {}
        for seed in columns[0] if columns else ():
            means[seed] = estimate({str(number): column[seed] for number, column in enumerate(columns)})["mean"]
        return means

    def score(self, cell: Cell, rule: str, label: str | None = None, metric: str = BALANCED) -> Estimate:
        """Return the mean over seeds with its interval."""
        return estimate(self.values(cell, rule, label, metric))

    def liking(self, cell: Cell) -> Estimate:
        """Return what validation thinks of a cell, under the rule that it prefers."""
        by_seed = self.records.get((cell.row, cell.column), {})
        return estimate({str(seed): one["liking"] for seed, one in by_seed.items()})

    def gain(self, cell: Cell, rule: str, label: str | None = None, metric: str = BALANCED) -> Difference | None:
        """Return the difference to the cell that this one is counted against, paired by seed."""
        return self._difference(cell, self.base(cell), lambda one: self.values(one, rule, label, metric))

    def gain_over(self, cell: Cell, other: Cell, rule: str, metric: str = BALANCED) -> Difference | None:
        """Return the difference to any other cell, paired by seed."""
        return self._difference(cell, other, lambda one: self.values(one, rule, metric=metric))

    def controls(self, cell: Cell) -> list[Cell]:
        """Return the controls of a cell that hold for what validation has chosen for it."""
        chosen = self.chosen.get((cell.row, cell.column), {})
        own = [one for one in self.experiment.cells if (one.control_of, one.column) == (cell.row, cell.column)]
        return [one for one in own if all(chosen.get(name) == value for name, value in one.control_when.items())]

    def gain_of(self, cell: Cell, rule: str, labels: list[str]) -> Difference | None:
        """Return the difference in the mean over some labels."""
        return self._difference(cell, self.base(cell), lambda one: self.mean_of(one, rule, labels))

    def _difference(
        self, cell: Cell, base: Cell | None, values: Callable[[Cell], dict[str, float | None]]
    ) -> Difference | None:
        if base is None:
            return None
        ours, theirs = values(cell), values(base)
        return difference({seed: ours[seed] for seed in self._of_the_same_data(cell, base) if seed in ours}, theirs)

    def paper_gain(self, cell: Cell, labels: Sequence[str] = ("mean",)) -> float | None:
        """Return the paper's gain in points, the mean over labels, or None where it does not have all of them."""
        base = self.base(cell)
        if base is None or not labels:
            return None
        pairs = [(cell.paper_of(label), base.paper_of(label)) for label in labels]
        known = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
        return sum(known) / len(known) if len(known) == len(pairs) else None

    def _of_the_same_data(self, cell: Cell, base: Cell) -> list[str]:
        """Return the seeds of which both cells have runs of the same images, labels and parts."""
        ours, theirs = (self.records.get((one.row, one.column), {}) for one in (cell, base))
        prints = {seed: record["data"]["fingerprint"] for seed, record in theirs.items()}
        return [str(seed) for seed, record in ours.items() if record["data"]["fingerprint"] == prints.get(seed)]

    def grid(self, where: Where) -> Mapping[str, Sequence[Any]]:
        """Return what validation chose from: for a cell, or for all of a column how they are trained."""
        row, column = where
        return self.experiment.recipe if row == ALL else self.experiment.cell(row, column).choose

    def base(self, cell: Cell) -> Cell | None:
        """Return the cell that this one's gain is counted from."""
        return self.experiment.base(cell)

    def ratios(self) -> dict[str, float]:
        """Return the imbalance ratio of each label, the lowest first, as the first record has them."""
        for by_seed in self.records.values():
            for record in by_seed.values():
                known = {name: value for name, value in record["data"]["ratios"].items() if value is not None}
                return dict(sorted(known.items(), key=lambda item: (item[1], item[0])))
        return {}

    @property
    def all_records(self) -> list[Record]:
        return [record for by_seed in self.records.values() for record in by_seed.values()]
