from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rectifier import LabelSpace

NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zs"]), min_size=1)
NAMES = st.lists(NAME, min_size=1, max_size=5, unique=True)


@given(labels=NAMES, data=st.data())
def test_json_keeps_everything(labels: list[str], data: st.DataObject) -> None:
    space = LabelSpace.from_names({label: data.draw(NAMES) for label in labels})
    assert LabelSpace.from_json(space.to_json()) == space


def test_json_in_a_file(tmp_path: Path) -> None:
    space = LabelSpace.from_names({"Größe": ["klein", "groß"]})
    space.to_json(tmp_path / "labels.json")
    assert LabelSpace.from_json(tmp_path / "labels.json") == space
    assert LabelSpace.from_json(str(tmp_path / "labels.json")) == space


def test_sizes_and_offsets() -> None:
    space = LabelSpace.from_sizes([2, 5, 3])
    assert (space.sizes, space.offsets, space.columns, len(space)) == ((2, 5, 3), (0, 2, 7), 10, 3)


def test_inferred_classes_are_sorted_and_blanks_are_missing() -> None:
    table = {
        "number": [10, 2, None, 2],
        "with a blank": [1.0, float("nan"), 0.0, 1.0],  # as pandas reads whole numbers with a blank among them
        "text": ["b", " ", "a ", "b"],
        "flag": [True, False, None, True],
    }
    space = LabelSpace.infer(table)
    assert space.classes == (("2", "10"), ("0", "1"), ("a", "b"), ("False", "True"))
    assert space.encode(table).tolist() == [[1, 1, 1, 1], [0, -1, -1, 0], [-1, 0, 0, -1], [0, 1, 1, 1]]


class Unknown:
    """Like pandas' NA: a comparison gives no truth value."""

    def __ne__(self, other: object) -> Unknown:  # type: ignore[override]
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


def test_numbers_of_other_libraries_are_the_classes_they_stand_for() -> None:
    table = {
        "numpy": np.array([1.0, 0.0, np.nan], dtype=np.float32),
        "torch": torch.tensor([3, 3, 1]),
        "nullable": [Unknown(), np.int64(7), 7],
    }
    space = LabelSpace.infer(table)
    assert space.classes == (("0", "1"), ("1", "3"), ("7",))
    assert space.encode(table).tolist() == [[1, 1, -1], [0, 1, 0], [-1, 0, 0]]
    assert LabelSpace.from_sizes(list(np.array([2, 3]))).sizes == (2, 3)


@pytest.mark.parametrize(
    "table",
    [
        {"label0": [1, 2], "label1": ["a", None]},
        [{"label0": 1, "label1": "a"}, {"label0": 2, "label1": None}],
        [(1, "a"), (2, "")],
        np.array([[1, "a"], [2, None]], dtype=object),
    ],
)
def test_every_form_of_a_table(table: object) -> None:
    space = LabelSpace.infer(table)
    assert space == LabelSpace.from_names({"label0": [1, 2], "label1": ["a"]})
    assert space.encode(table).tolist() == [[0, 0], [1, -1]]


def test_column_names_may_be_numbers() -> None:
    table = {0: [1, 2], 1: [3, 3]}
    assert LabelSpace.infer(table).encode(table).tolist() == [[0, 0], [1, 0]]


def test_encode_gives_targets() -> None:
    space = LabelSpace.from_names({"a": ["x", "y"], "b": [0, 1, 2]})
    targets = space.encode({"b": [2, "1"], "a": ["y", None], "other": [1, 2]})
    assert targets.dtype == torch.int64
    assert targets.tolist() == [[1, 2], [-1, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelSpace.from_sizes([2, 0]), r"Expected sizes\[1\] to be a positive integer, but got 0"),
        (lambda: LabelSpace.from_sizes([]), "at least one label, but got none"),
        (
            lambda: LabelSpace.from_names({"a": ["x", "x"]}),
            "classes of label 'a' to be all different, but got 'x' twice",
        ),
        (lambda: LabelSpace.from_names({"a": "xy"}), "classes of label 'a' to be a list of names"),
        (lambda: LabelSpace.from_names({"a": []}), "Label 'a' has no classes"),
        (lambda: LabelSpace(("a", "a"), (("x",), ("y",))), "label names to be all different, but got 'a' twice"),
        (lambda: LabelSpace(("a",), ()), "one list for each of the 1 labels, but got 0"),
        (lambda: LabelSpace.infer({"a": [None, ""]}), "column 'a' to be a label with at least one value"),
        (lambda: LabelSpace.from_json('{"labels": [{"nme": 1}]}'), "label space JSON to be"),
        (lambda: LabelSpace.infer([[1, 2], [3]]), "table to be columns by name, or rows of one length, but got list"),
    ],
)
def test_a_wrong_label_space_says_why(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_value_outside_the_label_space_says_where() -> None:
    space = LabelSpace.from_names({"colour": ["red", "green"]})
    with pytest.raises(
        ValueError, match=r"label 'colour' to be one of its 2 classes, but got 'gren' in row 1.*'green'"
    ):
        space.encode({"colour": ["red", "gren"]})
    with pytest.raises(ValueError, match=r"none named 'colour'. Did you mean 'colours'"):
        space.encode({"colours": ["red"]})
    with pytest.raises(ValueError, match=r"every column to be of one length, but got lengths \[1, 2\]"):
        LabelSpace.from_sizes([2, 2]).encode({"label0": [0], "label1": [0, 1]})
