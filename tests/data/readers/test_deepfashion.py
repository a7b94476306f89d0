from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from helpers import fakes
from rectifier.data.dataset import ImageFiles
from rectifier.data.readers.deepfashion import GROUPS, deepfashion

NAMES = [
    "texture/abstract",
    "texture/abstract chevron print",
    "fabric/cotton",
    "shape/a-line",
    "part/ankle strap",
    "style/athletic",
    "style/80s",
]
CLOTH, IMAGES, PARTITION = "Anno/list_attr_cloth.txt", "Anno/list_attr_img.txt", "Eval/list_eval_partition.txt"


def test_every_attribute_is_a_binary_label_of_its_group(tmp_path: Path) -> None:
    fakes.write_deepfashion(tmp_path)
    data = deepfashion(tmp_path)
    assert data.space.names == tuple(NAMES)
    assert data.space.classes == (("no", "yes"),) * 7
    assert data.notes == ("7 attributes of the groups texture, fabric, shape, part, style; official partition.",)


def test_one_is_yes_minus_one_is_no_and_zero_is_missing(tmp_path: Path) -> None:
    fakes.write_deepfashion(tmp_path)
    written = torch.from_numpy(fakes.deepfashion_values(9))
    targets = deepfashion(tmp_path).targets
    assert targets.dtype == torch.int64
    assert (targets == 1).equal(written == 1)
    assert (targets == 0).equal(written == -1)
    assert (targets == -1).equal(written == 0)
    assert {-1, 0, 1} == set(targets.flatten().tolist())


@pytest.mark.parametrize("group", ["texture", "style"])
def test_one_group_alone(tmp_path: Path, group: str) -> None:
    fakes.write_deepfashion(tmp_path)
    whole, part = deepfashion(tmp_path), deepfashion(tmp_path, groups=group)
    columns = [i for i, name in enumerate(NAMES) if name.startswith(group + "/")]
    assert part.space.names == tuple(NAMES[i] for i in columns)
    assert (part.targets == whole.targets[:, columns]).all()
    assert part.ids == whole.ids


def test_several_groups_keep_the_order_of_the_file(tmp_path: Path) -> None:
    fakes.write_deepfashion(tmp_path)
    assert deepfashion(tmp_path, groups="style/texture").space.names == (*NAMES[:2], *NAMES[5:])


def test_the_partition_is_matched_by_name_not_by_row(tmp_path: Path) -> None:
    fakes.write_deepfashion(tmp_path)
    data = deepfashion(tmp_path)
    assert data.split.tolist() == [0, 1, 2] * 3
    assert data.ids[0] == "img/Sheer_Blouse-1/img_00000001.jpg"
    assert len(set(data.ids)) == 9
    assert isinstance(data.images, ImageFiles)
    assert all((data.images.root / path).is_file() for path in data.images.paths)


def test_the_newer_name_of_the_folder(tmp_path: Path) -> None:
    fakes.write_deepfashion(tmp_path / "old")
    fakes.write_deepfashion(tmp_path / "new", anno="Anno_coarse")
    assert deepfashion(tmp_path / "old").fingerprint == deepfashion(tmp_path / "new").fingerprint
    assert deepfashion(tmp_path / "old" / "deepfashion").fingerprint == deepfashion(tmp_path / "old").fingerprint


@pytest.mark.parametrize(
    ("groups", "got"), [("textures", "'textures'. Did you mean 'texture'?"), ("", "''."), ("style/sleeve", "'sleeve'.")]
)
def test_an_unknown_group(tmp_path: Path, groups: str, got: str) -> None:
    listed = ", ".join(map(repr, GROUPS))
    with pytest.raises(ValueError, match=f"^{re.escape(f'Expected groups to be one of {listed}, but got {got}')}$"):
        deepfashion(tmp_path, groups=groups)


def test_a_group_without_attributes(tmp_path: Path) -> None:
    path = fakes.write_deepfashion(tmp_path) / CLOTH
    fakes.change_line(path, 5, "cotton 1")
    with pytest.raises(ValueError, match=f"^Expected {path} to be a list with attributes of fabric, but got none.$"):
        deepfashion(tmp_path, groups="fabric")


@pytest.mark.parametrize("file", [CLOTH, IMAGES, PARTITION])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    path = fakes.write_deepfashion(tmp_path) / file
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{path}.* (does not exist|exists). Request the"):
        deepfashion(tmp_path)


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        (CLOTH, 1, "seven", "to be the number of rows, but got 'seven'"),
        (CLOTH, 4, "floral 6", "to be an attribute and its type, 1 to 5, but got 'floral 6'"),
        (CLOTH, 4, "floral 0", "to be an attribute and its type, 1 to 5, but got 'floral 0'"),
        (CLOTH, 4, "floral", "to be an attribute and its type, 1 to 5, but got 'floral'"),
        (CLOTH, 4, "3", "to be an attribute and its type, 1 to 5, but got '3'"),
        (CLOTH, 4, "abstract 1", "to be an attribute named once, but got 'texture/abstract' again"),
        (IMAGES, 1, "", "to be the number of rows, but got 'image_name"),
        (IMAGES, 4, "img/x.jpg 1 1 1 1 1 1", "to be an image name and 7 values, but got 6 values"),
        (IMAGES, 4, "img/x.jpg 1 1 1 1 1 1 2", "to be values of 1 or -1 or 0, but got '2' for 'img/x.jpg'"),
        (PARTITION, 1, "nine", "to be the number of rows, but got 'nine'"),
        (PARTITION, 4, "img/x.jpg train", "to be an image of list_attr_img.txt, but got 'img/x.jpg'"),
        (PARTITION, 4, "img/x.jpg training", "to be an image name and train, val, test, but got 'img/x.jpg training'"),
    ],
)
def test_a_broken_line(tmp_path: Path, file: str, line: int, text: str | bytes, message: str) -> None:
    path = fakes.write_deepfashion(tmp_path) / file
    fakes.change_line(path, line, text)
    found = line if text else line + 1  # a blank line is passed over
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, found)} {re.escape(message)}"):
        deepfashion(tmp_path)


@pytest.mark.parametrize(
    ("file", "rows", "what"), [(CLOTH, 7, "attributes"), (IMAGES, 9, "images"), (PARTITION, 9, "images")]
)
@pytest.mark.parametrize("off", [-1, 999_991])
def test_a_wrong_count(tmp_path: Path, file: str, rows: int, what: str, off: int) -> None:
    path = fakes.write_deepfashion(tmp_path) / file
    fakes.change_line(path, 1, str(rows + off))
    wanted = f"a list of {rows + off:,} {what}, as its first line says, but got {rows}."
    with pytest.raises(ValueError, match=f"^Expected {path} to be {wanted}$"):
        deepfashion(tmp_path)
