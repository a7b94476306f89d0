"""Your own data as a table: one row per image, a column of paths, one column per label. A blank is a missing label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import isfinite
from pathlib import Path

import torch
from torch import Tensor

from rectifier._base import check, imports
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.split import PART_NAMES, SHARES, drawn_split, with_validation
from rectifier.data.text_files import TextTable, check_header, read_csv
from rectifier.labels.space import LabelSpace, is_missing

PARQUET_SUFFIXES = {".parquet", ".pq"}
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}
_IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name", "image_path", "filepath", "image_name", "img")
_SPLIT_COLUMNS = ("split", "part", "partition", "set", "subset", "fold")
_PERHAPS_MISSING = ("na", "n/a", "nan", "null", "none", "unknown", "?", "-")
_FEW = 20  # a column with at most this many values is a label, however short the table is


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

    The kinds of columns and the classes are inferred, and ``notes`` describes every decision. Each can be overridden.
    A list may also be text with commas, such as ``"colour,sleeve"``.

    Args:
        path: the table; ``.parquet`` is read with pyarrow, anything else as CSV (comma, semicolon or tab).
        images: the folder that the paths start from. The default is the table's own folder.
        image: the column of image paths. Inferred: one of the usual names, else the first that looks like file names.
        labels: the label columns, if ``space`` does not name them. Inferred: every other column, except those with a
            different value in each row, with measured numbers or with a single value.
        ignore: columns that are not labels.
        missing: values that mean a missing label, in addition to blanks (``missing="NA,-1"``).
        space: labels and their classes in a fixed order, as ``LabelSpace`` or its JSON file. Other values are an error.
        split: the column that says train, validation or test. Inferred from its name. Without such a column ``seed``
            draws a split, stratified over all labels.
        group: a column whose equal values stay in one part (one patient, one product).
        shares: shares of train, validation and test in a drawn split.
        encoding: encoding of a CSV file.
        seed: seed of the split.
    """
    table = read_columns(path, encoding)
    if not len(table):
        check.fail(str(path), "a table with at least one row", "a header only")
    fixed = space if space is None or isinstance(space, LabelSpace) else _read_space(Path(space))
    if fixed and labels is not None:
        check.fail("labels", "omitted if space is given, which names them", repr(labels))
    wanted, ignored = list(fixed.names) if fixed else listed(labels), listed(ignore)
    _check_columns(table, image=[image], split=[split], group=[group], labels=wanted, ignore=ignored)
    image = image or image_column(table)
    split = split or _split_column(table, {*wanted, *ignored})
    files = ImageFiles(images or path.parent, _image_paths(table, image, images or path.parent))
    candidates = wanted or [c for c in table.columns if c not in {image, split, group, *ignored}]
    marks = set(listed(missing))
    known = dict(zip(fixed.names, fixed.classes, strict=True)) if fixed else {}
    values = {c: _label_values(table.columns[c], marks, known.get(c, ())) for c in candidates}
    notes = [f"Column {image!r} holds the image paths."]
    if absent := [path for path in files.paths if not (files.root / path).is_file()]:
        notes.append(f"{len(absent):,} of {len(files):,} images do not exist, such as {absent[0]}.")
    if not wanted:
        values, reasons = _inferred_labels(table.path, values)
        notes += reasons
    found = fixed or LabelSpace.infer({column: set(listing) for column, listing in values.items()})
    _check_classes(table, values, found)
    targets = found.encode(values)
    groups = None if group is None else [g.strip() or row for row, g in enumerate(table.columns[group])]
    if split is None:
        parts, split_notes = drawn_split(files, targets, found, shares, seed, groups)
    else:
        named, note = _parts(table, split), f"Column {split!r} holds the split."
        parts, split_notes = with_validation(named, files, targets, found, seed, note, groups)
    notes += [*_suspected_missing(found, listed(missing)), *split_notes]
    return ImageData(path.stem, files, targets, found, parts, files.paths, tuple(notes))


def read_columns(path: Path, encoding: str = "utf-8") -> TextTable:
    """Read a CSV or Parquet table as text."""
    return _read_parquet(path) if path.suffix.lower() in PARQUET_SUFFIXES else read_csv(path, encoding)


def _read_parquet(path: Path) -> TextTable:
    try:
        from pyarrow import ArrowInvalid, parquet, types  # type: ignore[import-untyped]
    except ModuleNotFoundError as error:
        raise imports.with_extra(error, "Reading Parquet") from None
    try:
        table = parquet.read_table(path)
    except FileNotFoundError:
        check.no_file(path)
    except (ArrowInvalid, OSError) as error:
        check.fail(str(path), "a Parquet table", f"another file ({error})")
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        # Lists, structures and bytes are neither paths nor classes, so the name of their type replaces them.
        plain = not (types.is_nested(column.type) or types.is_binary(column.type))
        columns[name.strip()] = [_as_text(v) for v in column.to_pylist()] if plain else [str(column.type)] * len(column)
    check_header(path, [name.strip() for name in table.column_names])
    return TextTable(str(path), columns, list(range(1, table.num_rows + 1)))


def _as_text(value: object) -> str:
    if is_missing(value):
        return ""
    # A column of whole numbers with a blank among them is stored as floats.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _read_space(path: Path) -> LabelSpace:
    try:
        return LabelSpace.from_json(path)
    except FileNotFoundError:
        check.no_file(path)
    except ValueError as error:
        check.fail(str(path), "a label space in JSON", f"another file ({error})")


