"""Fashion Product Images: 44,441 product photographs with eight labels, some missing, up to 1:15,000."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from rectifier._base import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.readers.parts import drawn_split
from rectifier.data.readers.text_files import find_folder, read_csv
from rectifier.data.split import SHARES, describe_dropped, drop_rare, duplicate_groups
from rectifier.labels.space import LabelSpace

LABELS = ("gender", "masterCategory", "subCategory", "articleType", "baseColour", "season", "year", "usage")
_HINT = (
    "Get 'Fashion Product Images' from https://www.kaggle.com/datasets/paramaggarwal/fashion-product-images-small and"
    " put its images folder and styles.csv into {root}/fashion."
)
_FEWEST = 3  # a class needs one image for each part


def fashion(root: Path, *, shares: str | Sequence[float] = SHARES, seed: int = 0) -> ImageData:
    """Read Fashion Product Images from ``root/fashion``: ``styles.csv`` and ``images``.

    There is no official split: it is drawn by ``seed``, stratified, with exact duplicates on one side. Classes with
    fewer than three different images cannot be in every part and are left out (their samples miss that label). Rows
    without an image file are left out, and counted too.
    """
    folder = find_folder(root, ["fashion"], "styles.csv", _HINT.format(root=root))
    table = read_csv(folder / "styles.csv", overflow="productDisplayName")
    for column in ("id", *LABELS):
        if column not in table.columns:
            check.fail(table.path, f"a table with the columns id, {', '.join(LABELS)}", f"none named {column!r}")
    if not len(table):
        check.fail(table.path, "a table with at least one row", "a header only")
    names = [f"{value}.jpg" for value in table.columns["id"]]
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if name in first:
            check.fail(table.place(row), "an image named once", f"{name!r}, also on line {table.lines[first[name]]}")
        first[name] = row
    values = {c: ["" if v == "NA" else v for v in table.columns[c]] for c in LABELS}
    space = LabelSpace.infer({column: set(listing) for column, listing in values.items()})
    targets = space.encode(values)
    on_disk = _file_names(folder / "images")
    there = torch.tensor([name in on_disk for name in names])
    if not bool(there.any()):
        check.no_file(str(folder / "images" / names[0]), "an image of styles.csv", _HINT.format(root=root))
    kept = there.nonzero()[:, 0]
    files = ImageFiles(folder / "images", tuple(names)).select(kept.numpy())
    groups = duplicate_groups(files.root, files.paths)
    targets, space, dropped = drop_rare(targets[kept], space, _FEWEST, groups)
    split, notes = drawn_split(files, targets, space, shares, seed, groups)
    data = ImageData("fashion", files, targets, space, split, files.paths)
    absent = len(names) - len(kept)
    missing = [f"{check.amount(absent, 'row')} of styles.csv without an image left out."] if absent else []
    return replace(data, notes=(*notes, *describe_dropped(dropped, _FEWEST), *missing))


def _file_names(folder: Path) -> frozenset[str]:
    return frozenset(path.name for path in folder.iterdir()) if folder.is_dir() else frozenset()
