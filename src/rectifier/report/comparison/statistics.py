"""Compare finished runs: groups of seeds, their means with intervals, and paired differences to a baseline.

``compare_entries`` returns plain values that go into JSON as they are: fractions, and None for what is not defined.
Everything is given under each decision rule apart, and once more under the one that validation prefers, run by run.
Intervals are Student's, 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rectifier._base import check
from rectifier.evaluation.scoring import COMPARED, own_rule
from rectifier.labels import imbalance
from rectifier.report.comparison.groups import Entry, Group, check_comparable, form_groups, order, with_baseline_first
from rectifier.report.comparison.result import (
    Bin,
    Comparison,
    Difference,
    Estimate,
    LabelFacts,
    LabelResult,
    Result,
    RuleResult,
)
from rectifier.training.run.folder import Run

METRICS = (
    "class_balanced_accuracy",
    "accuracy",
    "macro_f1",
    "g_mean",
    "mean_average_precision",
    "top5_class_balanced_accuracy",
    "expected_calibration_error",
    "many",
    "medium",
    "few",
    "rarest",
)
BINS = 20
"""More labels or classes than this are also given as the means of this many bins, ordered by imbalance or size."""

_LEVEL = 0.95
_NO_SPREAD = 1e-9
_DIGITS = 12  # what lies behind them in a difference of two fractions is rounding, and must not exclude 0


def compare_runs(runs: Sequence[Run | str | Path], baseline: str | None = None) -> Comparison:
    """Compare finished runs of the same data: see ``compare_entries``."""
    return compare_entries([_entry(Run.open(run)) for run in runs], baseline)


def _entry(run: Run) -> Entry:
    config = run.config
    return Entry(str(run.path), config.identity(), config.seed, config.resplit, run.data, run.metrics)


def compare_entries(entries: Iterable[Entry], baseline: str | None = None) -> Comparison:
    """Compare runs of the same data; those of equal settings are one group, its seeds.

    ``baseline`` names a group, or the method of just one; without it, it is the one of method ``ce``, or the first in
    order where there is none or several. Runs of unlike data are refused.

    >>> data = {"name": "pets", "fingerprint": "f", "split_hash": "s", "shape": [8, 8, 1], "normalisation": {},
    ...         "samples": {"test": 4}, "labels": [{"name": "kind", "classes": ["cat", "dog"]}],
    ...         "counts": {part: {"kind": {"cat": 9, "dog": 3}} for part in ("train", "test")}}
    >>> from rectifier.evaluation.scoring import RULES
    >>> def run(method, seed, value):
    ...     label = {"class_balanced_accuracy": value, "sensitivity": {"cat": 1.0, "dog": 2 * value - 1}}
    ...     score = {"class_balanced_accuracy": value, "labels": {"kind": label}}
    ...     metrics = {"test": {"rules": {rule: score for rule in RULES}}}
    ...     return Entry(f"{method}{seed}", {"method": method}, seed, False, data, metrics)
    >>> result = compare_entries([run("ce", 0, 0.5), run("ce", 1, 0.6), run("crl", 0, 0.7), run("crl", 1, 0.75)])
    >>> difference = result["rules"]["argmax"]["test"]["class_balanced_accuracy"]["differences"]["crl"]
    >>> difference["values"], round(difference["mean"], 3), round(difference["half_width"], 3)
    ({'0': 0.2, '1': 0.15}, 0.175, 0.318)
    """
    ordered = sorted(entries, key=lambda entry: (order(entry.settings), entry.seed, entry.folder))
    check_comparable(ordered)
    groups = with_baseline_first(form_groups(ordered), baseline)
    labels = _label_facts(ordered)
    return {
        "data": ordered[0].data["name"],
        "samples": dict(ordered[0].data["samples"]),
        "resplit": all(entry.resplit for entry in ordered),
        "seeds": sorted({entry.seed for entry in ordered}),
        "baseline": groups[0].name,
        "groups": [group.facts() for group in groups],
        "labels": labels,
        "rules": {rule: _under_rule(rule, groups, labels) for rule in COMPARED},
    }


# The labels, from the training counts.


def _label_facts(entries: Iterable[Entry]) -> list[LabelFacts]:
    splits = list({entry.data["split_hash"]: entry.data["counts"] for entry in entries}.values())
    first = splits[0]["train"]
    train = {label: _mean_counts([split["train"][label] for split in splits]) for label in first}
    test = {label: _mean_counts([split["test"][label] for split in splits]) for label in first}
    return sorted((_facts(name, train[name], test[name]) for name in first), key=_severity, reverse=True)


def _mean_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, float]:
    totals = {name: sum(one[name] for one in counts) for name in counts[0]}
    return {name: n / len(counts) if n % len(counts) else n // len(counts) for name, n in totals.items()}


def _facts(name: str, train: dict[str, float], test: Mapping[str, float]) -> LabelFacts:
    counts = list(train.values())
    present = [n for n in counts if n]
    candidates = [member for member, n in train.items() if n and test[member]]
    ratio = _six_digits(imbalance.imbalance_ratio(torch.tensor(present))) if present else None
    return {
        "name": name,
        "counts": train,
        "ratio": ratio if len(present) == len(counts) else None,
        "ratio_nonempty": ratio,
        "omega": _six_digits(imbalance.imbalance_measure(torch.tensor(counts))),
        "rarest": min(candidates, key=train.__getitem__, default=None),
    }


def _six_digits(value: Any) -> float:
    return float(f"{float(value):.6g}")  # the digits that float32 holds, without the noise behind them


def _severity(label: LabelFacts) -> tuple[bool, float, float]:
    return label["ratio"] is None, label["ratio_nonempty"] or 0, label["omega"]


# The values under one rule.

_Value = Callable[[Entry], float | None]


@dataclass(frozen=True)
class _Member:
    """A label or class among others, ordered by its imbalance or size."""

    name: str
    measure: float | None
    value: _Value


def _under_rule(rule: str, groups: Sequence[Group], labels: Sequence[LabelFacts]) -> RuleResult:
    def of(part: str, *path: str) -> Result:
        return _result(groups, _at(part, rule, *path))

    rarest = [_sensitivity(rule, label["name"], label["rarest"]) for label in labels if label["rarest"] is not None]
    by_imbalance, by_size = _labels_by_imbalance(rule, labels), _classes_by_size(rule, labels)
    return {
        "test": {metric: of("test", metric) for metric in METRICS} | {"rarest": _result(groups, _mean_of(rarest))},
        "validation": {"class_balanced_accuracy": of("validation", "class_balanced_accuracy")},
        "labels": {label["name"]: _label_result(rule, groups, label) for label in labels},
        "halves": _bins(groups, by_imbalance, 2) if len(labels) > 1 else [],
        "label_bins": _bins(groups, by_imbalance, BINS) if len(by_imbalance) > BINS else [],
        "class_bins": _bins(groups, by_size, BINS) if len(by_size) > BINS else [],
    }


def _label_result(rule: str, groups: Sequence[Group], label: LabelFacts) -> LabelResult:
    classes = {name: _result(groups, _sensitivity(rule, label["name"], name)) for name in label["counts"]}
    return {
        "class_balanced_accuracy": _result(groups, _balanced(rule, label["name"])),
        "rarest": classes[label["rarest"]] if label["rarest"] is not None else None,
        "classes": classes,
    }


def _at(part: str, rule: str, *path: str) -> _Value:
    """Return what reads one number of a part under a rule off a run, None where there is none."""

    def value(entry: Entry) -> float | None:
        found: Any = entry.metrics.get(part)
        for key in ("rules", own_rule(rule, entry.metrics.get("preferred_rule", "argmax")), *path):
            found = (found or {}).get(key)
        return found if check.is_real(found) else None

    return value


def _balanced(rule: str, label: str) -> _Value:
    return _at("test", rule, "labels", label, "class_balanced_accuracy")


def _sensitivity(rule: str, label: str, name: str) -> _Value:
    return _at("test", rule, "labels", label, "sensitivity", name)


def _mean_of(values: Sequence[_Value]) -> _Value:
    return lambda entry: _mean([found for value in values if (found := value(entry)) is not None])


def _labels_by_imbalance(rule: str, labels: Sequence[LabelFacts]) -> list[_Member]:
    return [_Member(one["name"], one["ratio_nonempty"], _balanced(rule, one["name"])) for one in reversed(labels)]


def _classes_by_size(rule: str, labels: Sequence[LabelFacts]) -> list[_Member]:
    classes = [(one["name"], name, n) for one in labels for name, n in one["counts"].items() if n]
    classes.sort(key=lambda found: found[2])
    return [_Member(f"{label}: {name}", n, _sensitivity(rule, label, name)) for label, name, n in classes]


def _bins(groups: Sequence[Group], members: Sequence[_Member], count: int) -> list[Bin]:
    edges = [len(members) * k // count for k in range(count + 1)]
    return [_bin(groups, members[low:high]) for low, high in pairwise(edges)]


def _bin(groups: Sequence[Group], members: Sequence[_Member]) -> Bin:
    measures = [member.measure for member in members if member.measure is not None]
    return {
        "members": [member.name for member in members],
        "low": min(measures, default=None),
        "high": max(measures, default=None),
        **_result(groups, _mean_of([member.value for member in members])),
    }


# Statistics.


def _result(groups: Sequence[Group], value: _Value) -> Result:
    """Read one value off every run; the first group is the baseline."""
    values = {group.name: {str(seed): value(run) for seed, run in group.runs.items()} for group in groups}
    base = values[groups[0].name]
    return {
        "groups": {name: estimate(own) for name, own in values.items()},
        "differences": {group.name: difference(values[group.name], base) for group in groups[1:]},
    }


def estimate(values: dict[str, float | None]) -> Estimate:
    """Return the mean of one value over seeds, with Student's 95 % interval."""
    defined = [value for value in values.values() if value is not None]
    return {"values": values, "mean": _mean(defined), "half_width": _half_width(defined)}


def difference(values: Mapping[str, float | None], base: Mapping[str, float | None]) -> Difference:
    """Return the mean difference to a baseline, paired by seed, with its interval."""
    paired: dict[str, float | None] = {}
    for seed, value in values.items():
        other = base.get(seed)
        if value is not None and other is not None:
            paired[seed] = round(value - other, _DIGITS)
    found = estimate(paired)
    mean, half_width = found["mean"], found["half_width"]
    # Equal differences in all seeds, as of one test sample, have no spread to judge by.
    spread = half_width is not None and half_width > _NO_SPREAD
    excludes_zero = mean is not None and half_width is not None and spread and abs(mean) > half_width
    return {**found, "seeds": [int(seed) for seed in paired], "excludes_zero": excludes_zero}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _half_width(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return _quantile(len(values) - 1) * math.sqrt(variance / len(values))


@cache
def _quantile(freedom: int) -> float:
    from scipy.stats import t  # type: ignore[import-untyped]  # a second to import, and one run needs none

    return float(t.ppf((1 + _LEVEL) / 2, freedom))