def _check_columns(table: TextTable, **options: Sequence[str | None]) -> None:
    """Raise an error for every option that names a column the table lacks."""
    named = [(option, name) for option, names in options.items() for name in names if name is not None]
    valid = list(table.columns)
    check.raise_all([check.choice(f"{option} (of {table.path})", name, valid) for option, name in named])


def image_column(table: TextTable) -> str:
    """Find the column of image paths: by a usual name, else the first that looks like file names."""
    for name, column in product(_IMAGE_COLUMNS, table.columns):
        if column.lower() == name:
            return column
    for column, values in table.columns.items():
        if all(Path(v.strip()).suffix.lower() in IMAGE_SUFFIXES for v in values[:100]):
            return column
    check.fail(table.path, "a table with a column of image paths", f"{', '.join(table.columns)}; name it in image")


def _image_paths(table: TextTable, column: str, root: Path) -> tuple[str, ...]:
    paths = tuple(value.strip() for value in table.columns[column])
    if "" in paths:
        check.fail(f"{table.place(paths.index(''))} column {column!r}", "an image path", "a blank")
    table.check_unique(paths)
    if not any((root / path).is_file() for path in paths[:1000]):
        hint = f"Set images to the folder that the paths start from, or image to the column of paths (now {column!r})."
        check.no_file(f"{root / paths[0]}, named in {table.place(0)}", hint)
    return paths


def _split_column(table: TextTable, other: set[str]) -> str | None:
    """Return the first column with a usual name that names any part, so a misspelt value does not make it a label."""
    usual = [column for column in table.columns if column.lower() in _SPLIT_COLUMNS and column not in other]
    return next((c for c in usual if any(_part(value) is not None for value in table.columns[c])), None)


def listed(value: object) -> list[str]:
    """Bring a list, text with commas, or a single value to a list."""
    if value is None:
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [str(part) for part in value] if isinstance(value, Iterable) else [str(value)]


def _part(value: str) -> int | None:
    return PART_NAMES.get(value.strip().lower())


def _label_values(column: Sequence[str], marks: set[str], known: Sequence[str]) -> list[str]:
    """Return the class name of each row, blank where it is missing.

    In a column of numbers 1.0 is the class 1: pandas writes whole numbers this way if any is missing. ``known``
    classes keep their spelling.
    """
    values = ["" if value.strip() in marks else value.strip() for value in column]
    different = set(values) - {""}
    if _numbers(different) is not None:
        name = {v: v if v in known else re.sub(r"\.0+$", "", v) for v in different}
        values = [name.get(value, "") for value in values]
    return ["" if value in marks else value for value in values]


def _inferred_labels(path: str, values: Mapping[str, list[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the columns that can be labels, and notes about the others."""
    reasons = {column: _no_label(listing) for column, listing in values.items()}
    labels = {column: listing for column, listing in values.items() if reasons[column] is None}
    notes = [f"Column {column!r} is not a label: {reason}." for column, reason in reasons.items() if reason]
    if not labels:
        hint = "Every label needs at least two classes. To choose the columns yourself, set labels."
        raise ValueError(f"{path} has no label column. {' '.join(notes)} {hint}")
    doubtful = [column for column in labels if column.lower() in _SPLIT_COLUMNS]
    notes += [f"Column {column!r} is a label: none of its values is train, validation or test." for column in doubtful]
    return labels, notes


def _no_label(values: Sequence[str]) -> str | None:
    """Say why a column is not a label, or return None if it can be one."""
    present = [value for value in values if value]
    different = set(present)
    if not present:
        return "it is blank"
    if len(different) == 1:
        return f"its only value is {different.pop()!r}"
    if len(different) > _FEW and 2 * len(different) > len(present):
        return f"{len(different):,} different values in {len(present):,} rows"
    fractions = (isfinite(number) and not number.is_integer() for number in _numbers(different) or ())
    if len(different) > _FEW and any(fractions):
        return f"{len(different):,} different numbers with fractions"
    return None


def _numbers(values: Iterable[str]) -> list[float] | None:
    """Read all values as numbers, or return None if any is not a number."""
    try:
        return [float(value) for value in values]
    except ValueError:
        return None


def _check_classes(table: TextTable, values: Mapping[str, list[str]], space: LabelSpace) -> None:
    for name, classes in zip(space.names, space.classes, strict=True):
        if unknown := set(values[name]) - {"", *classes}:
            row, value = next((row, value) for row, value in enumerate(values[name]) if value in unknown)
            what = f"{table.place(row)} label {name!r}"
            problem = check.sentence(what, f"one of its {len(classes)} classes", repr(value))
            raise ValueError(problem + check.nearest(value, classes))


def _parts(table: TextTable, column: str) -> Tensor:
    parts = [_part(value) for value in table.columns[column]]
    if None in parts:
        row = parts.index(None)
        value = table.columns[column][row]
        problem = check.sentence(f"{table.place(row)} column {column!r}", "train, validation or test", repr(value))
        hint = f" If this column is not a split, set ignore={column!r}, or name the label columns in labels."
        raise ValueError(problem + (check.nearest(value.lower(), PART_NAMES) or hint))
    if 0 not in parts:
        check.fail(table.path, f"a table with train in its column {column!r}", "none")
    return torch.tensor(parts)


def _suspected_missing(space: LabelSpace, marks: list[str]) -> list[str]:
    """Say which classes look like missing labels, with the option that makes all of them missing."""
    labels = zip(space.names, space.classes, strict=True)
    found = {c: name for name, classes in labels for c in classes if c.lower() in _PERHAPS_MISSING}
    listing = ", ".join(f"{c!r} of label {name!r}" for c, name in found.items())
    option = ",".join([*marks, *found])
    return [f"These classes may be missing labels: {listing}. If so, set missing={option!r}."] if found else []
