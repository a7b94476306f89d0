from __future__ import annotations

import re
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


def test_the_root_may_be_the_folder_itself(tmp_path: Path) -> None:
    assert xdomain(fakes.write_xdomain(tmp_path)).fingerprint == xdomain(tmp_path).fingerprint


def test_a_missing_table_says_how_it_must_look(tmp_path: Path) -> None:
    places = f"{tmp_path}/xdomain/labels.csv or {tmp_path}/labels.csv"
    with pytest.raises(FileNotFoundError, match=f"^Expected {places} to be there.*not public.*columns image, category"):
        xdomain(tmp_path)


def test_a_missing_folder_of_images(tmp_path: Path) -> None:
    folder = fakes.write_xdomain(tmp_path)
    (folder / "images").rename(folder / "pictures")
    with pytest.raises(FileNotFoundError, match=f"^Expected {folder}/images/shop/0000.jpg to be an image"):
        xdomain(tmp_path)


def row(path: Path, line: int) -> list[str]:
    return path.read_text().splitlines()[line - 1].split(",")


def test_a_row_too_short_or_too_long(tmp_path: Path) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    words = row(path, 9)
    for wrong in (words[:-1], [*words, "more"]):
        fakes.change_line(path, 9, ",".join(wrong))
        message = f"to be a row of 10 values, as the header has, but got {len(wrong)}."
        with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 9)} {message}$"):
            xdomain(tmp_path)


def test_an_image_named_twice(tmp_path: Path) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    fakes.change_line(path, 9, ",".join(row(path, 4)))
    message = "to be an image named once, but got 'shop/0002.jpg', also on line 4."
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 9)} {re.escape(message)}$"):
        xdomain(tmp_path)


def test_a_row_without_an_image(tmp_path: Path) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    fakes.change_line(path, 9, ",".join(["", *row(path, 9)[1:]]))
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 9)} column 'image' to be an image path"):
        xdomain(tmp_path)


@pytest.mark.parametrize("column", ["image", *LABELS])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    header = row(path, 1)
    header[header.index(column)] = "other"
    fakes.change_line(path, 1, ",".join(header))
    with pytest.raises(ValueError, match=rf"{path}.* to be .*, but got '{column}'"):
        xdomain(tmp_path)


@pytest.mark.parametrize("value", ["trian", "", "3"])
def test_a_wrong_part_is_not_passed_over(tmp_path: Path, value: str) -> None:
    path = fakes.write_xdomain(tmp_path, split=True) / "labels.csv"
    fakes.change_line(path, 9, ",".join([*row(path, 9)[:-1], value]))
    message = f"column 'split' to be train, validation or test, but got '{value}'."
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 9)} {message}"):
        xdomain(tmp_path)


def test_a_byte_that_is_no_text(tmp_path: Path) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    fakes.change_line(path, 10, ",".join(row(path, 10)).encode().replace(b"colour", b"c\xf6lour"))
    with pytest.raises(
        ValueError, match=f"^Expected {fakes.line_of(path, 10)} to be utf-8 text, but got the byte 0xf6"
    ):
        xdomain(tmp_path)


def test_a_label_without_any_value(tmp_path: Path) -> None:
    path = fakes.write_xdomain(tmp_path, images=3) / "labels.csv"
    for line in (2, 3, 4):
        words = row(path, line)
        fakes.change_line(path, line, ",".join([*words[:2], "", *words[3:]]))
    with pytest.raises(ValueError, match="Expected column 'colour' to be a label with at least one value"):
        xdomain(tmp_path)


def test_a_header_only(tmp_path: Path) -> None:
    path = fakes.write_xdomain(tmp_path) / "labels.csv"
    path.write_text(path.read_text().splitlines()[0])
    with pytest.raises(
        ValueError, match=f"^Expected {path} to be a table with at least one row, but got a header only"
    ):
        xdomain(tmp_path)
