"""Tables of images on disk. A table is read without decoding any image, so the files hold text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier.data.dataset import ImageData
from rectifier.data.table import read_table


def photos(folder: Path, rows: int) -> list[str]:
    """Write files of different content; a table is read without decoding any."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{row}.jpg" for row in range(rows)]
    for name in names:
        (folder / name).write_text(f"photo {name}")
    return names


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def write_csv(path: Path, columns: Mapping[str, Sequence[object]]) -> Path:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return write(path, out.getvalue())


def table(folder: Path, columns: Mapping[str, Sequence[object]], **options: Any) -> ImageData:
    """Write a CSV table of these columns, with its photographs, and read it."""
    rows = len(next(iter(columns.values())))
    return read_table(write_csv(folder / "t.csv", {"image": photos(folder, rows), **columns}), **options)


def has_note(data: ImageData, text: str) -> bool:
    return any(text in note for note in data.notes)
