from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rectifier.data.dataset import PARTS, Decoded, ImageArray, ImageData, ImageFiles
from rectifier.labels.space import LabelSpace

SPACE = LabelSpace.from_names({"colour": ["red", "green", "blue"], "striped": ["no", "yes"]})


def make(**changes: Any) -> ImageData:
    """Six images; the pixels of image i are i."""
    pixels = np.arange(6, dtype=np.uint8)[:, None, None, None] * np.ones((6, 4, 5, 3), np.uint8)
    given = {
        "name": "tiny",
        "images": ImageArray(pixels),
        "targets": torch.tensor([[0, 1], [2, 0], [2, -1], [1, 1], [0, 0], [-1, 1]]),
        "space": SPACE,
        "split": torch.tensor([0, 2, 1, 0, 0, 2]),
        "ids": tuple("abcdef"),
    }
    return ImageData(**(given | changes))


def test_a_part_holds_its_own_samples_in_order() -> None:
    data = make()
    assert len(data) == 6
    assert [data.part(part).ids for part in PARTS] == [("a", "d", "e"), ("c",), ("b", "f")]
    test = data.part("test")
    assert test.targets.tolist() == [[2, 0], [-1, 1]]
    assert test.split.tolist() == [2, 2]
    assert isinstance(test.images, ImageArray)
    assert test.images.pixels[:, 0, 0, 0].tolist() == [1, 5]
    assert data.indices("train").tolist() == [0, 3, 4]


def test_select_takes_any_order_and_repeats() -> None:
    chosen = make().select([4, 0, 0, -1])
    assert chosen.ids == ("e", "a", "a", "f")
    assert chosen.targets.tolist() == [[0, 0], [0, 1], [0, 1], [-1, 1]]
    assert isinstance(chosen.images, ImageArray)
    assert chosen.images.pixels[:, 0, 0, 0].tolist() == [4, 0, 0, 5]
    assert len(make().select([])) == 0
    assert make().select([]).ids == ()


@pytest.mark.parametrize("kind", [list, torch.tensor, np.array])
def test_a_mask_is_not_taken_for_positions(kind: Any) -> None:
    mask = kind([False, False, True, True, False, False])
    with pytest.raises(TypeError, match=r"^Expected index to be positions, but got a mask; mask.nonzero\(\)"):
        make().select(mask)


def test_counts_leave_missing_labels_out() -> None:
    assert [c.tolist() for c in make().counts()] == [[2, 1, 2], [2, 3]]
    assert [c.tolist() for c in make().counts("train")] == [[2, 1, 0], [1, 2]]
    assert [c.tolist() for c in make().counts("validation")] == [[0, 0, 1], [0, 0]]


def test_an_unknown_part() -> None:
    for ask in (make().part, make().indices, make().counts):
        with pytest.raises(
            ValueError, match=r"^Expected part to be one of 'train', .* but got 'tests'. Did you mean 'test'"
        ):
            ask("tests")


def test_ids_default_to_positions() -> None:
    assert make(ids=()).ids == ("0", "1", "2", "3", "4", "5")


@pytest.mark.parametrize(
    "changes",
    [
        {"targets": torch.zeros(5, 2, dtype=torch.int64)},
        {"split": torch.zeros(7, dtype=torch.int64)},
        {"ids": ("a",)},
        {"images": ImageArray(np.zeros((5, 4, 4, 1), np.uint8))},
    ],
)
def test_everything_is_of_one_length(changes: dict[str, Any]) -> None:
    message = "^Expected data 'tiny' to be as many images as targets, split entries and ids, but got {'images': [56], "
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_a_target_out_of_range_is_named_with_label_and_row() -> None:
    targets = make().targets.clone()
    targets[3, 1] = 2
    with pytest.raises(ValueError, match=r"^Expected targets of label 'striped' to be below 2.*, but got 2 in row 3.$"):
        make(targets=targets)


@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 1)])
def test_targets_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"^Expected targets to be of shape \(N, 2\), one column per label, but got shape"
    ):
        make(targets=torch.zeros(shape, dtype=torch.int64))


