"""Your own data as a table: one row per image, a column with its path, one column per label, blanks missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rectifier import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.files import Columns, read_csv
from rectifier.data.split import SHARES, duplicate_groups, stratified_split, uncovered
from rectifier.labels import LabelSpace, is_missing

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}
)
PART_NAMES = {
    "train": 0,
    "training": 0,
    "val": 1,
    "valid": 1,
    "validation": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}
_IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name", "image_path", "filepath", "image_name", "img")
_SPLIT_COLUMNS = ("split", "part", "partition", "set", "subset", "fold")
_PERHAPS_MISSING = ("na", "n/a", "nan", "null", "none", "unknown", "?", "-")
_FEW = 20  # so many different values are a label however short the table is


def read_table(
    path: Path,
    *,
    images: Path | None = None,
    image: str | None = None,
    labels: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] = (),
    missing: str | Sequence[str] = (),
    space: LabelSpace | str | Path | None = None,
    split: str | None = None,
    group: str | None = None,
    shares: str | Sequence[float] = SHARES,
    encoding: str = "utf-8",
    seed: int = 0,
) -> ImageData:
    """Read a CSV or Parquet table of images with labels.

    Classes and kinds of columns are inferred and told in ``notes``; every choice can be overridden. Lists may be given
    as text with slashes or commas between, as on the command line.

    Args:
        path: the table; ``.parquet`` is read with pyarrow, anything else as CSV (comma, semicolon or tab).
        images: the folder that the paths start from; the table's own folder if not given.
        image: the column of image paths. Inferred: one of the usual names, else the first that looks like file names.
        labels: the columns that are labels. Inferred: every other column but those that name each row differently,
            hold measured numbers or a single value.
        ignore: columns that are no labels.
        missing: values that mean a missing label, beside blanks (``missing="NA/-1"``).
        space: labels and their classes in a fixed order, as ``LabelSpace`` or its JSON file; others are an error.
        split: the column that says train, validation or test. Inferred from its name. Without one the split is drawn
            by ``seed``, stratified over all labels.
        group: a column whose equal values stay in one part (one patient, one product).
        shares: of train, validation and test when the split is drawn.
        encoding: of a CSV file.
        seed: of the split.
    """
    table = _read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else read_csv(path, encoding)
    if not len(table):
        check.fail(str(path), "a table with at least one row", "a header only")
    for option, column in (("image", image), ("split", split), ("group", group)):
        _check_columns(table, option, [column] if column else [])
    image = image or _image_column(table)
    split = split or next(
        (c for c in table.columns if c.lower() in _SPLIT_COLUMNS and _is_split(table.columns[c])), None
    )
    files = ImageFiles(images or path.parent, _image_paths(table, image, images or path.parent))
    fixed = space if space is None or isinstance(space, LabelSpace) else LabelSpace.from_json(Path(space))
    wanted = list(fixed.names) if fixed and labels is None else listed(labels)
    _check_columns(table, "labels", wanted)
    _check_columns(table, "ignore", listed(ignore))
    taken = {image, split, group, *listed(ignore)}
    chosen, notes = _label_columns(table, wanted, [c for c in table.columns if c not in taken])
    marks = set(listed(missing))
    values = {c: [None if v in marks else v for v in table.columns[c]] for c in chosen}
    found = fixed or LabelSpace.infer(values)
    targets = _encode(table, values, found)
    parts, split_notes = _split(table, split, group, files, targets, found, shares, seed)
    notes += [*_suspected_missing(values, found), *split_notes]
    return ImageData(path.stem, files, targets, found, parts, files.paths, tuple(notes))


def listed(value: str | Sequence[str] | None) -> list[str]:
    """Bring a list, or text with slashes or commas between, to a list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.replace(",", "/").split("/") if part.strip()]
    return [str(part) for part in value]


def as_shares(value: str | Sequence[float]) -> list[float]:
    """Bring ``0.7/0.1/0.2`` or a list to a list of numbers."""
    try:
        return [float(part) for part in (listed(value) if isinstance(value, str) else value)]
    except ValueError:
        check.fail("shares", "three numbers for train, validation and test", repr(value))


def drawn_split(
    files: ImageFiles,
    targets: Tensor,
    space: LabelSpace,
    shares: str | Sequence[float],
    seed: int,
    groups: Sequence[object] | None = None,
) -> tuple[Tensor, list[str]]:
    """Draw a stratified split that keeps groups, and exact duplicates, on one side; and say what was done."""
    wanted = as_shares(shares)
    groups = duplicate_groups(files.root, files.paths) if groups is None else groups
    split = stratified_split(targets, space, shares=wanted, seed=seed, groups=groups)
    notes = [f"Split drawn by seed {seed}, stratified over all labels, {'/'.join(f'{s:g}' for s in wanted)}."]
    together = len(groups) - len(set(groups))
    if together:
        notes.append(f"{together:,} images stay in the part of another that they are equal to or grouped with.")
    if bare := uncovered(targets, space, split):
        notes.append(f"{len(bare):,} classes are too rare to be in every part.")
    return split, notes


def _read_parquet(path: Path) -> Columns:
    try:
        from pyarrow import ArrowInvalid, parquet  # type: ignore[import-untyped]
    except ImportError:
        raise ImportError("Reading Parquet needs pyarrow: pip install 'rectifier[parquet]'.") from None
    try:
        columns = parquet.read_table(path).to_pydict()
    except FileNotFoundError:
        check.no_file(str(path), "a Parquet table", "")
    except ArrowInvalid as error:
        check.fail(str(path), "a Parquet table", f"a file that is none ({error})")
    rows = len(next(iter(columns.values()), []))
    return Columns(str(path), {str(name): values for name, values in columns.items()}, list(range(1, rows + 1)))


