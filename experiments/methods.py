"""Methods beside a base network, as the paper's tables of attributes list them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rectifier.reproduce import Cell


def compared(methods: Mapping[str, Mapping[str, Any]], papers: Mapping[str, Any], base: str) -> list[Cell]:
    """Return a cell for each method, its gain counted from ``base``; the eta of CRL is chosen on validation."""
    return [
        Cell(
            name,
            settings=settings,
            paper=papers[name],
            against=None if name == base else base,
            choose={"eta": (0.01, 0.1, 0.5)} if name.startswith("CRL") else {},
        )
        for name, settings in methods.items()
    ]
