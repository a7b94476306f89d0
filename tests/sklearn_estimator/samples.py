"""Small samples, and options that train in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np

FAST: dict[str, Any] = {"epochs": 20, "random_state": 0}


def blobs(samples: int = 80, classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    """Return vectors ``(n, 4)`` and imbalanced classes: each is half as frequent as the one before."""
    random = np.random.RandomState(seed)
    shares = 0.5 ** np.arange(classes)
    y = np.repeat(np.arange(classes), np.ceil(samples * shares / shares.sum()).astype(int))[:samples]
    X = random.normal(size=(samples, 4))
    X[np.arange(samples), y] += 3
    return X, y
