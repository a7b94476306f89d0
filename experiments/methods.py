"""Methods beside a base network, as the paper's tables of attributes list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rectifier.reproduce import Cell

_ETA = {"eta": (0.01, 0.1, 0.5)}

# What validation chooses of methods, wherever they are compared.
CHOSEN: dict[str, dict[str, tuple[float, ...]]] = {
    "CRL": _ETA,
    "CRL, class level": _ETA,
    "CRL, instance level": _ETA,
    "LMLE": {"weight": (0.0001, 0.001, 0.01)},
    "Triplet-kNN": {"lr": (0.005, 0.02)},
}

# LMLE begins from trained features. From those of a fifth of the training its hard quintuplets pull all of them to a
# point on CelebA.
LMLE: dict[str, Any] = {"method": "lmle", "pretrain": 0.8}


def compared(methods: Mapping[str, Mapping[str, Any]], papers: Mapping[str, Any], base: str) -> list[Cell]:
    """Return a cell for each method, its gain counted from ``base``."""
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
