"""Compare finished runs: groups of seeds, their means with intervals, and paired differences to a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rectifier.evaluation.metrics.catalogue import COMPARED_METRICS
from rectifier.evaluation.rows import preferred_rule
from rectifier.evaluation.scoring import COMPARED, PREFERRED, unused_prior
from rectifier.report.comparison.groups import Entry, Group, check_comparable, form_groups, order, with_baseline_first
from rectifier.report.comparison.statistics import Bin, Estimate, Result, difference, estimate, mean_of
from rectifier.report.profile.counts import imbalance_of, worst_first
from rectifier.training.run.folder import Run
from rectifier.training.run.results import prior_note, rows

if TYPE_CHECKING:
    from pandas import DataFrame

BINS = 20
"""More labels or classes than this are also averaged in this many bins, ordered by imbalance or size."""

BALANCED = "class_balanced_accuracy"
_Values = list[float | None]  # of one quantity, in every run
_Member = tuple[str, float | None, _Values]  # the name of a label or class, its imbalance or size, its values


def compare_runs(runs: Sequence[Run | str | Path], baseline: str | None = None) -> ComparisonResult:
    """Compare finished runs of the same data: see ``compare_entries``."""
    return compare_entries([_entry(Run.open(run)) for run in runs], baseline)


def _entry(run: Run) -> Entry:
    config, asked = run.config, run.asked.identity()
    settings, unused = config.identity(), prior_note(run) is not None
    chosen = frozenset(key for key, value in settings.items() if asked.get(key) != value) - {"method", "network"}
    baselines = (run.baselines or {}).get("test", {})
    return Entry(str(run.path), settings, config.seed, config.resplit, run.data, rows(run), unused, chosen, baselines)


def compare_entries(entries: Iterable[Entry], baseline: str | None = None) -> ComparisonResult:
    """Compare runs of the same data. Runs that differ only in their seed form a group.

    ``baseline`` names a group, or a method with a single group. By default it is the group of method ``ce``, or the
    first group. Runs of different data are refused.
    """
    from pandas import concat

    ordered = sorted(entries, key=lambda entry: (order(entry.settings), entry.seed, entry.folder))
    check_comparable(ordered)
    groups = with_baseline_first(form_groups(ordered), baseline)
    rows = concat([_run_rows(run, group.name) for group in groups for run in group.runs.values()], ignore_index=True)
    data, resplit = ordered[0].data, all(entry.resplit for entry in ordered)
    return ComparisonResult(data["name"], dict(data["samples"]), resplit, groups, _label_facts(ordered), rows)


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
    def note(self) -> str | None:
        """Why the rule prior equals argmax in some groups, or None."""
        names = [group.name for group in self.groups if any(run.unused_prior for run in group.runs.values())]
        return unused_prior(names) if names else None

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for group in self.groups for seed in group.runs})

    @property
    def reference(self) -> dict[str, Estimate]:
        """The class-balanced accuracy on test of a constant answer and of HOG, by name, where runs have them."""
        scores: dict[str, dict[str, float | None]] = {}
        for group in self.groups:
            for seed, run in group.runs.items():
                for name, score in run.baselines.items():
                    scores.setdefault(name, {}).setdefault(str(seed), score)
        return {name: estimate(by_seed) for name, by_seed in scores.items()}

    def overall(self, rule: str, metric: str, part: str = "test") -> Result:
        """Return a metric over all labels; ``rarest`` is the mean recall of the rarest class of each label."""
        if metric != "rarest":
            return self._result(self._values(rule, metric, part=part))
        classes = [(label["name"], label["rarest"]) for label in self.labels if label["rarest"] is not None]
        return self._result(self._mean([self._values(rule, "sensitivity", *found) for found in classes]))

    def label(self, rule: str, name: str) -> Result:
        """Return the class-balanced accuracy of one label."""
        return self._result(self._values(rule, BALANCED, name))

    def recall(self, rule: str, label: str, name: str) -> Result:
        """Return the recall of one class."""
        return self._result(self._values(rule, "sensitivity", label, name))

    def rarest(self, rule: str, label: Mapping[str, Any]) -> Result | None:
        """Return the recall of the rarest class of a label, or None if no class has training and test samples."""
        return None if label["rarest"] is None else self.recall(rule, label["name"], label["rarest"])

    def halves(self, rule: str) -> list[Bin]:
        """Return the least and the most imbalanced half of several labels, as the paper does."""
        return self._label_bins(rule, 2) if len(self.labels) > 1 else []

    def label_bins(self, rule: str) -> list[Bin]:
        """Return bins of labels, by increasing imbalance ratio; none for up to ``BINS`` labels."""
        return self._label_bins(rule, BINS) if len(self.labels) > BINS else []

    def class_bins(self, rule: str) -> list[Bin]:
        """Return bins of classes, by increasing training count; none for up to ``BINS`` classes."""
        members = [
            (f"{label['name']}: {name}", n, self._values(rule, "sensitivity", label["name"], name))
            for label in self.labels
            for name, n in label["counts"].items()
            if n
        ]
        members.sort(key=lambda member: member[1])
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
            "reference": self.reference,
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
    def _by_quantity(self) -> dict[tuple[str | None, ...], _Values]:
        """The values of every quantity, by rule, part, metric, label and class."""
        place = {run: k for k, run in enumerate(self._runs)}
        found: dict[tuple[str | None, ...], _Values] = {}
        compared = self.rows[self.rows["metric"].isin([*COMPARED_METRICS, "sensitivity"])]
        ordered = compared[["rule", "part", "metric", "label", "class", "group", "seed", "value"]]
        for *key, group, seed, value in ordered.itertuples(index=False, name=None):
            values = found.setdefault(tuple(key), [None] * len(place))
            values[place[group, seed]] = value if value == value else None  # NaN differs from itself
        return found

    def _values(
        self, rule: str, metric: str, label: str | None = None, name: str | None = None, part: str = "test"
    ) -> _Values:
        return self._by_quantity.get((rule, part, metric, label, name), [None] * len(self._runs))

    def _mean(self, quantities: Sequence[_Values]) -> _Values:
        """Return the mean of several quantities for each run, over those that are defined."""
        return [mean_of(own[run] for own in quantities) for run in range(len(self._runs))]

    def _result(self, values: _Values) -> Result:
        by_group: dict[str, dict[str, float | None]] = {}
        for (group, seed), value in zip(self._runs, values, strict=True):
            by_group.setdefault(group, {})[str(seed)] = value
        base = by_group[self.baseline]
        return {
            "groups": {name: estimate(own) for name, own in by_group.items()},
            "differences": {name: difference(by_group[name], base) for name in self.others},
        }

    def _label_bins(self, rule: str, count: int) -> list[Bin]:
        members = [
            (label["name"], label["ratio_nonempty"], self._values(rule, BALANCED, label["name"]))
            for label in reversed(self.labels)
        ]
        return self._bins(members, count)

    def _bins(self, members: Sequence[_Member], count: int) -> list[Bin]:
        """Divide at least ``count`` ordered members into bins of about the same size."""
        found: list[Bin] = []
        for low, high in pairwise(len(members) * k // count for k in range(count + 1)):
            names, sizes, values = zip(*members[low:high], strict=True)
            known = [size for size in sizes if size is not None]
            bounds = min(known, default=None), max(known, default=None)
            result = self._result(self._mean(values))
            found.append({"members": list(names), "low": bounds[0], "high": bounds[1], **result})
        return found


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
        measures = {"ratio": found["ratio"], "ratio_nonempty": found["ratio_nonempty"], "omega": found["omega"]}
        rarest = min(candidates, key=train.__getitem__, default=None)
        facts[name] = {"name": name, "counts": train, **measures, "rarest": rarest}
    return [label for _, label in worst_first(facts)]


def _mean_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    totals = {name: sum(one[name] for one in counts) for name in counts[0]}
    return {name: n / len(counts) if n % len(counts) else n // len(counts) for name, n in totals.items()}
