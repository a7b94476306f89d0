"""The store contains the decoded images, resumes after an interruption, notices changes, survives damaged images."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rectifier import LabelSpace
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.decode import decode
from rectifier.data.folder import read_folder
from rectifier.data.store import build, build_store, is_store, open_store, shards
from rectifier.data.store.shards import StoredImages

SIZE = (10, 8)


def write_images(folder: Path, count: int = 20) -> ImageData:
    folder.mkdir()
    random = np.random.default_rng(0)
    names = tuple(f"{i:03d}.png" for i in range(count))
    for name in names:
        Image.fromarray(random.integers(0, 256, (12, 9, 3), np.uint8)).save(folder / name)
    space = LabelSpace.from_names({"kind": ["a", "b"], "colour": ["x", "y", "z"]})
    targets = torch.stack([torch.arange(count) % 2, torch.arange(count) % 4 - 1], 1)
    split = torch.arange(count) % 3
    return ImageData("tiny", ImageFiles(folder, names), targets, space, split, names, ("A note.",))


@pytest.fixture
def data(tmp_path: Path) -> ImageData:
    return write_images(tmp_path / "images")


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "SHARD_BYTES", 6 * 3 * SIZE[0] * SIZE[1])  # four shards of about six images


def decoded_anew(data: ImageData) -> np.ndarray:
    assert isinstance(data.images, ImageFiles)
    return np.stack([decode(data.images.root / path, SIZE) for path in data.images.paths])


def pixels(data: ImageData) -> np.ndarray:
    assert isinstance(data.images, StoredImages)
    return data.images.gather(np.arange(len(data)))


def shard(folder: Path, number: int, suffix: str = ".bin") -> Path:
    (found,) = (folder / "shards").glob(f"{number:05d}-*{suffix}")
    return found


def times_of_shards(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in sorted((folder / "shards").glob("*.bin"))}


@pytest.mark.parametrize("workers", [1, 2])
def test_store_holds_what_decoding_gives(data: ImageData, tmp_path: Path, workers: int) -> None:
    stored = build_store(data, tmp_path / "store", SIZE, workers=workers)
    np.testing.assert_array_equal(pixels(stored), decoded_anew(data))
    assert len(times_of_shards(tmp_path / "store")) == 4
    assert stored.fingerprint == data.fingerprint


def test_gather_in_any_order_and_after_select(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 2))
    assert isinstance(stored.images, StoredImages)
    np.testing.assert_array_equal(stored.images.gather(order), decoded_anew(data)[order])
    part = stored.part("test")
    np.testing.assert_array_equal(pixels(part), decoded_anew(data)[data.indices("test").numpy()])
    assert stored.images.gather(np.array([], np.int64)).shape == (0, *SIZE, 3)


def test_open_without_the_source(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    expected = decoded_anew(data)
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


class FullDisk:
    """Lets some files be written whole; half of the next one is written, and then the disk is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
        self.left, self.write = files, Path.write_bytes
        monkeypatch.setattr(Path, "write_bytes", lambda path, content: self.write_some(path, content))

    def write_some(self, path: Path, content: bytes) -> int:
        self.left -= 1
        if self.left >= 0:
            return self.write(path, content)
        self.write(path, memoryview(content)[: len(content) // 2])
        raise OSError("disk full")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_build_that_fails_at_any_file_leaves_no_half_file(
    data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that has its name is whole; there is a store when all are there; a second build completes it."""
    (tmp_path / "images/003.png").write_bytes(b"no image")
    build_store(data, tmp_path / "whole", SIZE)
    whole = contents(tmp_path / "whole")
    assert len(whole) == 2 * 4 + 4  # shards with records; samples, ids, unreadable images, manifest
    for files in range(len(whole)):
        store = tmp_path / f"store{files}"
        with monkeypatch.context() as patch:
            FullDisk(patch, files)
            with pytest.raises(OSError, match="disk full"):
                build_store(data, store, SIZE, workers=1)
        left = contents(store)
        assert left == {name: whole[name] for name in left}
        assert len(left) == files
        assert not is_store(store)
        before = times_of_shards(store)
        build_store(data, store, SIZE, workers=1)
        assert contents(store) == whole
        after = times_of_shards(store)
        done = [name for name in before if name.replace(".bin", ".json") in " ".join(left)]
        assert [after[name] for name in done] == [before[name] for name in done], "finished work is kept"


@pytest.mark.parametrize("files", [2, 10])
def test_a_killed_build_leaves_no_half_file(data: ImageData, tmp_path: Path, files: int) -> None:
    """A kill in the middle of a shard or of the manifest leaves a draft, which no later build mistakes for a file."""
    killed = f"""
import os, pathlib
from rectifier.data.folder import read_folder
from rectifier.data.store import build, build_store
build.SHARD_BYTES, write, done = {build.SHARD_BYTES}, pathlib.Path.write_bytes, []
def write_some(path, content):
    done.append(path)
    write(path, content if len(done) <= {files} else memoryview(content)[: len(content) // 2])
    if len(done) > {files}:
        os.kill(os.getpid(), 9)
pathlib.Path.write_bytes = write_some
build_store(read_folder(pathlib.Path({str(tmp_path / "classes")!r})), {str(tmp_path / "store")!r}, {SIZE}, workers=1)
"""
    for row, name in enumerate(data.ids):
        target = tmp_path / "classes" / "ab"[row % 2] / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "images" / name).rename(target)
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -9
    assert not is_store(tmp_path / "store")
    source = read_folder(tmp_path / "classes")
    build_store(source, tmp_path / "whole", SIZE)
    whole, left = contents(tmp_path / "whole"), contents(tmp_path / "store")
    (draft,) = (name for name in left if name.endswith(".tmp"))
    assert {name: whole[name] for name in left if name != draft} == {n: c for n, c in left.items() if n != draft}
    build_store(source, tmp_path / "store", SIZE)
    assert contents(tmp_path / "store") == whole | {draft: left[draft]}
    np.testing.assert_array_equal(pixels(open_store(tmp_path / "store", verify=True)), decoded_anew(source))


def test_a_damaged_shard_is_rebuilt(data: ImageData, tmp_path: Path) -> None:
    """Without its record, with a wrong one, or cut short."""
    build_store(data, tmp_path / "store", SIZE)
    shard(tmp_path / "store", 1, ".json").unlink()
    shard(tmp_path / "store", 3, ".json").write_text("[]")
    cut = shard(tmp_path / "store", 2)
    cut.write_bytes(cut.read_bytes()[:-5])
    np.testing.assert_array_equal(pixels(build_store(data, tmp_path / "store", SIZE)), decoded_anew(data))


def test_a_changed_source_is_noticed(data: ImageData, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build_store(data, tmp_path / "store", SIZE)
    before = times_of_shards(tmp_path / "store")
    changed = tmp_path / "images/007.png"
    Image.fromarray(np.full((12, 9, 3), 9, np.uint8)).save(changed)
    os.utime(changed, ns=(1, 1))
    capsys.readouterr()
    stored = build_store(data, tmp_path / "store", SIZE)
    after = times_of_shards(tmp_path / "store")
    assert "1 of 4 shards out of date" in capsys.readouterr().err
    assert len([name for name in before if after.get(name) != before[name]]) == 1
    assert len(after) == 4  # what the changed shard was is removed
    assert (pixels(stored)[7] == 9).all()


def test_every_fact_about_a_file_is_in_the_name_of_its_shard(data: ImageData, tmp_path: Path) -> None:
    path = tmp_path / "images/000.png"
    one = data.select([0])

    def name(**options: object) -> str:
        build_store(one, tmp_path / "store", **{"size": SIZE, **options})
        return shard(tmp_path / "store", 0).name

    seen = [name(), name(size=SIZE[::-1]), name(fit="pad")]
    before = path.stat()
    os.utime(path, ns=(1, 1))
    seen.append(name())
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"x")  # of the same length, and with the old time of change
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    seen.append(name())
    path.write_bytes(content + b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    seen.append(name())
    renamed = path.rename(path.with_name("renamed.png"))
    one = replace(one, images=ImageFiles(tmp_path / "images", (renamed.name,)))
    seen.append(name())
    assert len(set(seen)) == len(seen) == 7


def test_an_interrupted_rebuild_leaves_the_old_store_whole(
    data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_store(data, tmp_path / "store", SIZE)
    with monkeypatch.context() as patch:
        FullDisk(patch, 4)
        with pytest.raises(OSError, match="disk full"):
            build_store(data, tmp_path / "store", SIZE[::-1], workers=1)
    opened = open_store(tmp_path / "store", verify=True)
    assert opened.ids == data.ids
    np.testing.assert_array_equal(pixels(opened), decoded_anew(data))
    assert len(times_of_shards(tmp_path / "store")) == 6
    assert pixels(build_store(data, tmp_path / "store", SIZE[::-1])).shape == (20, *SIZE[::-1], 3)
    assert len(times_of_shards(tmp_path / "store")) == 4


def test_rows_may_move_come_and_go(data: ImageData, tmp_path: Path) -> None:
    """Where a row stands in the table decides nothing; one that comes or goes changes one shard."""
    build_store(data, tmp_path / "store", SIZE)
    before = times_of_shards(tmp_path / "store")
    order = [*range(10, 20), *range(10)]
    moved = data.select(order)
    np.testing.assert_array_equal(pixels(build_store(moved, tmp_path / "store", SIZE)), decoded_anew(moved))
    assert times_of_shards(tmp_path / "store") == before
    fewer = data.select([i for i in range(20) if i != 4])
    np.testing.assert_array_equal(pixels(build_store(fewer, tmp_path / "store", SIZE)), decoded_anew(fewer))
    assert len(set(before) - set(times_of_shards(tmp_path / "store"))) == 1


@pytest.mark.parametrize(
    ("images", "side", "shards"), [(1, 64, 1), (400, 32, 2), (5000, 32, 32), (10**6, 32, 64), (10**6, 224, 512)]
)
def test_number_of_shards(monkeypatch: pytest.MonkeyPatch, images: int, side: int, shards: int) -> None:
    """Few images are shared among processes, and many do not open thousands of files."""
    monkeypatch.setattr(build, "SHARD_BYTES", 16 << 20)
    assert build.shard_count(images, 3 * side * side) == shards


def test_one_image_in_several_rows(data: ImageData, tmp_path: Path) -> None:
    twice = data.select([*range(20), 3, 3])
    np.testing.assert_array_equal(pixels(build_store(twice, tmp_path / "store", SIZE)), decoded_anew(twice))


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


def test_a_folder_holds_one_set_of_images(data: ImageData, tmp_path: Path) -> None:
    """Data whose shards were replaced fails loudly; it never shows the images of other data."""
    train = build_store(data.part("train"), tmp_path / "store", SIZE)
    test = build_store(data.part("test"), tmp_path / "store", SIZE)
    np.testing.assert_array_equal(pixels(test), decoded_anew(data.part("test")))
    with pytest.raises(FileNotFoundError, match=r"00000-.*The store was rebuilt for other images"):
        pixels(train)


def test_a_store_as_it_should_be_is_only_read(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")}
    build_store(data, tmp_path / "store", SIZE)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "store").rglob("*")} == before


def test_stored_data_travels_to_another_process(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    expected = pixels(stored)
    copy = pickle.loads(pickle.dumps(stored))
    np.testing.assert_array_equal(pixels(copy), expected)


def test_parts_share_their_maps(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    assert stored.part("train").images.maps is stored.part("test").images.maps


def test_changed_labels_need_no_decoding(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    before = times_of_shards(tmp_path / "store")
    relabelled = replace(data, targets=data.targets.flip(0))
    build_store(relabelled, tmp_path / "store", SIZE)
    assert times_of_shards(tmp_path / "store") == before
    assert torch.equal(open_store(tmp_path / "store").targets, data.targets.flip(0))


@pytest.fixture
def damaged(data: ImageData, tmp_path: Path) -> ImageData:
    (tmp_path / "images/003.png").write_bytes(b"no image")
    (tmp_path / "images/011.png").unlink()
    return data


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


def test_unreadable_images_as_an_error(damaged: ImageData, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"a folder of 20 readable images, but got 2 unreadable images, such as 003\.png .*unreadable\.csv",
    ):
        build_store(damaged, tmp_path / "store", SIZE, unreadable="raise")
    assert len(times_of_shards(tmp_path / "store")) == 4  # the work on the others is kept


def test_equal_names_and_labels_do_not_hide_another_order(data: ImageData, tmp_path: Path) -> None:
    """Ids that are no paths: only the places in the shards tell that images changed places."""
    plain = replace(
        data.select([0, 4, 8]), ids=("a", "b", "c"), targets=data.targets[[0, 0, 0]], split=data.split[:3] * 0
    )
    build_store(plain, tmp_path / "store", SIZE)
    turned = replace(plain, images=data.select([8, 0, 4]).images)
    np.testing.assert_array_equal(pixels(build_store(turned, tmp_path / "store", SIZE)), decoded_anew(turned))
    np.testing.assert_array_equal(pixels(open_store(tmp_path / "store")), decoded_anew(turned))


def test_a_store_keeps_its_size(data: ImageData, tmp_path: Path) -> None:
    Image.new("RGB", (30, 40)).save(tmp_path / "images/019.png")
    build_store(data, tmp_path / "store")
    moved = data.select([19, *range(19)])
    assert pixels(build_store(moved, tmp_path / "store")).shape[1:] == (12, 9, 3)


def test_a_relative_folder_outlives_another_working_folder(
    data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored = build_store(data, "store", SIZE)
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(pixels(stored), decoded_anew(data))


def test_nothing_to_store(data: ImageData, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data 'tiny' to be of at least one image, but got none"):
        build_store(data.select([]), tmp_path / "store")


def test_a_mended_image_comes_back(damaged: ImageData, tmp_path: Path) -> None:
    build_store(damaged, tmp_path / "store", SIZE)
    for name in ("003.png", "011.png"):
        Image.new("RGB", (9, 12)).save(tmp_path / "images" / name)
    assert len(build_store(damaged, tmp_path / "store", SIZE)) == 20
    assert not (tmp_path / "store/unreadable.csv").exists()


def test_no_readable_image_at_all(data: ImageData, tmp_path: Path) -> None:
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"a readable image, but got none"):
        build_store(data, tmp_path / "store")
    with pytest.raises(ValueError, match=r"readable images, but got none of 20"):
        build_store(data, tmp_path / "store", SIZE)


def test_damage_in_the_store_is_found(data: ImageData, tmp_path: Path) -> None:
    build_store(data, tmp_path / "store", SIZE)
    damaged = shard(tmp_path / "store", 1)
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    open_store(tmp_path / "store")
    with pytest.raises(ValueError, match=r"00001-.*\.bin to be the shard of the manifest, but got another checksum"):
        open_store(tmp_path / "store", verify=True)
    damaged.write_bytes(content[:-1])
    length = len(content)
    with pytest.raises(ValueError, match=rf"00001-.*\.bin to be a shard of {length:,} bytes, but got {length - 1:,}"):
        open_store(tmp_path / "store")
    damaged.unlink()
    with pytest.raises(ValueError, match=rf"00001-.*\.bin to be a shard of {length:,} bytes, but got 0"):
        open_store(tmp_path / "store")


def test_a_manifest_that_is_none(tmp_path: Path) -> None:
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


def test_size_of_the_first_image_by_default(data: ImageData, tmp_path: Path) -> None:
    assert pixels(build_store(data, tmp_path / "store")).shape[1:] == (12, 9, 3)


def test_a_large_first_image_is_shrunk(tmp_path: Path) -> None:
    data = write_images(tmp_path / "images", 2)
    for name in data.ids:
        Image.new("RGB", (896, 448)).save(tmp_path / "images" / name)
    assert pixels(build_store(data, tmp_path / "store")).shape[1:] == (112, 224, 3)


def test_images_in_memory_need_no_store(tmp_path: Path) -> None:
    array = ImageArray(np.full((3, 8, 8, 1), 5, np.uint8))
    space = LabelSpace.from_names({"kind": ["a", "b"]})
    data = ImageData("tiny", array, torch.tensor([[0], [1], [1]]), space, torch.tensor([0, 1, 2]))
    assert build_store(data, tmp_path / "store").images is array
    resized = build_store(data, tmp_path / "store", 16).images
    assert isinstance(resized, ImageArray)
    assert resized.pixels.shape == (3, 16, 16, 1)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(fit="strech"), "fit to be one of .*Did you mean 'stretch'"),
        (dict(unreadable="ignore"), "unreadable to be one of 'skip', 'raise'"),
        (dict(workers=0), "workers to be a positive integer, but got 0"),
        (dict(size="64x"), "size to be a number of pixels up to 4096, or height and width as 64x48, but got '64x'"),
        (dict(size=-3), "size to be .* but got -3"),
        (dict(size=1_000_000), "size to be a number of pixels up to 4096"),
        (dict(size=(3, 4, 5)), "size to be"),
    ],
)
def test_wrong_options(data: ImageData, tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_store(data, tmp_path / "store", **options)


def test_a_store_is_not_stored_again(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE)
    with pytest.raises(ValueError, match="files, to be decoded, but got a store's"):
        build_store(stored, tmp_path / "other")


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
        np.testing.assert_array_equal(pixels(stored), decoded_anew(data))
    assert handed_back == [mmap.MADV_DONTNEED] * 3 * 4  # after every read of each of four shards


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


def test_decoding_processes_import_no_torch() -> None:
    code = "import sys; import rectifier.data.decode; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
