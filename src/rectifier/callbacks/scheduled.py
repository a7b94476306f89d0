"""The modules that have a schedule, and what a callback tells them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn


def scheduled(places: Iterable[object], advice: str) -> list[Any]:
    """Return everything with ``set_progress`` in these places and, where they are modules, inside them.

    Without any, ``advice`` says what to do.
    """
    given = list(places)
    parts = [part for place in given for part in (place.modules() if isinstance(place, nn.Module) else [place])]
    found = {id(part): part for part in parts if callable(getattr(part, "set_progress", None))}
    if not found:
        names = " and ".join(dict.fromkeys(type(place).__name__ for place in given))
        raise ValueError(f"Nothing in {names} has set_progress, so no schedule can follow training. {advice}")
    return list(found.values())


def tell(modules: Iterable[Any], share: float) -> None:
    """Set the progress of all modules. Training may last longer than planned; the schedule then stays at its end."""
    for module in modules:
        module.set_progress(min(share, 1.0))
