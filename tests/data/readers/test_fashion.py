from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from helpers import fakes
from rectifier.data.dataset import PARTS, ImageFiles
from rectifier.data.readers.fashion import LABELS, fashion


def test_eight_labels_with_their_classes(tmp_path: Path) -> None:
    fakes.write_fashion(tmp_path)
    data = fashion(tmp_path)
    assert data.space.names == LABELS == tuple(fakes.FASHION_HEADER.split(",")[1:-1])
    assert data.space.classes[0] == ("Men", "Women")
    assert data.space.classes[4] == ("Black", "Blue", "Navy Blue", "Red")
    assert data.space.classes[6] == ("2010", "2011", "2012", "2013")
    assert len(data) == len(set(data.ids)) == 96
    for name, targets in zip(data.ids, data.targets.tolist(), strict=True):
        written = fakes.fashion_row(int(name.removesuffix(".jpg")) - 1000)[1:-1]
        read = ["NA" if t < 0 else c[t] for c, t in zip(data.space.classes, targets, strict=True)]
        assert read == written


def test_na_and_blanks_are_missing_labels(tmp_path: Path) -> None:
    rows = [fakes.fashion_row(i) for i in range(48)]
    rows[3][5] = ""
    fakes.write_fashion(tmp_path, rows=rows)
    data = fashion(tmp_path)
    assert (data.targets[:, 7] == -1).tolist() == [i % 6 == 5 for i in range(48)]
    assert data.targets[3, 4] == -1
    assert int((data.targets < 0).sum()) == 9
    assert data.space.classes[7] == ("Casual", "Sports")


def test_images_lie_below_the_folder_images(tmp_path: Path) -> None:
    folder = fakes.write_fashion(tmp_path)
    images = fashion(tmp_path).images
    assert isinstance(images, ImageFiles)
    assert images.root == folder / "images"
    assert images.paths[:2] == ("1000.jpg", "1001.jpg")
    assert all((images.root / path).is_file() for path in images.paths)


