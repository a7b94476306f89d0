"""Where everything lies that is computed once and kept: decoded images and features."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Return the folder of all caches: ``RECTIFIER_CACHE``, or else a folder in the user's cache."""
    return Path(os.environ.get("RECTIFIER_CACHE") or Path.home() / ".cache" / "rectifier")
