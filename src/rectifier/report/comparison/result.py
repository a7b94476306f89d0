"""What a comparison holds: plain values that go into JSON as they are, fractions, None for what is not defined."""

from __future__ import annotations

from typing import Any, TypedDict


class Estimate(TypedDict):
    """A value for every seed, their mean, and the half-width of its interval (None with fewer than two values)."""

    values: dict[str, float | None]
    mean: float | None
    half_width: float | None


class Difference(Estimate):
    """What a group has more than the baseline, seed by seed, over the ``seeds`` where both have a value."""

    seeds: list[int]
    excludes_zero: bool


class Result(TypedDict):
    """One quantity of every group, and the differences of all groups but the baseline."""

    groups: dict[str, Estimate]
    differences: dict[str, Difference]


class Bin(Result):
    """The mean over some labels or classes; ``low`` and ``high`` bound their imbalance ratio or training count."""

    members: list[str]
    low: float | None
    high: float | None


class GroupFacts(TypedDict):
    """The runs that differ in their seed alone; ``folders`` by seed."""

    name: str
    settings: dict[str, Any]
    seeds: list[int]
    folders: dict[str, str]


class LabelFacts(TypedDict):
    """A label's training counts (means over the splits where seeds drew several) and how imbalanced they are.

    ``ratio`` is None (infinite) where a class is empty, ``ratio_nonempty`` leaves such classes out. ``rarest`` has the
    fewest training samples among the classes with a training and a test sample.
    """

    name: str
    counts: dict[str, float]
    ratio: float | None
    ratio_nonempty: float | None
    omega: float
    rarest: str | None


class LabelResult(TypedDict):
    """One label: its class-balanced accuracy, the sensitivity of its rarest class and of every class."""

    class_balanced_accuracy: Result
    rarest: Result | None
    classes: dict[str, Result]


class RuleResult(TypedDict):
    """Everything under one decision rule.

    ``halves`` are the least and the most imbalanced half of several labels, as the paper sums them up; ``label_bins``
    (by imbalance ratio) and ``class_bins`` (by training count) are empty up to ``BINS`` members. All rise.
    """

    test: dict[str, Result]
    validation: dict[str, Result]
    labels: dict[str, LabelResult]
    halves: list[Bin]
    label_bins: list[Bin]
    class_bins: list[Bin]


class Comparison(TypedDict):
    """What ``compare_entries`` returns. The baseline is the first group; the most imbalanced label comes first."""

    data: str
    samples: dict[str, int]
    resplit: bool
    seeds: list[int]
    baseline: str
    groups: list[GroupFacts]
    labels: list[LabelFacts]
    rules: dict[str, RuleResult]
