from __future__ import annotations

from pathlib import Path

import pytest

from rectifier.data.features import contents, extract


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, small blocks, and an index that remembers files that changed a moment ago."""
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(extract, "BLOCK_IMAGES", 8)
    monkeypatch.setattr(extract, "_BATCH", 4)
    monkeypatch.setattr(contents, "_SETTLED", -(10**9))
    return tmp_path / "cache" / "features"
