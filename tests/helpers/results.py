"""Random records and results for tests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier.evaluation.scoring import RULES
from rectifier.reproduce import Cell, Experiment, ExperimentResult
from rectifier.reproduce.records import RECORDED_METRICS

Where = tuple[str, str]


RATIOS = {"hat": 30.0, "hair": 1.5, "beard": 5.5, "bald": 43.0}


def made_record(
    draw: random.Random, seed: int, ratios: Mapping[str, float | None] = RATIOS, base: float = 0.5
) -> dict[str, Any]:
    """Make a record with random scores; it has scores of labels if there are several labels."""

    def scores() -> dict[str, Any]:
        labels = {label: base + draw.uniform(-0.1, 0.1) for label in ratios} if len(ratios) > 1 else {}
        return {**{metric: base + draw.uniform(-0.1, 0.1) for metric in RECORDED_METRICS}, "labels": labels}

    return {
        "key": f"{draw.randrange(16**12):012x}",
        "seed": seed,
        "data": {"split_hash": "0123456789abcdef", "fingerprint": "fedcba", "ratios": dict(ratios)},
        "precision": "32",
        "parameters": 1000,
        "hardware": "an abacus",
        "versions": {"torch": "2.0"},
        "commit": "fedcba9876543210",
        "config": {"method": "ce", "network": "net", "epochs": 3, "lr": 0.1},
        "seconds": 18.0,
        "together": 2,
        "blind": 0,
        "preferred_rule": draw.choice(RULES),
        "liking": draw.random(),
        **{part: {rule: scores() for rule in RULES} for part in ("validation", "test")},
    }


def made_result(
    cells: Sequence[Cell],
    seeds: Mapping[Where, Sequence[int]] | int = 4,
    *,
    folder: Path = Path(),
    ratios: Mapping[str, float | None] = RATIOS,
    gains: Mapping[str, float] | None = None,
    luck: int = 0,
    **settings: Any,
) -> ExperimentResult:
    """Make a result of random records; ``gains`` are added to the scores of a row."""
    draw = random.Random(luck)
    wanted = {(c.row, c.column): range(seeds) if isinstance(seeds, int) else seeds[c.row, c.column] for c in cells}
    records = {
        (row, column): {seed: made_record(draw, seed, ratios, 0.5 + (gains or {}).get(row, 0.0)) for seed in numbers}
        for (row, column), numbers in wanted.items()
    }
    experiment = Experiment("A title", "A source", "About it.", show=lambda _: "", cells=cells, **settings)
    return ExperimentResult("made", experiment, records, {}, {}, folder)
