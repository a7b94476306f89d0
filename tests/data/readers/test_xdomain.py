from __future__ import annotations

from pathlib import Path

import pytest

from helpers import fakes
from rectifier.data.dataset import ImageFiles
from rectifier.data.readers.xdomain import LABELS, xdomain


def test_nine_labels_with_their_classes(tmp_path: Path) -> None:
    fakes.write_xdomain(tmp_path)
    data = xdomain(tmp_path)
    assert data.space.names == LABELS == fakes.XDOMAIN_LABELS
    assert data.space.sizes == (2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert data.space.classes[1] == ("colour-0", "colour-1", "colour-2")
    for a, size in enumerate(data.space.sizes):
        expected = [-1 if (i, a) == (7, 1) else i % size for i in range(60)]
        assert data.targets[:, a].tolist() == expected
    assert data.name == "xdomain"
    assert data.notes[-1] == "54 classes; the paper counts 178."


def test_images_lie_below_the_folder_images(tmp_path: Path) -> None:
    folder = fakes.write_xdomain(tmp_path)
    data = xdomain(tmp_path)
    assert isinstance(data.images, ImageFiles)
    assert data.images.root == folder / "images"
    assert data.ids == data.images.paths == tuple(f"shop/{i:04d}.jpg" for i in range(60))
    assert all((data.images.root / path).is_file() for path in data.images.paths)


def test_the_split_of_the_table_is_taken(tmp_path: Path) -> None:
    fakes.write_xdomain(tmp_path, split=True)
    data = xdomain(tmp_path)
    assert data.split.tolist() == [0, 1, 2] * 20
    assert "split" not in data.space.names
    assert data.fingerprint == xdomain(tmp_path, seed=5).fingerprint


def test_without_one_it_is_drawn_in_the_papers_shares(tmp_path: Path) -> None:
    fakes.write_xdomain(tmp_path, images=600)
    first, again, other = (xdomain(tmp_path, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    sizes = [len(first.part(part)) for part in ("train", "validation", "test")]
    for size, share in zip(sizes, (155_467, 10_000, 80_000), strict=True):
        assert abs(size / 600 - share / 245_467) < 0.05
    assert all(counts.min() > 0 for part in ("train", "validation", "test") for counts in first.counts(part))
    halves = xdomain(tmp_path, shares="0.5/0.25/0.25")
    assert abs(len(halves.part("train")) - 300) < 30


@pytest.mark.parametrize("column", ["image", "sleeve-length"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    header = path.read_text().splitlines()[0]
    fakes.change_line(path, 1, header.replace(column, "other"))
    with pytest.raises(ValueError, match=rf"{path}.* to be .*, but got '{column}'"):
        xdomain(tmp_path)
