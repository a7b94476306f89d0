"""Evaluation: metrics, decision rules, decisions from features, and scores as one long table (``rows``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

if TYPE_CHECKING:
    from rectifier.evaluation import by_features, metrics, rules

__all__ = ["by_features", "metrics", "rules"]


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, {part: f"evaluation.{part}" for part in __all__})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
