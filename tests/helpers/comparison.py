"""Shared by the tests of comparison."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from rectifier.evaluation.metrics.catalogue import COMPARED_METRICS
from rectifier.evaluation.rows import flatten
from rectifier.report.comparison import RULES, Entry

Counts = dict[str, dict[str, int]]


def make_data(train: Counts, test: Counts | None = None) -> dict[str, Any]:
    first = next(iter(train.values()))
    return {
        "name": "made",
        "fingerprint": "f0",
        "split_hash": "s0",
        "shape": [8, 8, 1],
        "normalisation": {"mean": [0.5], "std": [0.25]},
        "samples": {"train": sum(first.values()), "validation": 5, "test": 50},
        "labels": [{"name": name, "classes": list(counts)} for name, counts in train.items()],
        "counts": {"train": train, "test": test or {a: dict.fromkeys(c, 10) for a, c in train.items()}},
    }


def make_score(data: dict[str, Any], draw: Callable[[float], float], undefined: float = 0.0) -> dict[str, Any]:
    """Make the scores of one rule as in metrics.json: rare classes have a lower recall, some values are None."""
    labels = {}
    for name, counts in data["counts"]["train"].items():
        largest = max(*counts.values(), 1)
        sensitivity = {
            member: None if draw(0) < undefined or not data["counts"]["test"][name][member] else draw((n + 1) / largest)
            for member, n in counts.items()
        }
        known = [value for value in sensitivity.values() if value is not None]
        balanced = sum(known) / len(known) if known else None
        labels[name] = {"class_balanced_accuracy": balanced, "accuracy": balanced, "sensitivity": sensitivity}
    known = [
        label["class_balanced_accuracy"] for label in labels.values() if label["class_balanced_accuracy"] is not None
    ]
    score: dict[str, Any] = {metric: draw(0.5) for metric in COMPARED_METRICS if metric != "rarest"}
    return score | {"class_balanced_accuracy": sum(known) / len(known), "few": None, "absent": 0, "labels": labels}


def make_entry(
    data: dict[str, Any], method: str, seed: int, *, gain: float = 0.0, undefined: float = 0.0, **options: Any
) -> Entry:
    luck = random.Random(f"{method} {seed} {sorted(options.items())}")

    def draw(size: float) -> float:
        return min(max(0.5 + 0.3 * size + gain * (1 - size) + luck.gauss(0, 0.03), 0.0), 1.0) if size else luck.random()

    def part() -> dict[str, Any]:
        rules = {rule: make_score(data, draw, undefined) for rule in RULES}
        return {**rules["argmax"], "rules": rules}

    settings = {"method": method, "network": "mlp", "epochs": 60, **options}
    metrics = {"validation": part(), "test": part(), "preferred_rule": "tuned"}
    return Entry(f"runs/{method}-{len(options)}-{seed}", settings, seed, False, data, flatten(metrics))


def numbered(counts: list[int], prefix: str = "class") -> dict[str, int]:
    return {f"{prefix}{k:02d}": n for k, n in enumerate(counts)}


def tail(classes: int, largest: int = 500) -> list[int]:
    return [max(round(largest / (k + 1)), 1) for k in range(classes)]


DATA = {
    "digits": make_data({"digit": {str(k): n for k, n in enumerate(tail(10, 100))}}),
    "hundred classes": make_data({"object": numbered(tail(100))}),
    "forty binary": make_data({f"Wearing_Attribute_{k:02d}": {"no": 9000, "yes": 9000 // (k + 1)} for k in range(40)}),
    "mixed": make_data(
        {f"a longer label name {k}": numbered(tail(size)) for k, size in enumerate([2, 3, 5, 8, 12, 20, 33])}
        | {"$odd_ [red]|&%{name}\\": {**numbered(tail(45)), "empty ^~#": 0}},
    ),
    "thousand binary": make_data({f"kind/label{k}": {"no": 20000, "yes": 3 * k + 1} for k in range(120)}),
}


def make_entries(kind: str, seeds: int = 3) -> list[Entry]:
    data, undefined = DATA[kind], 0.1 if kind == "mixed" else 0.0
    methods: list[tuple[str, float, dict[str, Any]]] = [
        ("ce", 0.0, {}),
        ("crl", 0.1, {"method.eta": 0.5}),
        ("crl", 0.15, {"method.eta": 10}),
        ("over-sampling", 0.02, {}),
    ]
    return [
        make_entry(data, method, seed, gain=gain, undefined=undefined, **options)
        for method, gain, options in methods
        for seed in range(seeds)
    ]
