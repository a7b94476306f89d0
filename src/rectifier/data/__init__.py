"""Data: readers of benchmarks and of your own images, the store of decoded pixels, and the loader of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rectifier._base import imports

if TYPE_CHECKING:
    from rectifier.data.dataset import ImageData
    from rectifier.data.features import cached_features
    from rectifier.data.loader import Loader
    from rectifier.data.sources import open_data
    from rectifier.data.store import build_store

__all__ = ["ImageData", "Loader", "build_store", "cached_features", "open_data"]

# A name is imported on first use, so that processes that only decode images start without waiting for torch.
_HOMES = imports.homes(
    {
        "data.dataset": ["ImageData"],
        "data.features": ["cached_features"],
        "data.loader": ["Loader"],
        "data.sources": ["open_data"],
        "data.store": ["build_store"],
    }
)


def __getattr__(name: str) -> object:
    return imports.load(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
