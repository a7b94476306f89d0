"""Profile of a data set: how many samples each class of each label has, and how imbalanced that is.

``profile`` returns plain values that go into JSON as they are. ``profile_view.view`` shows them in a terminal,
``profile_figure.draw`` in a figure file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from torch import Tensor

from rectifier._base import check
from rectifier.data.dataset import PARTS, ImageData
from rectifier.labels import imbalance
from rectifier.report.published import PublishedData, PublishedRatio, published_data, published_ratio


class Imbalance(TypedDict):
    """How imbalanced some counts are.

    ``ratio`` is largest over smallest count and None (infinite) where one of the ``empty`` is 0, for JSON has no
    infinity; ``ratio_nonempty`` leaves those out and is None only where nothing was counted.
    """

    counts: dict[str, int]
    ratio: float | None
    ratio_nonempty: float | None
    empty: int
    omega: float
    paper: NotRequired[PublishedRatio]


class LabelProfile(Imbalance):
    """One label: its number of classes, the samples that have it and those that miss it, and their imbalance."""

    classes: int
    samples: int
    missing: int


class GroupProfile(Imbalance):
    """Two-class labels named ``group/label``, counted by the samples in which each is positive (its second class)."""

    labels: int


class Profile(TypedDict):
    """What ``profile`` returns."""

    name: str
    part: str
    samples: int
    parts: dict[str, int]
    fingerprint: str
    notes: list[str]
    labels: dict[str, LabelProfile]
    groups: NotRequired[dict[str, GroupProfile]]
    paper: NotRequired[PublishedData]


def profile(data: ImageData, part: str | None = "train") -> Profile:
    """Count the classes of every label in one part of the data, or in all (None).

    The paper's values stand beside ours where it gives them; its ratios count training images, so they do so for
    the part ``"train"`` alone.

    >>> import numpy as np
    >>> import torch
    >>> from rectifier.data.dataset import ImageArray
    >>> from rectifier.labels.space import LabelSpace
    >>> images, space = ImageArray(np.zeros((4, 8, 8, 1), np.uint8)), LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> data = ImageData("pets", images, torch.tensor([[0], [1], [1], [1]]), space, torch.tensor([0, 0, 0, 2]))
    >>> profile(data)["labels"]["kind"]["counts"], profile(data)["labels"]["kind"]["ratio"]
    ({'cat': 1, 'dog': 2}, 2.0)
    """
    parts = {name: len(data.indices(name)) for name in PARTS}
    samples = len(data) if part is None else len(data.indices(part))
    if samples == 0:
        listed = ", ".join(f"{name} {n}" for name, n in parts.items())
        check.fail(f"{part or 'data'} of {data.name!r}", "of at least one sample", f"none (samples: {listed})")
    labels = {
        name: _label(dict(zip(classes, counts.tolist(), strict=True)), samples)
        for name, classes, counts in zip(data.space.names, data.space.classes, data.counts(part), strict=True)
    }
    result: Profile = {
        "name": data.name,
        "part": part or "all",
        "samples": samples,
        "parts": parts,
        "fingerprint": data.fingerprint,
        "notes": list(data.notes),
        "labels": labels,
    }
    groups = _groups(labels)
    if groups:
        result["groups"] = groups
    if paper := published_data(data.name):
        result["paper"] = paper.copy()
    if part == "train":
        for name, entry in [*labels.items(), *groups.items()]:
            if ratio := published_ratio(data.name, name):
                entry["paper"] = ratio
    return result


def _label(counts: dict[str, int], samples: int) -> LabelProfile:
    labelled = sum(counts.values())
    return {"classes": len(counts), "samples": labelled, "missing": samples - labelled, **_imbalance(counts)}


def _groups(labels: Mapping[str, LabelProfile]) -> dict[str, GroupProfile]:
    positives: dict[str, dict[str, int]] = {}
    for name, label in labels.items():
        group, slash, member = name.partition("/")
        if slash and label["classes"] == 2:
            positives.setdefault(group, {})[member] = list(label["counts"].values())[1]
    # A group of one has nothing to be compared with: its slash is part of a name.
    return {
        group: {"labels": len(counts), **_imbalance(counts)} for group, counts in positives.items() if len(counts) > 1
    }


def _imbalance(counts: dict[str, int]) -> Imbalance:
    every = list(counts.values())
    present = [n for n in every if n]
    return {
        "ratio": _number(imbalance.imbalance_ratio(every)) if len(present) == len(every) else None,
        "ratio_nonempty": _number(imbalance.imbalance_ratio(present)) if present else None,
        "omega": _number(imbalance.imbalance_measure(every)),
        "empty": len(every) - len(present),
        "counts": counts,
    }


def _number(value: Tensor) -> float:
    return float(f"{value.item():.6g}")  # the digits that float32 holds, without the noise behind them


def rarest(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the classes with their counts, rarest first, ties in the order of the classes.

    >>> rarest({"cat": 5, "dog": 1, "eel": 5})
    [('dog', 1), ('cat', 5), ('eel', 5)]
    """
    return sorted(counts.items(), key=lambda item: item[1])


Entries = list[tuple[str, Imbalance]]


def worst_first(entries: Mapping[str, Imbalance]) -> Entries:
    """Return labels or groups, most imbalanced first; an empty class counts as infinite imbalance."""

    def severity(item: tuple[str, Imbalance]) -> tuple[bool, float, float]:
        return item[1]["ratio"] is None, item[1]["ratio_nonempty"] or 0, item[1]["omega"]

    return sorted(entries.items(), key=severity, reverse=True)


def are_binary(entries: Entries) -> bool:
    """Say whether these are several labels of two classes each, which are shown by the share of the rarer class."""
    return len(entries) > 1 and all(len(entry["counts"]) == 2 for _, entry in entries)


def ratio_text(value: float | None) -> str:
    """Write a ratio as the paper does.

    >>> ratio_text(4162.3), ratio_text(1.94), ratio_text(None)
    ('1 : 4,162', '1 : 1.9', '-')
    """
    if value is None:
        return "-"
    return f"1 : {value:,.0f}" if value >= 9.95 or value == round(value) else f"1 : {value:.1f}"
