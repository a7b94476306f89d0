from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from helpers.tables import has_note
from rectifier.data.dataset import ImageData
from rectifier.data.folder import read_folder
from rectifier.data.table import IMAGE_SUFFIXES


def fill(root: Path, folders: Mapping[str, int], suffix: str = ".png") -> Path:
    """Write so many files of different content into each folder; folders are read without decoding any image."""
    for folder, files in folders.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for number in range(files):
            (root / folder / f"{number:03d}{suffix}").write_text(f"{folder} {number}")
    return root


def classes_of(data: ImageData) -> dict[str, str]:
    return {name: data.space.classes[0][k] for name, k in zip(data.ids, data.targets[:, 0].tolist(), strict=True)}


class TestClasses:
    def test_one_folder_per_class(self, tmp_path: Path) -> None:
        data = read_folder(fill(tmp_path / "pets", {"dog": 30, "cat": 10, "äffchen": 3}), seed=1)
        assert data.name == "pets"
        assert data.space.names == ("class",)
        assert data.space.classes == (("cat", "dog", "äffchen"),)
        assert all(name.split("/")[0] == kind for name, kind in classes_of(data).items())
        assert len(data) == 43
        assert all((data.images.root / path).is_file() for path in data.images.paths)
        assert all(int(count.min()) >= 1 for part in ("train", "validation", "test") for count in data.counts(part))
        assert data.notes == ("Split drawn with seed 1, stratified over all labels: 0.8/0.1/0.1.",)

    def test_numbers_sort_by_value_and_the_label_has_a_name(self, tmp_path: Path) -> None:
        data = read_folder(fill(tmp_path, {"10": 4, "9": 4, "007": 4}), label="digit")
        assert data.space.names == ("digit",)
        assert data.space.classes == (("007", "9", "10"),)

    def test_seed_and_shares(self, tmp_path: Path) -> None:
        fill(tmp_path, {"a": 40, "b": 20})
        one = read_folder(tmp_path, seed=3, shares="0.5/0.25/0.25")
        assert torch.bincount(one.split).tolist() == [30, 15, 15]
        assert read_folder(tmp_path, seed=3, shares=(0.5, 0.25, 0.25)).fingerprint == one.fingerprint
        assert not torch.equal(read_folder(tmp_path, seed=4, shares=(0.5, 0.25, 0.25)).split, one.split)
        with pytest.raises(ValueError, match="Expected shares to be three numbers"):
            read_folder(tmp_path, shares="half")

    def test_deeper_folders_belong_to_their_class(self, tmp_path: Path) -> None:
        data = read_folder(fill(tmp_path, {"cat/indoor/old": 2, "cat": 1, "dog/outdoor": 3, "dog/train": 1}))
        assert sorted(classes_of(data).values()) == ["cat"] * 3 + ["dog"] * 4
        assert "cat/indoor/old/000.png" in data.ids

    def test_hidden_files_and_files_that_are_no_images(self, tmp_path: Path) -> None:
        fill(tmp_path, {"cat": 4, "dog": 4, ".git/objects": 3, "cat/.thumbnails": 2, "dog/@eaDir": 0})
        for name in ("cat/.DS_Store", "cat/._000.png", "cat/Thumbs.db", ".hidden.png"):
            (tmp_path / name).write_text("x")
        clean = read_folder(tmp_path)
        assert len(clean) == 8
        assert not has_note(clean, "Ignored")
        for name in ("cat/notes.txt", "dog/label", "readme.md", "stray.png"):
            (tmp_path / name).write_text("x")
        data = read_folder(tmp_path)
        assert data.fingerprint == clean.fingerprint
        assert has_note(data, "Ignored 3 non-image files.")

    def test_suffixes(self, tmp_path: Path) -> None:
        for suffix in (*IMAGE_SUFFIXES, ".JPG", ".Png"):
            assert len(read_folder(fill(tmp_path / suffix, {"a": 2, "b": 1}, suffix))) == 3

    def test_an_empty_folder_is_no_class(self, tmp_path: Path) -> None:
        fill(tmp_path, {"cat": 4, "dog": 4, "bird": 0, "fish": 2}, ".png")
        for file in (tmp_path / "fish").iterdir():
            file.rename(file.with_suffix(".txt"))
        data = read_folder(tmp_path)
        assert data.space.classes == (("cat", "dog"),)
        assert has_note(data, "Ignored 2 folders without images (bird, fish).")

    def test_too_rare(self, tmp_path: Path) -> None:
        data = read_folder(fill(tmp_path, {"common": 20, "rare": 2}))
        assert has_note(data, "Too rare to be in every split: class=rare (2 images).")
        assert data.counts("train")[0].tolist()[1] == 2


