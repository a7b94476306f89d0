from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers import fakes
from rectifier.data.dataset import ImageFiles
from rectifier.data.readers.celeba import celeba

ATTRIBUTES = "list_attr_celeba.txt"
PARTITION = "list_eval_partition.txt"


def test_forty_binary_labels_in_the_order_of_the_file(tmp_path: Path) -> None:
    fakes.write_celeba(tmp_path, (5, 3, 2))
    data = celeba(tmp_path)
    assert data.space.names == tuple(fakes.CELEBA_ATTRIBUTES)
    assert data.space.classes == (("no", "yes"),) * 40
    assert (data.targets.numpy() == (fakes.celeba_signs(10) == 1)).all()
    assert data.targets.dtype == data.split.dtype == torch.int64
    assert data.ids == tuple(f"{i:06d}.jpg" for i in range(1, 11))
    assert data.notes == ("Official partition of 10 of the 202,599 images.",)


def test_the_images_are_where_the_reader_says(tmp_path: Path) -> None:
    fakes.write_celeba(tmp_path, (5, 3, 2))
    images = celeba(tmp_path).part("test").images
    assert isinstance(images, ImageFiles)
    assert images.paths == ("000009.jpg", "000010.jpg")
    with Image.open(images.root / images.paths[0]) as image:
        assert image.size == (9, 11)
        assert np.abs(np.asarray(image).astype(int) - [144, 0, 0]).max() <= 4


def test_the_partition_is_matched_by_name_not_by_row(tmp_path: Path) -> None:
    folder = fakes.write_celeba(tmp_path, (5, 3, 2))
    lines = (folder / PARTITION).read_text().splitlines()
    (folder / PARTITION).write_text("\n".join(lines[::-1]))
    assert celeba(tmp_path).split.tolist() == [0] * 5 + [1] * 3 + [2] * 2


def test_the_papers_split(tmp_path: Path) -> None:
    fakes.write_celeba(tmp_path, (49, 6, 4))
    official, data = celeba(tmp_path), celeba(tmp_path, split="paper")
    assert data.part("test").ids == official.part("validation").ids
    assert (data.part("test").targets == official.part("validation").targets).all()
    held_out, train = data.part("validation").ids, data.part("train").ids
    assert len(held_out) == round(49 * 10_000 / 162_770) == 3
    assert sorted(held_out + train) == sorted(official.part("train").ids)
    assert not set(official.part("test").ids) & set(data.ids)
    assert len(set(data.ids)) == len(data) == 55
    assert data.name == "celeba:split=paper"
    assert data.notes == (
        "The paper's split: 3 official training images for validation (seed 0), the official validation images for"
        " test. 4 official test images are dropped.",
    )


def test_the_seed_draws_the_papers_validation_images(tmp_path: Path) -> None:
    fakes.write_celeba(tmp_path, (100, 1, 1))
    first, again, other = (celeba(tmp_path, split="paper", seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.part("validation").ids != other.part("validation").ids
    assert celeba(tmp_path, seed=1).fingerprint == celeba(tmp_path, seed=2).fingerprint


def test_an_unknown_split(tmp_path: Path) -> None:
    message = "Expected split to be one of 'official', 'paper', but got 'papers'. Did you mean 'paper'?"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        celeba(tmp_path, split="papers")


def test_a_missing_partition(tmp_path: Path) -> None:
    path = fakes.write_celeba(tmp_path) / PARTITION
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"^{path} does not exist. Get the"):
        celeba(tmp_path)


def row(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    """Change the words of line 5, the third image."""

    def damage(path: Path) -> None:
        words = path.read_text().splitlines()[4].split()
        fakes.change_line(path, 5, " ".join(change(words)))

    return damage


@pytest.mark.parametrize(
    ("damage", "line", "message"),
    [
        (lambda path: fakes.change_line(path, 1, "many"), 1, "to be the number of rows, but got 'many'"),
        (row(lambda words: words[:-1]), 5, "to be an image name and 40 values, but got 39 values"),
        (row(lambda words: [*words, "1"]), 5, "to be an image name and 40 values, but got 41 values"),
        (
            row(lambda words: ["000001.jpg", *words[1:]]),
            5,
            "to be an image named once, but got '000001.jpg', also on line 3",
        ),
        (row(lambda words: [*words[:-1], "2"]), 5, "to be values of 1 or -1, but got '2' for '000003.jpg'"),
        (lambda path: fakes.change_line(path, 5, b"000003.jpg \xff"), 5, "to be UTF-8 text, but got the byte 0xff"),
        (
            lambda path: fakes.change_line(path, 2, "Bald Bangs Bald"),
            2,
            "to be a header of different names, but got 'Bald' twice",
        ),
        (lambda path: fakes.change_line(path, 2, None), 2, "to be a header of different names, but got '1' twice"),
        # Without its header the first image would be taken for it.
    ],
)
def test_broken_attributes(tmp_path: Path, damage: Callable[[Path], None], line: int, message: str) -> None:
    path = fakes.write_celeba(tmp_path) / ATTRIBUTES
    damage(path)
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, line)} {re.escape(message)}"):
        celeba(tmp_path)


@pytest.mark.parametrize("said", [49, 51])
def test_a_wrong_count(tmp_path: Path, said: int) -> None:
    path = fakes.write_celeba(tmp_path) / ATTRIBUTES
    fakes.change_line(path, 1, str(said))
    message = f"^Expected {path} to be a list of {said} images, as its first line says, but got 50.$"
    with pytest.raises(ValueError, match=message):
        celeba(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ", line 1, to be the number of rows, but got ''"),
        ("50\n", " to be a list with a header, but got the end of the file"),
    ],
)
def test_attributes_that_end_too_early(tmp_path: Path, content: str, message: str) -> None:
    path = fakes.write_celeba(tmp_path) / ATTRIBUTES
    path.write_text(content)
    with pytest.raises(ValueError, match=f"^Expected {path}{message}"):
        celeba(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("000003.jpg 3", "to be an image name and 0, 1, 2, but got '000003.jpg 3'"),
        ("000003.jpg 0 0", "to be an image name and 0, 1, 2, but got '000003.jpg 0 0'"),
        ("000099.jpg 0", "to be an image of list_attr_celeba.txt, but got '000099.jpg'"),
        ("000002.jpg 0", "to be an image named once, but got '000002.jpg' again"),
        (b"\xe9.jpg 0", "to be UTF-8 text, but got the byte 0xe9"),
    ],
)
def test_a_broken_partition(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = fakes.write_celeba(tmp_path) / PARTITION
    fakes.change_line(path, 3, text)
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 3)} {re.escape(message)}"):
        celeba(tmp_path)


def test_a_partition_without_an_image(tmp_path: Path) -> None:
    path = fakes.write_celeba(tmp_path) / PARTITION
    fakes.change_line(path, 3, None)
    wanted = "a list of all 50 images of list_attr_celeba.txt, but got no entry for '000003.jpg'."
    with pytest.raises(ValueError, match=f"^Expected {path} to be {re.escape(wanted)}$"):
        celeba(tmp_path)


def test_blank_lines_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    folder = fakes.write_celeba(tmp_path)
    whole = celeba(tmp_path).fingerprint
    for name in (ATTRIBUTES, PARTITION):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\n\n") + b"\n  \n")
    assert celeba(tmp_path).fingerprint == whole
    fakes.change_line(folder / PARTITION, 5, "000003.jpg 7")  # the number of the line counts the blank ones
    with pytest.raises(ValueError, match=fakes.line_of(folder / PARTITION, 5)):
        celeba(tmp_path)