def test_the_split_is_seeded_and_has_every_class_in_every_part(tmp_path: Path) -> None:
    fakes.write_fashion(tmp_path)
    first, again, other = (fashion(tmp_path, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    for data in (first, other):
        assert all(counts.min() > 0 for part in PARTS for counts in data.counts(part))
    sizes = [len(first.part(part)) for part in PARTS]
    assert sum(sizes) == 96
    assert all(abs(size - wanted) <= 5 for size, wanted in zip(sizes, (76.8, 9.6, 9.6), strict=True))
    assert first.notes[0] == "Split drawn with seed 0, stratified over all labels: 0.8/0.1/0.1."
    halves = fashion(tmp_path, shares="0.5/0.25/0.25")
    assert abs(len(halves.part("train")) - 48) <= 5


@pytest.mark.parametrize("seed", range(2))
def test_exact_duplicates_stay_on_one_side(tmp_path: Path, seed: int) -> None:
    folder = fakes.write_fashion(tmp_path)
    for i in range(30):  # thirty pairs, each with other labels than its twin
        shutil.copy(folder / "images" / f"{1000 + i}.jpg", folder / "images" / f"{1095 - i}.jpg")
    data = fashion(tmp_path, seed=seed)
    part = dict(zip(data.ids, data.split.tolist(), strict=True))
    assert all(part[f"{1000 + i}.jpg"] == part[f"{1095 - i}.jpg"] for i in range(30))
    assert set(part.values()) == {0, 1, 2}
    assert "30 duplicate images were kept in the same split as their twins." in data.notes


def test_classes_too_rare_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [fakes.fashion_row(i) for i in range(96)]
    for i in (0, 1):
        rows[i][4] = "Ties"  # two images: in two parts at most
    rows[2][5] = "Gold"
    for i in (3, 4, 5):
        rows[i][3] = "Rings"  # three images are enough
    fakes.write_fashion(tmp_path, rows=rows)
    data = fashion(tmp_path)
    assert "Ties" not in data.space.classes[3]
    assert "Gold" not in data.space.classes[4]
    assert "Rings" in data.space.classes[2]
    assert len(data) == 96
    assert data.targets[:3, 3:5].tolist()[0][0] == data.targets[1, 3] == data.targets[2, 4] == -1
    kept = [data.space.classes[3][t] for t in data.targets[2:, 3].tolist()]
    assert kept == [row[4] for row in rows[2:]]  # the classes behind the one left out have moved up
    assert "Dropped 2 classes with fewer than 3 different images (articleType 1, baseColour 1)." in data.notes
    assert all(counts.min() > 0 for part in PARTS for counts in data.counts(part))


def test_three_copies_of_one_image_are_one_image(tmp_path: Path) -> None:
    rows = [fakes.fashion_row(i) for i in range(96)]
    for i in range(3):
        rows[i][4] = "Ties"
    folder = fakes.write_fashion(tmp_path, rows=rows)
    for i in (1, 2):
        shutil.copy(folder / "images" / "1000.jpg", folder / "images" / f"{1000 + i}.jpg")
    data = fashion(tmp_path)
    assert "Ties" not in data.space.classes[3]
    assert "Dropped 1 class with fewer than 3 different images (articleType 1)." in data.notes


def test_rows_without_an_image_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = fakes.write_fashion(tmp_path)
    whole = fashion(tmp_path)
    for i in (4, 50):
        (folder / "images" / f"{1000 + i}.jpg").unlink()
    data = fashion(tmp_path)
    kept = [i for i in range(96) if i not in (4, 50)]
    assert data.ids == tuple(f"{1000 + i}.jpg" for i in kept)
    assert data.targets.equal(whole.targets[torch.tensor(kept)])
    assert data.notes[-1] == "Dropped 2 rows of styles.csv without an image."
    assert "styles.csv" not in "".join(whole.notes)


def test_images_without_a_row_are_passed_over(tmp_path: Path) -> None:
    folder = fakes.write_fashion(tmp_path)
    whole = fashion(tmp_path).fingerprint
    fakes.write_image(folder / "images" / "9999.jpg", 7, (6, 8))
    assert fashion(tmp_path).fingerprint == whole


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_display_name_is_free_text(tmp_path: Path, newline: str) -> None:
    """Unquoted commas, quotes and odd spaces, as the published file has them."""
    rows = [fakes.fashion_row(i) for i in range(96)]
    folder = fakes.write_fashion(tmp_path, rows=rows)
    whole = fashion(tmp_path).fingerprint
    odd = [
        'Fabindia, Men, "Striped", Shirt',
        'Belt 32" wide',
        "Caf\u00e9\u2028Noir",
        "Tab\x0bbed",
        '"Quoted, name"',
        "",
    ]
    for row, name in zip(rows, odd, strict=False):
        row[-1] = name
    text = newline.join([fakes.FASHION_HEADER, *map(",".join, rows)]) + newline
    (folder / "styles.csv").write_bytes(text.encode())
    assert fashion(tmp_path).fingerprint == whole


def test_the_display_name_may_be_absent(tmp_path: Path) -> None:
    folder = fakes.write_fashion(tmp_path)
    whole = fashion(tmp_path).fingerprint
    lines = [",".join(line.split(",")[:9]) for line in (folder / "styles.csv").read_text().splitlines()]
    (folder / "styles.csv").write_text("\n".join(lines))
    assert fashion(tmp_path).fingerprint == whole


@pytest.mark.parametrize("images", ["absent", "empty"])
def test_no_image_at_all(tmp_path: Path, images: str) -> None:
    folder = fakes.write_fashion(tmp_path)
    shutil.rmtree(folder / "images")
    if images == "empty":
        (folder / "images").mkdir()
    message = f"^{folder}/images/1000.jpg, an image of styles.csv, does not exist. Get 'Fashion"
    with pytest.raises(FileNotFoundError, match=message):
        fashion(tmp_path)


@pytest.mark.parametrize("column", ["id", "usage"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    path = fakes.write_fashion(tmp_path) / "styles.csv"
    fakes.change_line(path, 1, fakes.FASHION_HEADER.replace(column, "other", 1))
    message = f"to be a table with the columns id, {', '.join(LABELS)}, but got none named '{column}'."
    with pytest.raises(ValueError, match=f"^Expected {path} {message}$"):
        fashion(tmp_path)


def test_a_broken_row(tmp_path: Path) -> None:
    path = fakes.write_fashion(tmp_path) / "styles.csv"
    fakes.change_line(path, 8, ",".join(fakes.fashion_row(2)))
    with pytest.raises(ValueError, match=rf"^{path} names 1002\.jpg twice: lines 4 and 8\. Remove one\.$"):
        fashion(tmp_path)


def test_no_remedy_is_offered_that_the_reader_does_not_take(tmp_path: Path) -> None:
    path = fakes.write_fashion(tmp_path) / "styles.csv"
    fakes.change_line(path, 8, b"\xe9")
    with pytest.raises(ValueError, match=r"0xe9") as caught:
        fashion(tmp_path)
    assert "encoding" not in str(caught.value)


@pytest.mark.parametrize("content", ["", fakes.FASHION_HEADER])
def test_a_table_without_rows(tmp_path: Path, content: str) -> None:
    path = fakes.write_fashion(tmp_path) / "styles.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"^({path} is empty|Expected {path} to be a table with at least one row)"):
        fashion(tmp_path)
