"""One rule for the folder of all caches."""

from __future__ import annotations

from pathlib import Path

import pytest

from rectifier.data.cache_home import cache_home


def test_the_environment_chooses_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECTIFIER_CACHE", "/elsewhere")
    assert cache_home() == Path("/elsewhere")
    monkeypatch.delenv("RECTIFIER_CACHE")
    assert cache_home() == Path.home() / ".cache" / "rectifier"
