"""A scikit-learn estimator: every trainable method on vectors, image arrays and image files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

if TYPE_CHECKING:
    from rectifier.sklearn.estimator import RectifierClassifier

__all__ = ["RectifierClassifier"]

# Imported on first use, so that a missing scikit-learn is reported with its extra.
_HOMES = imports.homes({"sklearn.estimator": ["RectifierClassifier"]})


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, _HOMES)
