"""The split of a table: given in a column, completed, or drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.tables import has_note, photos, table, write_csv
from rectifier.data.table import read_table


def test_a_column_that_only_looks_like_a_split(tmp_path: Path) -> None:
    toys = {"set": ["car", "train", "car", "train"], "x": list("abab")}
    with pytest.raises(
        ValueError,
        match=r"line 2, column 'set' to be train, .* 'car'\. If this column is not a split, set ignore='set'",
    ):
        table(tmp_path, toys)
    assert table(tmp_path, toys, labels="set,x").space.classes[0] == ("car", "train")
    assert table(tmp_path, toys, ignore="set").space.names == ("x",)


@pytest.mark.parametrize("name", ["split", "SET", "fold"])
def test_spellings(tmp_path: Path, name: str) -> None:
    values = ["train", " Training", "TRAIN ", "val", "Valid", "validation", "dev", "test", "Testing"]
    data = table(tmp_path, {"kind": list("abcabcabc"), name: values})
    assert data.split.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]
    assert data.space.names == ("kind",)
    assert data.notes == ("Column 'image' holds the image paths.", f"Column {name!r} holds the split.")


def test_a_column_of_any_name(tmp_path: Path) -> None:
    columns = {"kind": list("abab"), "where": ["train", "val", "test", "train"]}
    assert table(tmp_path, columns, split="where").split.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("value", ["trian", "", "holdout"])
def test_an_unknown_part(tmp_path: Path, value: str) -> None:
    values = ["train", "val", "test", value, "train"]
    hint = ".*Did you mean 'train'" if value == "trian" else ""
    for name, options in (("split", {}), ("where", {"split": "where"})):
        message = rf"t\.csv, line 5, column '{name}' to be train, validation or test, but got '{value}'{hint}"
        with pytest.raises(ValueError, match=message):
            table(tmp_path, {"kind": list("ababa"), name: values}, **options)


def test_a_split_column_that_names_no_part_is_a_label_with_a_note(tmp_path: Path) -> None:
    data = table(tmp_path, {"kind": list("ababab"), "fold": [0, 1, 2, 0, 1, 2]})
    assert data.space.names == ("kind", "fold")
    assert has_note(data, "Column 'fold' is a label: none of its values is train, validation or test")


def test_without_validation_it_is_drawn_from_train(tmp_path: Path) -> None:
    kinds = ["a"] * 50 + ["b"] * 8 + ["c"] * 3
    columns = {"kind": kinds * 2, "split": ["train"] * 61 + ["test"] * 61}
    data = table(tmp_path, columns, seed=4)
    assert data.split[61:].tolist() == [2] * 61
    for kind, most in (("a", 6), ("b", 2), ("c", 2)):
        held = [p for k, p in zip(kinds, data.split[:61].tolist(), strict=True) if k == kind]
        assert 1 <= held.count(1) <= most
        assert set(held) == {0, 1}
    assert has_note(data, "a tenth of train was drawn for it with seed 4")
    assert torch.equal(data.split, table(tmp_path, columns, seed=4).split)
    assert not torch.equal(data.split, table(tmp_path, columns, seed=5).split)


def test_groups_stay_together_when_validation_is_drawn(tmp_path: Path) -> None:
    who = [str(row // 4) for row in range(80)]
    columns = {"kind": list("abcd") * 20, "who": who, "split": ["train"] * 60 + ["test"] * 20}
    data = table(tmp_path, columns, group="who")
    assert {1} < set(data.split.tolist())
    assert all(len(set(data.split[row : row + 4].tolist())) == 1 for row in range(0, 80, 4))


def test_without_test(tmp_path: Path) -> None:
    data = table(tmp_path, {"kind": list("abab"), "split": ["train", "train", "val", "val"]})
    assert data.split.tolist() == [0, 0, 1, 1]
    assert has_note(data, "There is no test part")


def test_without_train(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"t\.csv to be a table with train in its column 'split', but got none"):
        table(tmp_path, {"kind": list("abab"), "split": ["val", "val", "test", "test"]})


def test_drawn(tmp_path: Path) -> None:
    """1:4000 would need 4000 files; the split itself is tested with those in test_split.py."""
    kinds = ["a"] * 300 + ["b"] * 3
    data = table(tmp_path, {"kind": kinds}, seed=2)
    assert [count.tolist() for part in ("train", "validation", "test") for count in data.counts(part)] == [
        [240, 1],
        [30, 1],
        [30, 1],
    ]
    assert not has_note(data, "Too rare")
    again = table(tmp_path, {"kind": kinds}, seed=2)
    assert (again.fingerprint, again.notes) == (data.fingerprint, data.notes)
    assert not torch.equal(data.split, table(tmp_path, {"kind": kinds}, seed=3).split)


def test_classes_that_cannot_be_in_every_part_are_noted(tmp_path: Path) -> None:
    data = table(tmp_path, {"kind": ["a"] * 30 + ["b"] * 2 + ["c"]})
    assert has_note(data, "Too rare to be in every split: kind=b (2 images), kind=c (1 image).")
    data = table(tmp_path, {"kind": ["a"] * 30 + list("bcdef")})
    assert has_note(data, "kind=b (1 image), kind=c (1 image), kind=d (1 image) and 2 other classes.")


def test_identical_images_with_different_labels_are_noted(tmp_path: Path) -> None:
    names = photos(tmp_path, 30)
    for name in names[3:5]:
        (tmp_path / name).write_text("the same")
    path = write_csv(tmp_path / "t.csv", {"image": names, "kind": list("ab") * 15})
    note = "1 group of identical images has different labels, e.g. 3.jpg and 4.jpg. Check them."
    assert note in read_table(path).notes


@pytest.mark.parametrize("shares", ["0.5/0.2/0.3", "0.5,0.2,0.3", [0.5, 0.2, 0.3], (5, 2, 3)])
def test_shares(tmp_path: Path, shares: Any) -> None:
    data = table(tmp_path, {"kind": list("ab") * 50}, shares=shares)
    assert torch.bincount(data.split).tolist() == [50, 20, 30]


@pytest.mark.parametrize(("shares", "parts"), [((0.8, 0.2, 0), [0, 1]), ("0.8/0/0.2", [0, 2]), ((1, 0, 0), [0])])
def test_a_part_of_share_zero_stays_empty(tmp_path: Path, shares: Any, parts: list[int]) -> None:
    data = table(tmp_path, {"kind": list("ab") * 10}, shares=shares)
    assert data.split.unique().tolist() == parts
    assert not has_note(data, "Too rare")


@pytest.mark.parametrize("shares", ["a/b/c", "0.8/0.2", 0.8, "0/0.5/0.5", None, [0.8, "x", 0.1]])
def test_wrong_shares(tmp_path: Path, shares: Any) -> None:
    with pytest.raises(ValueError, match="Expected shares to be three numbers for train, validation and test"):
        table(tmp_path, {"kind": list("abab")}, shares=shares)


def test_groups_stay_together(tmp_path: Path) -> None:
    who = [f"p{row // 3}" + " " * (row % 2) for row in range(90)] + [""] * 30
    data = table(tmp_path, {"kind": [row % 7 % 2 for row in range(120)], "who": who}, group="who")
    assert data.space.names == ("kind",)
    assert all(len(set(data.split[row : row + 3].tolist())) == 1 for row in range(0, 90, 3))
    assert len(set(data.split[90:].tolist())) == 3, "a blank is no group"
    assert has_note(data, "60 duplicate or grouped images were kept in the same split as their twins.")


@pytest.mark.parametrize("group", [None, "who"])
@pytest.mark.parametrize("seed", range(5))
def test_equal_images_stay_together(tmp_path: Path, group: str | None, seed: int) -> None:
    names = photos(tmp_path, 60)
    for row in range(0, 60, 3):
        (tmp_path / names[row]).write_text(f"one of {row // 6}")  # pairs of equal files: 0 and 3, 6 and 9, ...
    columns = {"image": names, "kind": list("ab") * 30, "who": [row // 2 for row in range(60)]}
    path = write_csv(tmp_path / "t.csv", columns)
    data = read_table(path, group=group, labels="kind", seed=seed)
    assert len(data.split.unique()) == 3
    assert all(data.split[row] == data.split[row + 3] for row in range(0, 60, 6))
    if group:
        assert all(data.split[row] == data.split[row + 1] for row in range(0, 60, 2))
