"""Find the image files to predict, and decode them on demand."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rectifier._base import check
from rectifier.data.dataset import Pixels
from rectifier.data.decode import UnreadableError, decode
from rectifier.data.folder import is_hidden
from rectifier.data.store import available_cores
from rectifier.data.table import IMAGE_SUFFIXES, PARQUET_SUFFIXES, image_column, read_columns

_TABLES = PARQUET_SUFFIXES | {".csv", ".tsv", ".txt"}


@dataclass(frozen=True)
class FilesOnDemand:
    """Image files that are decoded when a batch is gathered. Unreadable ones are black and listed in ``unreadable``."""

    paths: tuple[Path, ...]
    shape: tuple[int, int, int]
    fit: str
    unreadable: dict[int, str] = field(default_factory=dict)
    interpolation: str = "bilinear"

    def __len__(self) -> int:
        return len(self.paths)

    def checksum(self) -> str:
        return ""  # they are never compared

    def select(self, index: NDArray[np.int64]) -> FilesOnDemand:
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()), unreadable={})

    def gather(self, index: NDArray[np.int64], out: Pixels | None = None) -> Pixels:
        with ThreadPoolExecutor(available_cores(), "rectifier-decode") as threads:
            return np.stack(list(threads.map(self._decode, index.tolist())), out=out)

    def _decode(self, position: int) -> Pixels:
        try:
            pixels = decode(self.paths[position], self.shape[:2], self.fit, self.interpolation)
        except UnreadableError as error:
            self.unreadable[position] = str(error)
            return np.zeros(self.shape, np.uint8)
        return np.asarray(Image.fromarray(pixels).convert("L"))[:, :, None] if self.shape[2] == 1 else pixels


def find_images(given: Sequence[str | Path], root: str | Path | None, column: str | None) -> list[tuple[str, Path]]:
    """Return name and path of the images in files, folders and tables. ``column`` is the run's own image column."""
    listed = [given] if isinstance(given, str | Path) else given
    if not listed:
        check.fail("images", "at least one image, folder or table", "none")
    for path in listed:
        if not str(path).strip() or not Path(path).exists():
            check.no_file(repr(str(path)))
    paths = [Path(path) for path in listed]
    if root is not None:
        if not any(map(_is_table, paths)):
            check.fail("root", "given only with a table", f"{root} without a table")
        if not Path(root).is_dir():
            check.no_file(f"The folder {root}")
    return [image for path in paths for image in _images_at(path, root, column)]


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in _TABLES and path.is_file()


def _images_at(path: Path, root: str | Path | None, column: str | None) -> list[tuple[str, Path]]:
    if path.is_dir():
        images = (file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
        found = sorted(file for file in images if not is_hidden(file, path))
        if not found:
            known = ", ".join(sorted(IMAGE_SUFFIXES))
            check.fail(str(path), "a folder with images", f"none (known suffixes: {known})")
        return [(str(file), file) for file in found]
    if not _is_table(path):
        return [(str(path), path)]
    table, start = read_columns(path), path.parent if root is None else Path(root)
    if not len(table):
        check.fail(str(path), "a table with at least one row", "a header only")
    column = column if column in table.columns else image_column(table)
    names = [value.strip() for value in table.columns[column]]
    if "" in names:
        check.fail(f"{table.place(names.index(''))} column {column!r}", "an image path", "a blank")
    return [(name, start / name) for name in names]
