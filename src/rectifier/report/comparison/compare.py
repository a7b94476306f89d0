"""Compare finished runs: groups of seeds, their means with intervals, and paired differences to a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rectifier.evaluation.metrics.catalogue import COMPARED_METRICS
from rectifier.evaluation.rows import preferred_rule
from rectifier.evaluation.scoring import COMPARED, PREFERRED
from rectifier.report.comparison.groups import Entry, Group, check_comparable, form_groups, order, with_baseline_first
from rectifier.report.comparison.result import Bin, Result
from rectifier.report.comparison.statistics import difference, estimate, mean_of
from rectifier.report.profile.counts import imbalance_of, worst_first
from rectifier.training.run.folder import Run
from rectifier.training.run.results import rows

if TYPE_CHECKING:
    from pandas import DataFrame

BINS = 20
"""More labels or classes than this are also averaged in this many bins, ordered by imbalance or size."""

BALANCED = "class_balanced_accuracy"
_KEYS = ["rule", "part", "metric", "label", "class"]


def compare_runs(runs: Sequence[Run | str | Path], baseline: str | None = None) -> ComparisonResult:
    """Compare finished runs of the same data: see ``compare_entries``."""
    return compare_entries([_entry(Run.open(run)) for run in runs], baseline)


def _entry(run: Run) -> Entry:
    config = run.config
    return Entry(str(run.path), config.identity(), config.seed, config.resplit, run.data, rows(run))


def compare_entries(entries: Iterable[Entry], baseline: str | None = None) -> ComparisonResult:
    """Compare runs of the same data. Runs that differ only in their seed form a group.

    ``baseline`` names a group, or a method with a single group. By default it is the group of method ``ce``, or the
    first group. Runs of different data are refused.

    >>> from rectifier.evaluation.rows import as_rows
    >>> data = {"name": "pets", "fingerprint": "f", "split_hash": "s", "shape": [8, 8, 1], "normalisation": {},
    ...         "samples": {"test": 4}, "labels": [{"name": "kind", "classes": ["cat", "dog"]}],
    ...         "counts": {part: {"kind": {"cat": 9, "dog": 3}} for part in ("train", "test")}}
    >>> def run(method, seed, value):
    ...     rows = as_rows([("test", "argmax", None, None, "accuracy", value)])
    ...     return Entry(f"{method}{seed}", {"method": method}, seed, False, data, rows)
    >>> result = compare_entries([run("ce", 0, 0.5), run("ce", 1, 0.6), run("crl", 0, 0.7), run("crl", 1, 0.75)])
    >>> difference = result.overall("argmax", "accuracy")["differences"]["crl"]
    >>> difference["values"], round(difference["mean"], 3), round(difference["half_width"], 3)
    ({'0': 0.2, '1': 0.15}, 0.175, 0.318)
    """
    from pandas import concat

    ordered = sorted(entries, key=lambda entry: (order(entry.settings), entry.seed, entry.folder))
    check_comparable(ordered)
    groups = with_baseline_first(form_groups(ordered), baseline)
    found = [_run_rows(run, group.name) for group in groups for run in group.runs.values()]
    return ComparisonResult(
        ordered[0].data["name"],
        dict(ordered[0].data["samples"]),
        all(entry.resplit for entry in ordered),
        groups,
        _label_facts(ordered),
        concat(found, ignore_index=True),
    )


def _run_rows(run: Entry, group: str) -> DataFrame:
    """Return the rows of a run, those of its preferred rule once more under that name, with run, group and seed."""
    from pandas import concat

    own = run.rows[run.rows["rule"] == (preferred_rule(run.rows) or "argmax")]
    every = concat([run.rows, own[own["part"].notna()].assign(rule=PREFERRED)])
    return every.assign(run=run.folder, group=group, seed=run.seed)


@dataclass(frozen=True)
class ComparisonResult:
    """Compared runs. The first group is the baseline; the most imbalanced label comes first.

    ``rows`` is the long table of all runs: run, group and seed in addition to the columns of ``evaluation.rows``. The
    rule ``preferred`` is the one that validation prefers, run by run. Methods return the estimates of one quantity;
    ``as_dict`` returns all of them, ready for JSON. Values are fractions, on test unless said otherwise.
    """

    data: str
    samples: dict[str, int]
    resplit: bool
    groups: list[Group]
    labels: list[dict[str, Any]]
    rows: DataFrame

    @property
    def baseline(self) -> str:
        return self.groups[0].name

    @property
    def others(self) -> list[str]:
        """The names of all groups but the baseline."""
        return [group.name for group in self.groups[1:]]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for group in self.groups for seed in group.runs})

    def overall(self, rule: str, metric: str, part: str = "test") -> Result:
        """Return a metric over all labels; ``rarest`` is the mean recall of the rarest class of each label."""
        if metric == "rarest":
            rarest = [self._recall(rule, label["name"], label["rarest"]) for label in self.labels if label["rarest"]]
            return self._result(self._mean(rarest))
        return self._result(self._values(rule, part, metric))

    def label(self, rule: str, name: str) -> Result:
        """Return the class-balanced accuracy of one label."""
        return self._result(self._values(rule, "test", BALANCED, name))

    def recall(self, rule: str, label: str, name: str) -> Result:
        """Return the recall of one class."""
        return self._result(self._recall(rule, label, name))

    def rarest(self, rule: str, label: Mapping[str, Any]) -> Result | None:
        """Return the recall of the rarest class of a label, or None if no class has training and test samples."""
        return None if label["rarest"] is None else self.recall(rule, label["name"], label["rarest"])

    def halves(self, rule: str) -> list[Bin]:
        """Return the least and the most imbalanced half of several labels, as the paper does."""
        return self._bins(self._labels_by_imbalance(rule), 2) if len(self.labels) > 1 else []

    def label_bins(self, rule: str) -> list[Bin]:
        """Return bins of labels, by increasing imbalance ratio; none for up to ``BINS`` labels."""
        return self._bins(self._labels_by_imbalance(rule), BINS) if len(self.labels) > BINS else []

    def class_bins(self, rule: str) -> list[Bin]:
        """Return bins of classes, by increasing training count; none for up to ``BINS`` classes."""
        classes = [(one["name"], name, n) for one in self.labels for name, n in one["counts"].items() if n]
        classes.sort(key=lambda found: found[2])
        members = [(f"{label}: {name}", n, self._recall(rule, label, name)) for label, name, n in classes]
        return self._bins(members, BINS) if len(members) > BINS else []

    def as_dict(self) -> dict[str, Any]:
        """Return everything as nested dictionaries: what ``rectifier compare --json`` prints."""
        return {
            "data": self.data,
            "samples": self.samples,
            "resplit": self.resplit,
            "seeds": self.seeds,
            "baseline": self.baseline,
            "groups": [group.facts() for group in self.groups],
            "labels": self.labels,
            "rules": {rule: self._rule_dict(rule) for rule in COMPARED},
        }

    def _rule_dict(self, rule: str) -> dict[str, Any]:
        return {
            "test": {metric: self.overall(rule, metric) for metric in COMPARED_METRICS},
            "validation": {BALANCED: self.overall(rule, BALANCED, "validation")},
            "labels": {
                label["name"]: {
                    BALANCED: self.label(rule, label["name"]),
                    "rarest": self.rarest(rule, label),
                    "classes": {name: self.recall(rule, label["name"], name) for name in label["counts"]},
                }
                for label in self.labels
            },
            "halves": self.halves(rule),
            "label_bins": self.label_bins(rule),
            "class_bins": self.class_bins(rule),
        }

    @cached_property
    def _runs(self) -> list[tuple[str, int]]:
        return [(group.name, seed) for group in self.groups for seed in group.runs]

    @cached_property
    def _by_quantity(self) -> dict[tuple[str, ...], list[float]]:
        """One value per run for every quantity: by rule, part and metric, then by label, then by class."""
        found: dict[tuple[str, ...], list[float]] = {}
        compared = self.rows[self.rows["metric"].isin([*COMPARED_METRICS, "sensitivity"])]
        level = compared["label"].notna().astype(int) + compared["class"].notna().astype(int)
        for depth in sorted(level.unique()):
            own = compared[level == depth]
            wide = own.pivot(index=_KEYS[: 3 + depth], columns=["group", "seed"], values="value")
            found |= dict(zip(wide.index, wide.reindex(columns=self._runs).to_numpy().tolist(), strict=True))
        return found

    def _values(self, *key: str) -> list[float]:
        return self._by_quantity.get(key, [nan] * len(self._runs))

    def _recall(self, rule: str, label: str, name: str) -> list[float]:
        return self._values(rule, "test", "sensitivity", label, name)

    def _mean(self, quantities: Sequence[list[float]]) -> list[float]:
        """Return the mean of several quantities for each run, over those that are defined."""
        by_run = zip(*quantities, strict=True) if quantities else [()] * len(self._runs)
        means = [mean_of(value for value in values if value == value) for values in by_run]  # NaN differs from itself
        return [nan if mean is None else mean for mean in means]

    def _result(self, values: Sequence[float]) -> Result:
        by_group: dict[str, dict[str, float | None]] = {}
        for (group, seed), value in zip(self._runs, values, strict=True):
            by_group.setdefault(group, {})[str(seed)] = value if value == value else None
        base = by_group[self.baseline]
        return {
            "groups": {name: estimate(own) for name, own in by_group.items()},
            "differences": {name: difference(by_group[name], base) for name in self.others},
        }

    def _labels_by_imbalance(self, rule: str) -> list[_Member]:
        labels = [(label["name"], label["ratio_nonempty"]) for label in reversed(self.labels)]
        return [(name, ratio, self._values(rule, "test", BALANCED, name)) for name, ratio in labels]

    def _bins(self, members: Sequence[_Member], count: int) -> list[Bin]:
        edges = [len(members) * k // count for k in range(count + 1)]
        return [self._bin(members[low:high]) for low, high in pairwise(edges)]

    def _bin(self, members: Sequence[_Member]) -> Bin:
        measures = [measure for _, measure, _ in members if measure is not None]
        return {
            "members": [name for name, _, _ in members],
            "low": min(measures, default=None),
            "high": max(measures, default=None),
            **self._result(self._mean([values for _, _, values in members])),
        }


_Member = tuple[str, float | None, list[float]]
"""The name of a label or class, its imbalance or size, and its value in every run."""


def _label_facts(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Return name, training counts, imbalance and rarest class of each label, the most imbalanced first.

    Where seeds drew several splits, counts are means over them. The rarest class has the fewest training samples among
    the classes with training and test samples.
    """
    splits = list({entry.data["split_hash"]: entry.data["counts"] for entry in entries}.values())
    facts: dict[str, Any] = {}
    for name in splits[0]["train"]:
        train, test = (_mean_counts([split[part][name] for split in splits]) for part in ("train", "test"))
        candidates = [member for member, n in train.items() if n and test[member]]
        found = imbalance_of(train)
        facts[name] = {
            "name": name,
            "counts": train,
            "ratio": found["ratio"],
            "ratio_nonempty": found["ratio_nonempty"],
            "omega": found["omega"],
            "rarest": min(candidates, key=train.__getitem__, default=None),
        }
    return [dict(label) for _, label in worst_first(facts)]


def _mean_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    totals = {name: sum(one[name] for one in counts) for name in counts[0]}
    return {name: n / len(counts) if n % len(counts) else n // len(counts) for name, n in totals.items()}
