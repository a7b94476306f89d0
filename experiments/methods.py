"""The methods in the paper's tables of attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rectifier.reproduce import Cell

_ETA: dict[str, tuple[float, ...]] = {"eta": (0.01, 0.1, 0.5)}

# Settings of methods that validation chooses in every comparison.
CHOSEN: dict[str, dict[str, tuple[float, ...]]] = {
    "CRL": _ETA,
    "CRL, class level": _ETA,
    "CRL, instance level": _ETA,
    "LMLE": {"weight": (0.0001, 0.001, 0.01)},
    "Triplet-kNN": {"lr": (0.005, 0.02)},
}

# LMLE needs trained features. On CelebA, after only a fifth of training, its hard quintuplets collapse them to a point.
LMLE: dict[str, Any] = {"method": "lmle", "pretrain": 0.8}


def compared(methods: Mapping[str, Mapping[str, Any]], papers: Mapping[str, Any], base: str) -> list[Cell]:
    """Return a cell for each method, compared against ``base``."""
    return [
        Cell(
            name,
            settings=settings,
            paper=papers[name],
            against=None if name == base else base,
            choose=CHOSEN.get(name, {}),
        )
        for name, settings in methods.items()
    ]