def test_targets_that_are_no_indices() -> None:
    with pytest.raises(
        TypeError, match=r"^Expected targets to be an integer tensor of class indices, but got a torch.fl"
    ):
        make(targets=make().targets.float())


def test_targets_are_int64_and_have_a_column_per_label_however_they_come() -> None:
    one = LabelSpace.from_names({"colour": ["red", "green", "blue"]})
    column = make(targets=torch.tensor([0, 1, 2, 0, 1, -1], dtype=torch.int32), space=one)
    assert column.targets.shape == (6, 1)
    assert column.targets.dtype == torch.int64
    with pytest.raises(ValueError, match=r"^Expected targets of label 'colour' to be below 3.*, but got 3 in row 1.$"):
        make(targets=torch.tensor([0, 3, 2, 0, 1, 1]), space=one)


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_split_out_of_range(wrong: int) -> None:
    message = r"^Expected split to be 0 \(train\), 1 \(validation\) or 2 \(test\), but got \["
    with pytest.raises(ValueError, match=message):
        make(split=torch.tensor([0, 1, 2, 0, 0, wrong]))


@pytest.mark.parametrize(
    "split",
    [torch.tensor([0, 0.5, 1, 2, 0, 0]), torch.zeros(6, 1, dtype=torch.int64), torch.zeros(6, dtype=torch.bool)],
)
def test_a_split_of_another_kind(split: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^Expected split to be int64 of shape \(N,\), but got torch"):
        make(split=split)


def test_the_fingerprint_sees_all_that_training_depends_on() -> None:
    data = make()
    targets, split = data.targets.clone(), data.split.clone()
    targets[0, 0], split[0] = 1, 1
    renamed = LabelSpace.from_names({"colour": ["red", "green", "teal"], "striped": ["no", "yes"]})
    others = [
        make(targets=targets),
        make(split=split),
        make(ids=tuple("abcdeg")),
        make(space=renamed),
        data.select([1, 0, 2, 3, 4, 5]),
        data.select(range(5)),
    ]
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 7
    assert all(len(other.fingerprint) == 16 for other in others)


def test_the_fingerprint_does_not_see_where_the_data_lie() -> None:
    files = [ImageFiles(Path(folder), tuple("abcdef")) for folder in ("here", "there")]
    assert len({make(images=images, name=str(i), notes=("x",) * i).fingerprint for i, images in enumerate(files)}) == 1
    assert make().fingerprint == make(targets=make().targets.t().contiguous().t()).fingerprint


def test_data_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        make().name = "other"  # type: ignore[misc]


def test_notes_stay_with_a_part() -> None:
    assert replace(make(), notes=("Drawn by seed 0.",)).part("test").notes == ("Drawn by seed 0.",)


# Images


@pytest.mark.parametrize(
    ("pixels", "got"),
    [
        (np.zeros((2, 4, 4, 3)), r"float64 of shape \(2, 4, 4, 3\)"),
        (np.zeros((2, 4, 4), np.uint8), r"uint8 of shape \(2, 4, 4\)"),
        (np.zeros((2, 3, 4, 4), np.uint8), r"uint8 of shape \(2, 3, 4, 4\)"),
    ],
)
def test_pixels_of_another_kind(pixels: Any, got: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected pixels to be uint8 of shape \(N, H, W, C\).*, but got {got}.$"):
        ImageArray(pixels)


def test_an_array_gives_its_images() -> None:
    images = make().images
    assert isinstance(images, ImageArray)
    assert isinstance(images, Decoded)
    assert images.shape == (4, 5, 3)
    gathered = images.gather(np.array([5, 1]))
    assert gathered.shape == (2, 4, 5, 3)
    assert gathered[:, 0, 0, 0].tolist() == [5, 1]


def test_files_are_not_decoded() -> None:
    files = ImageFiles(Path("absent"), ("a.jpg", "b.jpg", "c.jpg"))
    assert not isinstance(files, Decoded)
    assert files.select(np.array([2, 0])) == ImageFiles(Path("absent"), ("c.jpg", "a.jpg"))
    assert len(files) == 3
