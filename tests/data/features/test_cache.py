"""Cached features equal a loop over images; each content is computed once, whatever happens to files and cache."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.features import SIZE, WEIGHTS, FakeNetwork, digest, maps, photographs, table_of
from oracles_features import gathered, vector, view_of
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.data.features import CachedFeatures, blocks, cached_features, unreadable_images
from rectifier.data.store import build_store


def features(data: ImageData, network: FakeNetwork | None = None, **options: Any) -> CachedFeatures:
    found = cached_features(data, network or FakeNetwork(), **options).images
    assert isinstance(found, CachedFeatures)
    return found


def computed(data: ImageData, **options: Any) -> int:
    """Return how many images are computed now."""
    network = FakeNetwork()
    cached_features(data, network, **options)
    return network.seen


@pytest.fixture
def data(tmp_path: Path) -> ImageData:
    return photographs(tmp_path / "photos", 30)


def block_files(cache: Path) -> list[Path]:
    return sorted(cache.glob(f"*/*{blocks.SUFFIX}"))


@pytest.mark.parametrize("resident", [True, False])
def test_features_equal_the_loop(data: ImageData, resident: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not resident:
        monkeypatch.setattr(blocks, "RESIDENT_BYTES", 0)
        monkeypatch.setattr(blocks, "_MOST_OPEN", 2)
    paths = [data.images.root / path for path in data.images.paths]
    expected = [[vector(view_of(path, SIZE, view, digest(path)), WEIGHTS) for path in paths] for view in range(4)]
    found = features(data, views=4)
    assert (len(found), found.shape, found.views, found.dtype) == (30, (7,), 4, np.float32)
    index = np.array([3, 29, 0, 3, 16])
    np.testing.assert_allclose(found.gather(index), gathered(expected[0], index), rtol=1e-4, atol=1e-4)
    train = data.indices("train").numpy()
    views = np.arange(len(train)) % 4
    mixed = np.stack([expected[view][row] for view, row in zip(views, train, strict=True)])
    np.testing.assert_allclose(found.gather(train, views), mixed, rtol=1e-4, atol=1e-4)
    part = found.select(train[::2])
    np.testing.assert_array_equal(part.gather(np.arange(3), 1), found.gather(train[:6:2], 1))
    assert found.gather(np.array([], np.int64)).shape == (0, 7)


def test_maps_are_kept_in_half_precision(data: ImageData) -> None:
    found = features(data, maps())
    assert (found.shape, found.dtype) == ((3, 2, 2), np.float16)
    values = found.gather(np.arange(30))
    assert (values.shape, values.dtype) == ((30, 3, 2, 2), np.float32)
    plain = features(data).gather(np.arange(30))[:, :3]
    np.testing.assert_allclose(values, plain[:, :, None, None] * np.ones((2, 2)), rtol=1e-3)


def test_only_training_images_have_several_views(data: ImageData) -> None:
    found = features(data, views=2)
    with pytest.raises(ValueError, match="every image to be one with view 1, but got image 2, which has fewer"):
        found.gather(np.array([0, 2]), 1)
    with pytest.raises(ValueError, match="view to be from 0 to 1, but got 2"):
        found.gather(np.array([0]), 2)


def test_nothing_is_computed_twice(data: ImageData, capsys: pytest.CaptureFixture[str]) -> None:
    assert computed(data) == 30
    assert "30 images: features by a fake network on no core, " in capsys.readouterr().err
    assert computed(data) == 0
    assert computed(data.select(range(10))) == 0  # another table
    assert computed(data, views=2) == len(data.indices("train"))
    assert capsys.readouterr().err.count("images/s.") == 1


def test_a_renamed_image_is_known_and_a_changed_one_is_not(data: ImageData) -> None:
    before = features(data)
    root, paths = data.images.root, list(data.images.paths)
    (root / paths[4]).rename(root / "other.png")
    paths[4] = "other.png"
    assert computed(table_of(root, paths)) == 0
    Image.new("RGB", (5, 5), "red").save(root / paths[7])
    changed = table_of(root, paths)
    assert computed(changed) == 1
    assert features(changed).checksum() != before.checksum()
    np.testing.assert_allclose(features(changed).gather(np.array([7]))[0, :3], [255, 0, 0])


def test_equal_images_are_computed_once(data: ImageData) -> None:
    root, paths = data.images.root, data.images.paths
    shutil.copy(root / paths[0], root / paths[1])
    assert computed(table_of(root, [*paths, paths[5]])) == 29


def test_files_that_did_not_change_are_not_read_again(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    before = features(data)
    opened = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *a, **b: opened.append(path.suffix) or real(path, *a, **b))
    assert features(data).checksum() == before.checksum()
    assert ".png" not in opened
    os.utime(data.images.root / data.images.paths[0])
    assert features(data).checksum() == before.checksum()
    assert opened.count(".png") == 1


def test_a_file_that_changed_a_moment_ago_is_read_again(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rectifier.data.features.contents._SETTLED", 10**12)
    features(data)
    path = data.images.root / data.images.paths[0]
    status, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest(path) not in {row.tobytes() for row in features(data.select(range(1, 30))).digests}
    assert features(data).digests[0].tobytes() == digest(path)


@pytest.mark.parametrize("change", ["key", "layers", "size", "fit"])
def test_features_of_other_weights_are_never_mixed_in(data: ImageData, change: str) -> None:
    other = {"key": {"key": "weights-2"}, "layers": {"layers": {"last": (3,)}}, "size": {"size": (6, 8)}, "fit": {}}
    first, network = features(data), FakeNetwork(**other[change])
    if change == "size":
        network.layers = {"last": (3,)}
    second = features(data, network, fit="crop" if change == "fit" else "stretch")
    assert network.seen == 30
    assert first.checksum() != second.checksum()
    assert features(data).checksum() == first.checksum()


def test_images_in_memory_and_in_a_store(data: ImageData, tmp_path: Path) -> None:
    stored = build_store(data, tmp_path / "store", SIZE, workers=1)
    pixels = stored.images.gather(np.arange(30))
    array = replace(data, images=ImageArray(pixels))
    found = [features(each).gather(np.arange(30)) for each in (stored, array)]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], [vector(each, WEIGHTS) for each in pixels], rtol=1e-4, atol=1e-4)
    assert computed(array) == 0
    grey = replace(data, images=ImageArray(pixels[..., :1]))
    assert computed(grey) == 30
    same = features(grey).gather(np.arange(30))[:, :3]
    np.testing.assert_allclose(same, same[:, :1].repeat(3, 1))


def test_odd_images(tmp_path: Path) -> None:
    deep = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    odd = {
        "grey": Image.new("L", (5, 5), 40),
        "deep": Image.fromarray(deep),
        "tiny": Image.new("RGB", (1, 1), (1, 2, 3)),
        "clear": Image.new("RGBA", (4, 4), (0, 0, 0, 0)),
    }
    for name, image in odd.items():
        image.save(tmp_path / f"{name}.png")
    found = features(table_of(tmp_path, [f"{name}.png" for name in odd]), views=3)
    np.testing.assert_allclose(found.gather(np.arange(4))[:, :3][[0, 2, 3]], [[40] * 3, [1, 2, 3], [255] * 3])
    assert found.gather(np.arange(2), 2).shape == (2, 7)


def damage(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: damage(path, -1),
        lambda path: damage(path, 30),
        lambda path: damage(path, 0),
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(b""),
    ],
    ids=["row", "key", "magic", "truncated", "empty"],
)
def test_a_damaged_block_is_computed_again(
    data: ImageData, cache: Path, harm: Callable[[Path], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = features(data).gather(np.arange(30))
    whole = block_files(cache)
    assert len(whole) == 4
    harm(whole[1])
    capsys.readouterr()
    network = FakeNetwork()
    again = features(data, network)
    assert "1 block of cached features damaged" in capsys.readouterr().err
    assert 6 <= network.seen <= 8
    np.testing.assert_allclose(again.gather(np.arange(30)), before, rtol=1e-5)
    assert computed(data) == 0
    assert block_files(cache) == whole


def test_an_interrupted_extraction_resumes(data: ImageData, cache: Path) -> None:
    network = FakeNetwork(stops_after=20)
    with pytest.raises(KeyboardInterrupt):
        cached_features(data, network)
    assert not list(cache.glob("*/*.claim"))
    assert not list(cache.glob("*/.*"))
    assert computed(data) == 30 - 16  # two blocks are whole
    np.testing.assert_array_equal(features(data).gather(np.arange(30)).shape, (30, 7))


def test_unreadable_images_are_dropped_and_listed(data: ImageData, capsys: pytest.CaptureFixture[str]) -> None:
    root, paths = data.images.root, data.images.paths
    assert unreadable_images(data) == frozenset()
    (root / paths[3]).write_bytes(b"no image")
    (root / paths[9]).write_bytes(b"no image")
    (root / paths[8]).unlink()
    found = cached_features(data, FakeNetwork())
    assert len(found) == len(found.images) == 27
    assert found.notes == ("Dropped 3 unreadable images.",)
    assert found.ids == tuple(path for path in paths if path not in (paths[3], paths[8], paths[9]))
    assert unreadable_images(data) == {paths[3], paths[8], paths[9]}
    assert "3 of 30 images cannot be read; see " in capsys.readouterr().err
    left = cached_features(data.select([0, 8]), FakeNetwork())
    assert left.images.gather(np.array([0])).shape == (1, 7)
    photographs(root, 30)  # repaired
    assert len(cached_features(data, FakeNetwork())) == 30
    assert unreadable_images(data) == frozenset()


def test_unreadable_images_can_raise_after_all_others_are_computed(data: ImageData) -> None:
    (data.images.root / data.images.paths[3]).unlink()
    with pytest.raises(ValueError, match=r"1 of 30 images cannot be read, e.g. 0003.png. Repair or remove it"):
        cached_features(data, FakeNetwork(), unreadable="raise")
    assert computed(data) == 0
    with pytest.raises(ValueError, match=r"1 of 1 image cannot be read, .* No image is left. .*\.csv gives the reason"):
        cached_features(data.select([3]), FakeNetwork())


def test_an_image_that_changes_meanwhile_is_not_cached(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    network = FakeNetwork()
    contents = "rectifier.data.features.contents.load"
    path = data.images.root / data.images.paths[0]
    from rectifier.data.decode import load

    def change(where: Path, size: Any) -> Any:
        if where == path:
            path.write_bytes(path.read_bytes() + b" ")
        return load(where, size)

    with monkeypatch.context() as patch:
        patch.setattr(contents, change)
        found = cached_features(data, network)
    assert len(found) == 29
    assert computed(data) == 1


def test_a_full_disk(data: ImageData, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = blocks.write_bytes, []

    def full(path: Path, content: bytes, **options: Any) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(path)
        real(path, content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "write_bytes", full)
        with pytest.raises(OSError, match=r"The disk is full: .* need another 0.0 MiB in .*RECTIFIER_CACHE") as caught:
            cached_features(data, FakeNetwork())
        assert caught.value.errno == errno.ENOSPC
    assert len(block_files(cache)) == 2
    assert computed(data) == 14
    with monkeypatch.context() as patch:  # known before anything is computed
        usage = shutil.disk_usage(cache)
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))
        network = FakeNetwork("weights-3")
        with pytest.raises(OSError, match="The disk is full"):
            cached_features(data, network)
        assert network.seen == 0


def test_a_cache_that_cannot_be_written(data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"Features cannot be cached in .*\(Not a directory\).* set RECTIFIER_CACHE"):
        cached_features(data, FakeNetwork())


def test_a_claim_that_cannot_be_written(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("rectifier.data.features.extract.Claim.take", refused)
    with pytest.raises(OSError, match=r"Features cannot be cached in .*\(Permission denied\)"):
        cached_features(data, FakeNetwork())


def test_features_travel_to_other_processes(data: ImageData) -> None:
    found = features(data, views=2)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.gather(np.arange(30)), found.gather(np.arange(30)))
    assert again.checksum() == found.checksum()
    assert len(pickle.dumps(found)) < 20_000


def test_a_deleted_cache_is_named(data: ImageData, cache: Path) -> None:
    found = pickle.loads(pickle.dumps(features(data)))
    shutil.rmtree(cache)
    with pytest.raises(FileNotFoundError, match="The cache of features was deleted"):
        found.gather(np.arange(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(views=0), "views to be a positive integer, but got 0"),
        (dict(fit="squeeze"), "fit to be one of"),
        (dict(unreadable="ignore"), "unreadable to be one of"),
    ],
)
def test_wrong_options(data: ImageData, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cached_features(data, FakeNetwork(), **options)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (FakeNetwork(interpolation="cubic"), "interpolation to be one of .*Did you mean 'bicubic'"),
        (FakeNetwork(layers={"last": (3,), "maps": (3, 2, 2)}), r"layers to be vectors, or one map \(C, h, w\)"),
        (FakeNetwork(layers={"last": (5,)}), r"the features to be of shape \(4, 5\), but got \(4, 3\)"),
    ],
)
def test_networks_that_cannot_serve(data: ImageData, network: FakeNetwork, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cached_features(data, network)


def test_features_that_are_not_finite(data: ImageData, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.features.WEIGHTS", WEIGHTS * np.nan)
    with pytest.raises(ValueError, match="all features to be finite numbers"):
        cached_features(data, FakeNetwork())
    assert not block_files(cache)


def test_no_images_and_features_of_features(data: ImageData) -> None:
    with pytest.raises(ValueError, match="'photos' has no images"):
        cached_features(data.select([]), FakeNetwork())
    with pytest.raises(ValueError, match="the images of 'photos' to be pixels, but got features"):
        cached_features(cached_features(data, FakeNetwork()), FakeNetwork())


def test_data_keeps_its_labels(data: ImageData) -> None:
    found = cached_features(data, FakeNetwork())
    assert torch.equal(found.targets, data.targets)
    assert found.fingerprint == data.fingerprint
    assert found.part("test").images.shape == (7,)