def _check_columns(table: Columns, option: str, names: Sequence[str]) -> None:
    for name in names:
        complaint = check.choice(f"{option} (of {table.path})", name, list(table.columns))
        check.raise_all([complaint])


def _image_column(table: Columns) -> str:
    for name in _IMAGE_COLUMNS:
        for column in table.columns:
            if column.lower() == name:
                return column
    for column, values in table.columns.items():
        if all(Path(str(v)).suffix.lower() in IMAGE_SUFFIXES for v in values[:100]):
            return column
    names = ", ".join(table.columns)
    check.fail(table.path, "a table with a column of image paths", f"{names}; the option image=COLUMN names it")


def _image_paths(table: Columns, column: str, root: Path) -> tuple[str, ...]:
    first: dict[str, int] = {}
    for row, value in enumerate(table.columns[column]):
        if is_missing(value):
            check.fail(f"{table.place(row)} column {column!r}", "an image path", "a blank")
        path = str(value).strip()
        if path in first:
            got = f"{path!r}, also on line {table.lines[first[path]]}"
            check.fail(table.place(row), "an image named once", got)
        first[path] = row
    paths = tuple(first)
    if not any((root / path).is_file() for path in paths[:1000]):
        hint = "The option images (--images) names the folder that the paths start from."
        check.no_file(str(root / paths[0]), f"an image, as {table.place(0)} says", hint)
    return paths


def _is_split(values: Sequence[Any]) -> bool:
    return all(str(v).strip().lower() in PART_NAMES for v in values[:1000])


def _label_columns(table: Columns, wanted: list[str], candidates: list[str]) -> tuple[list[str], list[str]]:
    """Return the label columns and what to tell about those left out."""
    if wanted:
        return wanted, []
    labels, notes = [], []
    for column in candidates:
        reason = _no_label(table.columns[column])
        if reason is None:
            labels.append(column)
        else:
            notes.append(f"Column {column!r} is taken for no label: {reason}.")
    if not labels:
        check.fail(
            table.path, "a table with a label column", f"none. {' '.join(notes)} The option labels=... names them"
        )
    return labels, notes


def _no_label(values: Sequence[Any]) -> str | None:
    """Say why a column is no label, or None when it can be one."""
    present = [v for v in values if not is_missing(v)]
    different = {str(v).strip() for v in present}
    if not present:
        return "it is blank"
    if len(different) == 1:
        return f"its only value is {different.pop()!r}"
    if len(different) > _FEW and 2 * len(different) > len(present):
        return f"{len(different):,} different values in {len(present):,} rows"
    if len(different) > _FEW and _all_fractions(different):
        return f"{len(different):,} different numbers with fractions"
    return None


def _all_fractions(values: set[str]) -> bool:
    try:
        numbers = np.array([float(v) for v in values])
    except ValueError:
        return False
    return bool((numbers != np.floor(numbers)).any())


def _encode(table: Columns, values: Mapping[str, list[Any]], space: LabelSpace) -> Tensor:
    columns = []
    for name, classes in zip(space.names, space.classes, strict=True):
        index = {c: k for k, c in enumerate(classes)}
        alone = LabelSpace((name,), (classes,))
        try:
            columns.append(alone.encode({name: values[name]})[:, 0])
        except ValueError:
            row = next(r for r, v in enumerate(values[name]) if not is_missing(v) and str(v).strip() not in index)
            value = str(values[name][row]).strip()
            problem = check.sentence(
                f"{table.place(row)} label {name!r}", f"one of its {len(index)} classes", repr(value)
            )
            raise ValueError(problem + check.nearest(value, index)) from None
    return torch.stack(columns, 1)


def _split(
    table: Columns,
    column: str | None,
    group: str | None,
    files: ImageFiles,
    targets: Tensor,
    space: LabelSpace,
    shares: str | Sequence[float],
    seed: int,
) -> tuple[Tensor, list[str]]:
    groups = None if group is None else [row if is_missing(g) else str(g) for row, g in enumerate(table.columns[group])]
    if column is None:
        return drawn_split(files, targets, space, shares, seed, groups)
    parts = []
    for row, value in enumerate(table.columns[column]):
        part = PART_NAMES.get(str(value).strip().lower())
        if part is None:
            check.fail(f"{table.place(row)} column {column!r}", "train, validation or test", repr(value))
        parts.append(part)
    return fill_validation(torch.tensor(parts), files, targets, space, seed, f"Split by column {column!r}.", groups)


def fill_validation(
    split: Tensor,
    files: ImageFiles,
    targets: Tensor,
    space: LabelSpace,
    seed: int,
    note: str,
    groups: Sequence[object] | None = None,
) -> tuple[Tensor, list[str]]:
    """Draw a validation part from train where a split has none; choosing on the test part would spoil it."""
    if not bool((split == 0).any()):
        check.fail("the split", "one with a train part", f"none. {note}")
    if bool((split == 1).any()):
        return split, [note]
    train = (split == 0).nonzero()[:, 0]
    inside = ImageFiles(files.root, tuple(files.paths[i] for i in train.tolist()))
    chosen = None if groups is None else [groups[i] for i in train.tolist()]
    drawn, _ = drawn_split(inside, targets[train], space, (0.9, 0.1, 0), seed, chosen)
    split = split.clone()
    split[train] = drawn
    return split, [note, f"No validation part: a tenth of train was drawn for it by seed {seed}."]


def _suspected_missing(values: Mapping[str, list[Any]], space: LabelSpace) -> list[str]:
    return [
        f"Label {name!r} has the class {c!r}: the option missing={c} makes it a missing label."
        for name, classes in zip(space.names, space.classes, strict=True)
        for c in classes
        if name in values and c.lower() in _PERHAPS_MISSING
    ]
