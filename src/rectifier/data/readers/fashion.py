"""Fashion Product Images: 44,441 product photographs with eight labels, some missing, up to 1:15,000."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rectifier._base import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.duplicates import duplicate_groups
from rectifier.data.split import SHARES, drawn_split
from rectifier.data.text_files import find_folder, read_csv
from rectifier.labels.space import LabelSpace

LABELS = ("gender", "masterCategory", "subCategory", "articleType", "baseColour", "season", "year", "usage")
_HINT = (
    "Get 'Fashion Product Images' from https://www.kaggle.com/datasets/paramaggarwal/fashion-product-images-small and"
    " put its images folder and styles.csv into {root}/fashion."
)
_FEWEST = 3  # a class needs one image for each part


def fashion(root: Path, *, shares: str | Sequence[float] = SHARES, seed: int = 0) -> ImageData:
    """Read Fashion Product Images from ``root/fashion``: ``styles.csv`` and ``images``.

    There is no official split: ``seed`` draws one, stratified, with exact duplicates on one side. A class with fewer
    than three different images cannot be in every part. It is dropped, and its samples miss that label. Rows without
    an image file are dropped too. The notes count both.
    """
    folder = find_folder(root, "fashion", "styles.csv", _HINT.format(root=root))
    table = read_csv(folder / "styles.csv", overflow="productDisplayName")
    if absent := [column for column in ("id", *LABELS) if column not in table.columns]:
        check.fail(table.path, f"a table with the columns id, {', '.join(LABELS)}", f"none named {absent[0]!r}")
    if not len(table):
        check.fail(table.path, "a table with at least one row", "a header only")
    names = [f"{value}.jpg" for value in table.columns["id"]]
    table.check_unique(names)
    images = folder / "images"
    on_disk = {path.name for path in images.iterdir()} if images.is_dir() else set()
    rows = [row for row, name in enumerate(names) if name in on_disk]
    if not rows:
        check.no_file(f"{images / names[0]}, an image of styles.csv,", _HINT.format(root=root))
    files = ImageFiles(images, tuple(names[row] for row in rows))
    copies = duplicate_groups(files.root, files.paths)
    values, dropped = {}, {}
    for label in LABELS:
        listing = ["" if value == "NA" else value.strip() for value in table.columns[label]]
        own = [listing[row] for row in rows]
        images_of = Counter(value for value, _ in set(zip(own, copies, strict=True)))
        rare = {value for value, different in images_of.items() if different < _FEWEST} | (set(listing) - set(own))
        values[label] = ["" if value in rare else value for value in own]
        dropped[label] = len(rare - {""})
    space = LabelSpace.infer(values)
    targets = space.encode(values)
    split, notes = drawn_split(files, targets, space, shares, seed, copies=copies)
    if total := sum(dropped.values()):
        listed = ", ".join(f"{label} {count}" for label, count in dropped.items() if count)
        notes.append(f"Dropped {check.amount(total, 'class')} with fewer than {_FEWEST} different images ({listed}).")
    if without := len(names) - len(rows):
        notes.append(f"Dropped {check.amount(without, 'row')} of styles.csv without an image.")
    return ImageData("fashion", files, targets, space, split, files.paths, tuple(notes))
