"""Text files of data sets: lines with their numbers, so that every complaint can name file and line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rectifier._base import check


@dataclass(frozen=True)
class Columns:
    """A table as text: named columns of equal length, and the line of the file that each row stands on."""

    path: str
    columns: dict[str, list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        return place(self.path, self.lines[row])


def place(path: str | Path, line: int) -> str:
    return f"{path}, line {line},"


def find_folder(root: Path, names: Sequence[str], holds: str, hint: str) -> Path:
    """Return the first of ``root/name`` or ``root`` itself that holds the file or folder ``holds``."""
    candidates = [*(root / name for name in names), root]
    for folder in candidates:
        if (folder / holds).exists():
            return folder
    looked = " or ".join(str(folder / holds) for folder in candidates)
    check.no_file(looked, "there", hint)


def read_text(path: Path, encoding: str = "utf-8", hint: str = "") -> str:
    """Read a text file; a byte that is no text is an error that names its line."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        check.no_file(str(path), "a text file", hint)
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
        remedy = "save it as UTF-8 (or, for a table of your own, --set encoding=latin-1)"
        got = f"the byte 0x{content[error.start]:02x}; {remedy}"
        check.fail(place(path, line), f"{encoding} text", got)


def numbered_lines(path: Path, hint: str = "") -> Iterator[tuple[int, str]]:
    """Yield every line that is not blank, with its number from 1. The file is never in memory as a whole."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        check.no_file(str(path), "a text file", hint)
    with file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError as error:
                check.fail(place(path, number), "UTF-8 text", f"the byte 0x{line[error.start]:02x}")
            if text:
                yield number, text


def read_csv(path: Path, encoding: str = "utf-8", overflow: str | None = None) -> Columns:
    """Read a table with a header. Commas, semicolons or tabs separate, whichever the header has most of.

    A row of another length than the header is an error. ``overflow`` names a last column of free text that may hold
    separators of its own, unquoted: what a row has too much of is then a part of it.
    """
    text = io.StringIO(read_text(path, encoding), newline="")
    named = text.readline().rstrip("\r\n")
    begin = text.tell() if named.lower().startswith("sep=") else 0  # what Excel writes to itself
    text.seek(begin)
    separator = named[4:5] if begin and named[4:5] else max(",;\t", key=text.readline().count)
    text.seek(begin)
    numbered = _numbered_rows(path, text, separator, first=2 if begin else 1)
    _, header = next(numbered, (1, []))
    names = [name.strip() for name in header]
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
    check_header(path, names, line=2 if begin else 1)
    return Columns(str(path), dict(zip(names, values, strict=True)), lines)


def _numbered_rows(path: Path, text: io.StringIO, separator: str, first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV file with the lines that they begin on; quoted values may go on over several."""
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
    except csv.Error as error:  # as a rule a quotation mark that is never closed, and takes the file for one value
        check.fail(place(path, line), "the beginning of a row of CSV", f"what is none ({error})")


def check_header(path: Path, names: list[str], line: int = 1) -> None:
    """Check that every column has a name of its own."""
    for position, name in enumerate(names):
        if not name:
            check.fail(place(path, line), "a header with a name for every column", f"none for column {position + 1}")
        if name in names[:position]:
            check.fail(place(path, line), "a header of different names", f"{name!r} twice")
