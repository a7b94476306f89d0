"""Profile of a data set: how many samples each class of each label has, and how imbalanced that is.

``profile`` returns plain values that go into JSON as they are. ``view`` shows them in a terminal, ``figure`` in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rectifier.data.dataset import PARTS, ImageData
from rectifier.report.published import published_data, published_ratio

Imbalance = dict[str, Any]
"""How imbalanced the classes of a label are, or the labels of a group: ``counts``, ``ratio``, ``omega`` and more.

``ratio`` is the largest over the smallest count. It is None (infinite) if ``empty`` counts are 0, since JSON has no
infinity. ``ratio_nonempty`` leaves these out and is None only if all are empty. A label has ``classes`` and the numbers
of ``samples`` with it and ``missing`` it. A group of two-class labels named ``group/label`` has ``labels``; its counts
are the samples in which each is positive (its second class). ``paper`` is what the paper reports, if anything.
"""

DataProfile = dict[str, Any]
"""What ``profile`` returns: facts of the data, and the ``Imbalance`` of its ``labels`` and its ``groups``, if any."""


def profile(data: ImageData, part: str | None = "train") -> DataProfile:
    """Count the classes of every label in one part of the data, or in all parts (None).

    The paper's numbers are added where it gives them. Its ratios count training images, so they are added for the part
    ``"train"`` only.
    """
    parts = {name: len(data.indices(name)) for name in PARTS}
    samples = len(data) if part is None else len(data.indices(part))
    if samples == 0:
        listed = ", ".join(f"{name} {n}" for name, n in parts.items())
        raise ValueError(f"{data.name!r} has no samples in part {part or 'all'!r} (samples: {listed}).")
    labels: dict[str, Imbalance] = {
        name: {
            "classes": len(classes),
            "samples": int(counts.sum()),
            "missing": samples - int(counts.sum()),
            **imbalance_of(dict(zip(classes, counts.tolist(), strict=True))),
        }
        for name, classes, counts in zip(data.space.names, data.space.classes, data.counts(part), strict=True)
    }
    result: DataProfile = {
        "name": data.name,
        "part": part or "all",
        "samples": samples,
        "parts": parts,
        "fingerprint": data.fingerprint,
        "notes": list(data.notes),
        "labels": labels,
    }
    if groups := _groups(labels):
        result["groups"] = groups
    if paper := published_data(data.name):
        result["paper"] = paper.copy()
    if part == "train":
        for name, entry in [*labels.items(), *groups.items()]:
            if ratio := published_ratio(data.name, name):
                entry["paper"] = ratio
    return result


def _groups(labels: Mapping[str, Imbalance]) -> dict[str, Imbalance]:
    positives: dict[str, dict[str, int]] = {}
    for name, label in labels.items():
        group, slash, member = name.partition("/")
        if slash and label["classes"] == 2:
            positives.setdefault(group, {})[member] = list(label["counts"].values())[1]
    # A single label is no group: its slash is part of its name.
    return {
        group: {"labels": len(counts), **imbalance_of(counts)} for group, counts in positives.items() if len(counts) > 1
    }


def imbalance_of(counts: Mapping[str, Any]) -> Imbalance:
    """Return how imbalanced these counts are."""
    every = list(counts.values())
    present = [n for n in every if n]
    ratio = _number(max(present) / min(present)) if present else None
    return {
        "ratio": ratio if len(present) == len(every) else None,
        "ratio_nonempty": ratio,
        # imbalance_measure takes whole counts, and these may be means over several splits.
        "omega": _number(1 - sum(every) / (len(every) * max(every))) if present else 0.0,
        "empty": len(every) - len(present),
        "counts": dict(counts),
    }


def _number(value: float) -> float:
    return float(f"{value:.6g}")


def rarest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the classes with their counts, rarest first, ties in the order of the classes.

    >>> rarest({"cat": 5, "dog": 1, "eel": 5})
    [('dog', 1), ('cat', 5), ('eel', 5)]
    """
    return sorted(counts.items(), key=lambda item: item[1])


Entries = list[tuple[str, Imbalance]]


def worst_first(entries: Mapping[str, Imbalance]) -> Entries:
    """Return labels or groups, the most imbalanced first; an empty class counts as infinite imbalance."""

    def severity(item: tuple[str, Imbalance]) -> tuple[bool, float, float]:
        return item[1]["ratio"] is None, item[1]["ratio_nonempty"] or 0, item[1]["omega"]

    return sorted(entries.items(), key=severity, reverse=True)


def are_binary(entries: Entries) -> bool:
    """Return whether these are several labels of two classes each: views show the share of the rarer class."""
    return len(entries) > 1 and all(len(entry["counts"]) == 2 for _, entry in entries)


def ratio_text(value: float | None) -> str:
    """Write a ratio as the paper does.

    >>> ratio_text(4162.3), ratio_text(1.94), ratio_text(None)
    ('1 : 4,162', '1 : 1.9', '-')
    """
    if value is None:
        return "-"
    return f"1 : {value:,.0f}" if value >= 9.95 or value == round(value) else f"1 : {value:.1f}"


def label_ratio(entry: Mapping[str, Any]) -> str:
    """Write the imbalance ratio of a label, with a star if it leaves out empty classes.

    >>> label_ratio({"ratio": None, "ratio_nonempty": 3.0, "counts": {"a": 9, "b": 3, "c": 0}})
    '1 : 3*'
    """
    present = sum(n > 0 for n in entry["counts"].values())
    if entry["ratio"] is None and present == 1:
        return "1 : ∞"  # without the empty classes there is nothing to compare with
    return ratio_text(entry["ratio_nonempty"]) + "*" * (entry["ratio"] is None and present > 0)
