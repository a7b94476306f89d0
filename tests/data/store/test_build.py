"""A store contains the decoded images, resumes after an interruption and notices changes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.stores import SIZE, freshly_decoded, pixels, shard, times_of_shards, write_images
from rectifier import LabelSpace
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.folder import read_folder
from rectifier.data.store import build, build_store, is_store, open_store


@pytest.mark.parametrize("workers", [1, 2])
def test_store_holds_what_decoding_gives(data: ImageData, tmp_path: Path, workers: int) -> None:
    stored = build_store(data, tmp_path / "store", SIZE, workers=workers)
    np.testing.assert_array_equal(pixels(stored), freshly_decoded(data))
    assert len(times_of_shards(tmp_path / "store")) == 4
    assert stored.fingerprint == data.fingerprint


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
    np.testing.assert_array_equal(pixels(open_store(tmp_path / "store", verify=True)), freshly_decoded(source))


def test_a_damaged_shard_is_rebuilt(data: ImageData, tmp_path: Path) -> None:
    """Without its record, with a wrong one, or cut short."""
    build_store(data, tmp_path / "store", SIZE)
    shard(tmp_path / "store", 1, ".json").unlink()
    shard(tmp_path / "store", 3, ".json").write_text("[]")
    cut = shard(tmp_path / "store", 2)
    cut.write_bytes(cut.read_bytes()[:-5])
    np.testing.assert_array_equal(pixels(build_store(data, tmp_path / "store", SIZE)), freshly_decoded(data))


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
    np.testing.assert_array_equal(pixels(opened), freshly_decoded(data))
    assert len(times_of_shards(tmp_path / "store")) == 6
    assert pixels(build_store(data, tmp_path / "store", SIZE[::-1])).shape == (20, *SIZE[::-1], 3)
    assert len(times_of_shards(tmp_path / "store")) == 4


def test_rows_may_move_come_and_go(data: ImageData, tmp_path: Path) -> None:
    """Where a row stands in the table decides nothing; one that comes or goes changes one shard."""
    build_store(data, tmp_path / "store", SIZE)
    before = times_of_shards(tmp_path / "store")
    order = [*range(10, 20), *range(10)]
    moved = data.select(order)
    np.testing.assert_array_equal(pixels(build_store(moved, tmp_path / "store", SIZE)), freshly_decoded(moved))
    assert times_of_shards(tmp_path / "store") == before
    fewer = data.select([i for i in range(20) if i != 4])
    np.testing.assert_array_equal(pixels(build_store(fewer, tmp_path / "store", SIZE)), freshly_decoded(fewer))
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
    np.testing.assert_array_equal(pixels(build_store(twice, tmp_path / "store", SIZE)), freshly_decoded(twice))


def test_unreadable_images_as_an_error(damaged: ImageData, tmp_path: Path) -> None:
    first = rf"{tmp_path}/images/003\.png"
    message = rf"^2 of 20 images cannot be read, e\.g\. {first}\. Repair or remove them, or set unreadable='skip'\."
    with pytest.raises(ValueError, match=rf"{message} .*unreadable\.csv gives the reason for each\.$"):
        build_store(damaged, tmp_path / "store", SIZE, unreadable="raise")
    assert len(times_of_shards(tmp_path / "store")) == 4  # the work on the others is kept


def test_a_store_keeps_its_size(data: ImageData, tmp_path: Path) -> None:
    Image.new("RGB", (30, 40)).save(tmp_path / "images/019.png")
    build_store(data, tmp_path / "store")
    moved = data.select([19, *range(19)])
    assert pixels(build_store(moved, tmp_path / "store")).shape[1:] == (12, 9, 3)


def test_nothing_to_store(data: ImageData, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^'tiny' has no images"):
        build_store(data.select([]), tmp_path / "store")


def test_no_readable_image_at_all(data: ImageData, tmp_path: Path) -> None:
    for path in (tmp_path / "images").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"None of the first 1,000 images can be read, e\.g\. .*000\.png"):
        build_store(data, tmp_path / "store")
    with pytest.raises(ValueError, match=r"20 of 20 images cannot be read, .* No image is left"):
        build_store(data, tmp_path / "store", SIZE)


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
    with pytest.raises(ValueError, match="These images are already in a store"):
        build_store(stored, tmp_path / "other")