class TestParts:
    @pytest.mark.parametrize("validation", ["val", "valid", "Validation", "dev"])
    def test_train_validation_test(self, tmp_path: Path, validation: str) -> None:
        data = read_folder(fill(tmp_path, {"train/cat": 5, "train/dog": 4, f"{validation}/cat": 2, "test/dog": 3}))
        assert [data.counts(part)[0].tolist() for part in ("train", "validation", "test")] == [[5, 4], [2, 0], [0, 3]]
        assert all(name.split("/")[1] == kind for name, kind in classes_of(data).items())
        assert data.notes == ("The folders hold the split.",)

    def test_without_validation_it_is_drawn_from_train(self, tmp_path: Path) -> None:
        fill(tmp_path, {"train/cat": 40, "train/dog": 3, "test/cat": 5, "test/dog": 5})
        data = read_folder(tmp_path, seed=2)
        assert data.counts("test")[0].tolist() == [5, 5]
        assert data.counts("validation")[0].tolist() == [4, 1]
        assert has_note(data, "a tenth of train was drawn for it with seed 2")
        assert all(name.startswith("train/") for name in data.part("validation").ids)

    def test_without_train(self, tmp_path: Path) -> None:
        fill(tmp_path, {"val/cat": 5, "val/dog": 5, "test/cat": 5, "train/cat": 0})
        with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + " to be a folder with images in train"):
            read_folder(tmp_path)

    def test_classes_that_are_called_like_parts(self, tmp_path: Path) -> None:
        data = read_folder(fill(tmp_path, {"test": 4, "train": 4, "car": 4}))
        assert data.space.classes == (("car", "test", "train"),)

    def test_parts_next_to_other_folders(self, tmp_path: Path) -> None:
        fill(tmp_path, {"train/cat": 5, "train/dog": 4, "test/cat": 2, "__MACOSX/train": 2})
        with pytest.raises(ValueError, match=re.escape(str(tmp_path)) + ".* but got both 'test' and '__MACOSX'"):
            read_folder(tmp_path)


class TestBroken:
    def test_nothing_in_it(self, tmp_path: Path) -> None:
        message = re.escape(str(tmp_path)) + r" to be a folder with one folder of images per class, .*\.png"
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path)
        fill(tmp_path, {"cat": 3, "dog": 3}, ".txt")
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path)

    def test_a_flat_folder_of_images(self, tmp_path: Path) -> None:
        fill(tmp_path, {".": 3})
        message = rf"^{tmp_path} has images but no subfolders per class\. Use a table .* images={tmp_path}, or sort"
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path)

    def test_one_class_only(self, tmp_path: Path) -> None:
        fill(tmp_path, {"images": 3, "empty": 0})
        message = (
            re.escape(str(tmp_path)) + " to be a folder with at least two classes, but got only images of 'images'"
        )
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path)

    def test_a_file_in_place_of_a_class(self, tmp_path: Path) -> None:
        fill(tmp_path, {"cat": 3, "dog": 3})
        (tmp_path / "bird").write_text("no folder")
        data = read_folder(tmp_path)
        assert data.space.classes == (("cat", "dog"),)
        assert has_note(data, "Ignored 1 non-image file.")
