from __future__ import annotations

from pathlib import Path

import pytest

from helpers.stores import SIZE, write_images
from rectifier.data.dataset import ImageData
from rectifier.data.store import build


@pytest.fixture
def data(tmp_path: Path) -> ImageData:
    return write_images(tmp_path / "images")


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SHARD_BYTES", 6 * 3 * SIZE[0] * SIZE[1])  # four shards of about six images


@pytest.fixture
def damaged(data: ImageData, tmp_path: Path) -> ImageData:
    (tmp_path / "images/003.png").write_bytes(b"no image")
    (tmp_path / "images/011.png").unlink()
    return data
