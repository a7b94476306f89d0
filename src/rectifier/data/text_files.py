"""Read text files of data sets: CSV tables and lists. Every error names the file and the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import Ints

Lines = Iterator[tuple[int, str]]


@dataclass(frozen=True)
class TextTable:
    """A table as text: named columns of equal length, and the line of the file that each row starts on."""

    path: str
    columns: dict[str, list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        return place(self.path, self.lines[row])

    def check_unique(self, images: Sequence[str]) -> None:
        """Check that no two rows name the same image."""
        first: dict[str, int] = {}
        for row, image in enumerate(images):
            if (other := first.setdefault(image, row)) != row:
                lines = f"lines {self.lines[other]} and {self.lines[row]}"
                raise ValueError(f"{self.path} names {image} twice: {lines}. Remove one.")


def place(path: str | Path, line: int) -> str:
    return f"{path}, line {line},"


def find_folder(root: Path, name: str, holds: str, hint: str) -> Path:
    """Return ``root/name``, or ``root`` itself, whichever contains the file ``holds``."""
    for folder in (root / name, root):
        if (folder / holds).exists():
            return folder
    raise FileNotFoundError(f"Neither {root / name / holds} nor {root / holds} exists. {hint}")


def numbered_lines(path: Path, hint: str = "") -> Lines:
    """Yield every non-blank line with its number, counted from 1. The whole file is never in memory."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        check.no_file(path, hint)
    with file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                check.fail(place(path, number), "UTF-8 text", f"the byte 0x{line[error.start]:02x}")
            if text:
                yield number, text


def counted_rows(path: Path, what: str, hint: str) -> Lines:
    """Yield the header and then every row of a list (CelebA, DeepFashion). Its first line gives the number of rows."""
    lines = numbered_lines(path, hint)
    number, count = next(lines, (1, ""))
    if not (count.isascii() and count.isdigit()):
        check.fail(place(path, number), "the number of rows", repr(count[:40]))
    header = next(lines, None)
    if header is None:
        check.fail(str(path), "a list with a header", "the end of the file")
    yield header
    rows = 0
    for line in lines:
        rows += 1
        yield line
    if rows != int(count):
        check.fail(str(path), f"a list of {int(count):,} {what}, as its first line says", f"{rows:,}")


def image_targets(rows: Lines, path: Path, keep: NDArray[np.bool_], values: dict[str, int]) -> tuple[list[str], Ints]:
    """Read rows of ``image value value ...``: the image names, and the columns to ``keep`` as targets."""
    first_line: dict[str, int] = {}
    targets = []
    for number, line in rows:
        name, *written = line.split()
        if len(written) != len(keep):
            check.fail(place(path, number), f"an image name and {len(keep)} values", f"{len(written)} values")
        if name in first_line:
            check.fail(place(path, number), "an image named once", f"{name!r}, also on line {first_line[name]}")
        try:
            targets.append(np.array([values[value] for value in written], np.int8)[keep])
        except KeyError as error:
            check.fail(place(path, number), f"values of {' or '.join(values)}", f"{error.args[0]!r} for {name!r}")
        first_line[name] = number
    return list(first_line), np.array(targets, np.int64).reshape(len(targets), int(keep.sum()))


def image_parts(rows: Lines, path: Path, names: list[str], parts: Sequence[str], listed_in: str) -> Ints:
    """Read rows of ``image part``: for each of ``names``, the position of its part among ``parts``."""
    part = dict.fromkeys(names, -1)
    for number, line in rows:
        name, *rest = line.split()
        if len(rest) != 1 or rest[0] not in parts:
            check.fail(place(path, number), f"an image name and {', '.join(parts)}", repr(line[:60]))
        if name not in part:
            check.fail(place(path, number), f"an image of {listed_in}", repr(name))
        if part[name] >= 0:
            check.fail(place(path, number), "an image named once", f"{name!r} again")
        part[name] = parts.index(rest[0])
    for name, found in part.items():
        if found < 0:
            check.fail(str(path), f"a list of all {len(names):,} images of {listed_in}", f"no entry for {name!r}")
    return np.array(list(part.values()), np.int64)


def read_csv(path: Path, encoding: str | None = None, overflow: str | None = None) -> TextTable:
    """Read a table with a header. The separator is the comma, semicolon or tab most frequent in the header.

    A row that is longer or shorter than the header is an error. ``overflow`` names a last column of free text with
    unquoted separators: it takes all that a row has too much.
    """
    text = list(io.StringIO(_read_text(path, encoding), newline=""))
    if not any(map(str.strip, text)):
        raise ValueError(f"{path} is empty.")
    declared = text.pop(0) if text and text[0].lower().startswith("sep=") else ""  # a line that Excel writes for itself
    separator = declared.rstrip("\r\n")[4:5] or max(",;\t", key="".join(text[:1]).count)
    first = 2 if declared else 1
    numbered = _numbered_rows(path, text, separator, first)
    names = [name.strip() for name in next(numbered, (1, []))[1]]
    if not any(names):
        check.fail(place(path, 1), "a header with the names of the columns", "nothing")
    rows, lines = [], []
    for line, row in numbered:
        if not any(map(str.strip, row)):
            continue  # spreadsheets leave blank rows at the end
        if overflow is not None and len(row) > len(names) and names[-1] == overflow:
            row[len(names) - 1 :] = [separator.join(row[len(names) - 1 :])]
        if len(row) != len(names):
            check.fail(place(path, line), f"a row of {len(names)} values, as the header has", f"{len(row)}")
        rows.append(row)
        lines.append(line)
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    while names and not names[-1] and not any(map(str.strip, values[-1])):  # and blank columns
        del names[-1], values[-1]
    check_header(path, names, first)
    return TextTable(str(path), dict(zip(names, values, strict=True)), lines)


def check_header(path: Path, names: Sequence[str], line: int = 1) -> None:
    """Check that every column has a name of its own."""
    for position, name in enumerate(names):
        if not name:
            check.fail(place(path, line), "a header with a name for every column", f"none for column {position + 1}")
        if name in names[:position]:
            check.fail(place(path, line), "a header of different names", f"{name!r} twice")


def _read_text(path: Path, given: str | None) -> str:
    encoding = "utf-8" if given is None else given
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        check.no_file(path)
    if content.startswith(b"PK\3\4"):
        check.fail(str(path), "a text file", "a zip file, such as an Excel workbook; save it as CSV")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):  # what Excel calls Unicode text
        encoding = "utf-16"
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except LookupError:
        check.fail("encoding", "one that Python knows, such as utf-8 or latin-1", repr(encoding))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        remedy = "save it as UTF-8" + ("" if given is None else ", or pass its encoding, such as encoding='latin-1'")
        check.fail(place(path, line), f"{encoding} text", f"the byte 0x{content[error.start]:02x}; {remedy}")


def _numbered_rows(path: Path, text: list[str], separator: str, first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file with the line that each starts on; a quoted value may span several lines."""
    ended = False

    def text_lines() -> Iterator[str]:
        nonlocal ended
        yield from text
        ended = True

    reader = csv.reader(text_lines(), delimiter=separator)
    line = first
    try:
        for row in reader:
            if ended:  # the reader has looked for the rest of this row
                check.fail(place(path, line), "a row with every quote closed", "the end of the file")
            yield line, row
            line = reader.line_num + first
    except csv.Error as error:  # usually a quotation mark that is never closed
        check.fail(place(path, line), "the start of a CSV row", f"text that does not parse ({error})")
