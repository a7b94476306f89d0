"""A store opens without its source, lists what it lacks, and reports damage."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.stores import SIZE, freshly_decoded, pixels, shard, times_of_shards, write_images
from rectifier import LabelSpace
from rectifier.data.dataset import ImageData
from rectifier.data.decode import decode
from rectifier.data.store import build_store, is_store, open_store


def test_open_without_the_source(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    expected = freshly_decoded(data)
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    moved = (tmp_path / "store").rename(tmp_path / "elsewhere")
    opened = open_store(moved, verify=True)
    assert is_store(moved)
    assert not is_store(tmp_path / "images")
    np.testing.assert_array_equal(pixels(opened), expected)
    assert (opened.space, opened.ids, opened.notes, opened.name) == (stored.space, stored.ids, stored.notes, "tiny")
    assert torch.equal(opened.targets, data.targets)
    assert torch.equal(opened.split, data.split)


def test_manifest_says_what_is_inside(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    manifest = json.loads((tmp_path / "store/manifest.json").read_text())
    assert LabelSpace.from_json(json.dumps(manifest)) == data.space
    assert manifest["size"] == list(SIZE)
    assert sum(shard["samples"] for shard in manifest["shards"]) == manifest["samples"] == 20
    assert len(manifest["shards"][0]["sha256"]) == len(manifest["source_fingerprint"]) == 64


def test_the_store_of_other_data_is_not_replaced(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    other = write_images(tmp_path / "elsewhere", 5)
    with pytest.raises(
        ValueError, match=r"store to be the store of 'tiny' from .*elsewhere, but got that of 'tiny' from"
    ):
        build_store(other, tmp_path / "store", SIZE)
    with pytest.raises(ValueError, match="choose another folder, or delete this one"):
        build_store(replace(data, name="huge"), tmp_path / "store", SIZE)
    assert len(open_store(tmp_path / "store")) == 20


def test_what_a_killed_process_left_is_removed(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    old, new = (tmp_path / "store/shards" / f"00000.bin.{n}.tmp" for n in (1, 2))
    old.write_bytes(b"half")
    new.write_bytes(b"half")
    os.utime(old, (1, 1))
    build_store(data, tmp_path / "store", (5, 5))
    assert not old.exists()
    assert new.exists()  # perhaps of a process that is at work


def test_a_store_as_it_should_be_is_only_read(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    build_store(data, tmp_path / "store", SIZE)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before


def test_changed_labels_need_no_decoding(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    before = times_of_shards(tmp_path / "store")
    relabelled = replace(data, targets=data.targets.flip(0))
    build_store(relabelled, tmp_path / "store", SIZE)
    assert times_of_shards(tmp_path / "store") == before
    assert torch.equal(open_store(tmp_path / "store").targets, data.targets.flip(0))


@pytest.mark.parametrize("workers", [1, 2])
def test_unreadable_images_are_left_out_and_listed(damaged: ImageData, tmp_path: Path, workers: int) -> None:
    stored = build_store(damaged, tmp_path / "store", SIZE, workers=workers)
    kept = [i for i in range(20) if i not in (3, 11)]
    assert stored.ids == tuple(damaged.ids[i] for i in kept)
    assert torch.equal(stored.targets, damaged.targets[kept])
    np.testing.assert_array_equal(pixels(stored)[5], decode(tmp_path / "images/006.png", SIZE))
    lines = (tmp_path / "store/unreadable.csv").read_text().splitlines()
    assert lines[0] == "image,reason"
    assert lines[1].startswith("003.png,")
    assert lines[2] == "011.png,no such file"
    assert stored.notes[-1] == "Dropped 2 unreadable images."
    assert open_store(tmp_path / "store").ids == stored.ids


def test_equal_names_and_labels_do_not_hide_another_order(data: ImageData, tmp_path: Path) -> None:
    """Ids that are no paths: only the places in the shards tell that images changed places."""
    plain = replace(
        data.select([0, 4, 8]), ids=("a", "b", "c"), targets=data.targets[[0, 0, 0]], split=data.split[:3] * 0
    )
    build_store(plain, tmp_path / "store", SIZE)
    turned = replace(plain, images=data.select([8, 0, 4]).images)
    np.testing.assert_array_equal(pixels(build_store(turned, tmp_path / "store", SIZE)), freshly_decoded(turned))
    np.testing.assert_array_equal(pixels(open_store(tmp_path / "store")), freshly_decoded(turned))


def test_a_mended_image_comes_back(damaged: ImageData, tmp_path: Path) -> None:
    build_store(damaged, tmp_path / "store", SIZE)
    for name in ("003.png", "011.png"):
        Image.new("RGB", (9, 12)).save(tmp_path / "images" / name)
    assert len(build_store(damaged, tmp_path / "store", SIZE)) == 20
    assert not (tmp_path / "store/unreadable.csv").exists()


def test_damage_in_the_store_is_found(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    damaged = shard(tmp_path / "store", 1)
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    open_store(tmp_path / "store")
    with pytest.raises(ValueError, match=r"00001-.*\.bin does not match its manifest\. Delete it"):
        open_store(tmp_path / "store", verify=True)
    damaged.write_bytes(content[:-1])
    length = len(content)
    with pytest.raises(ValueError, match=rf"00001-.*\.bin to be a shard of {length:,} bytes, but got {length - 1:,}"):
        open_store(tmp_path / "store")
    damaged.unlink()
    with pytest.raises(ValueError, match=rf"00001-.*\.bin to be a shard of {length:,} bytes, but got 0"):
        open_store(tmp_path / "store")


def test_a_damaged_manifest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="build_store makes one"):
        open_store(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="manifest of a store, but got text that is not JSON"):
        open_store(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(ValueError, match="of version 1, but got version None"):
        open_store(tmp_path)
    (tmp_path / "manifest.json").write_text('{"version": 99}')
    with pytest.raises(ValueError, match="of version 1, but got version 99"):
        open_store(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("samples.npz", b"junk"), ("samples.npz", b"PK\3\4"), ("ids.json", b"{"), ("manifest.json", b'{"version": 1}')],
)
def test_damaged_files_of_a_store(data: ImageData, tmp_path: Path, name: str, content: bytes) -> None:
    build_store(data, tmp_path / "store", SIZE)
    (tmp_path / "store" / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"store to be a whole store, but got damage .*; build it again"):
        open_store(tmp_path / "store")
    build_store(data, tmp_path / "store", SIZE)  # as the message says
    assert open_store(tmp_path / "store", verify=True).ids == data.ids
