"""Images come from the shards in any order, with bounded memory."""

from __future__ import annotations

import mmap
import pickle
from pathlib import Path

import numpy as np
import pytest

from helpers.stores import SIZE, freshly_decoded, pixels
from rectifier.data.dataset import ImageData
from rectifier.data.store import build_store, open_store, shards
from rectifier.data.store.shards import StoredImages


def test_gather_in_any_order_and_after_select(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 2))
    assert isinstance(stored.images, StoredImages)
    np.testing.assert_array_equal(stored.images.gather(order), freshly_decoded(data)[order])
    part = stored.part("test")
    np.testing.assert_array_equal(pixels(part), freshly_decoded(data)[data.indices("test").numpy()])
    assert stored.images.gather(np.array([], np.int64)).shape == (0, *SIZE, 3)


def test_a_folder_holds_one_set_of_images(data: ImageData, tmp_path: Path) -> None:
    """Data whose shards were replaced fails loudly; it never shows the images of other data."""
    train = build_store(data.part("train"), tmp_path / "store", SIZE)
    test = build_store(data.part("test"), tmp_path / "store", SIZE)
    np.testing.assert_array_equal(pixels(test), freshly_decoded(data.part("test")))
    with pytest.raises(FileNotFoundError, match=r"00000-.*The store was rebuilt for other images"):
        pixels(train)


def test_stored_data_travels_to_another_process(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    expected = pixels(stored)
    copy = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(pixels(copy), expected)


def test_parts_share_their_maps(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    assert stored.part("train").images.maps is stored.part("test").images.maps


def test_a_relative_folder_outlives_another_working_folder(
    data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored = build_store(data, "store", SIZE)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pixels(stored), freshly_decoded(data))


def test_pages_are_handed_back_and_read_again(data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_back = []

    class Watched(mmap.mmap):
        def madvise(self, option: int, *rest: int) -> None:
            handed_back.append(option)
            super().madvise(option, *rest)

    monkeypatch.setattr(mmap, "mmap", Watched)
    stored = build_store(data, tmp_path / "store", SIZE)
    pixels(stored)
    assert not handed_back  # a small store may stay
    monkeypatch.setattr(shards, "FAULT_BYTES", 1)
    monkeypatch.setattr(shards, "RESIDENT_BYTES", 1)
    stored = open_store(tmp_path / "store")
    for _ in range(3):
        np.testing.assert_array_equal(pixels(stored), freshly_decoded(data))
    assert handed_back == [mmap.MADV_DONTNEED] * 3 * 4  # after every read of each of four shards
