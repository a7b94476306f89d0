"""The annotation files of CelebA and DeepFashion: a count, a header, then one row per image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.readers.text_files import place

Lines = Iterator[tuple[int, str]]


def take_line(lines: Lines, path: Path, wanted: str) -> tuple[int, str]:
    """Take the next line, or say that the file ends too early."""
    try:
        return next(lines)
    except StopIteration:
        check.fail(str(path), f"a file with {wanted}", "its end")


def take_count(lines: Lines, path: Path) -> int:
    """Take the first line: how many rows the file says it has."""
    number, text = take_line(lines, path, "the number of its rows")
    if not (text.isascii() and text.isdigit()):
        check.fail(place(path, number), "the number of rows", repr(text[:40]))
    return int(text)


def check_different(path: Path, line: int, names: list[str]) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            check.fail(place(path, line), "a header of different names", f"{name!r} twice")


def check_count(path: Path, said: int, found: int, what: str) -> None:
    if said != found:
        check.fail(str(path), f"a list of {said:,} {what}, as its first line says", f"{found:,}")


def image_rows(
    lines: Lines, path: Path, columns: NDArray[np.int64], width: int, values: Mapping[str, int]
) -> tuple[list[str], NDArray[np.int64]]:
    """Read ``image value value ...`` with ``width`` values a row: the names, and these ``columns`` as targets."""
    first_line: dict[str, int] = {}
    rows = []
    for number, line in lines:
        name, *written = line.split()
        if len(written) != width:
            check.fail(place(path, number), f"an image name and {width} values", f"{len(written)} values")
        if name in first_line:
            check.fail(place(path, number), "an image named once", f"{name!r}, also on line {first_line[name]}")
        try:
            rows.append(np.array([values[value] for value in written], np.int8)[columns])
        except KeyError as error:
            wanted = f"values of {' or '.join(values)}"
            check.fail(place(path, number), wanted, f"{error.args[0]!r} for {name!r}")
        first_line[name] = number
    return list(first_line), np.array(rows, np.int64).reshape(len(rows), len(columns))


def image_parts(
    lines: Lines, path: Path, names: list[str], parts: Mapping[str, int], listed_in: str
) -> NDArray[np.int64]:
    """Read ``image part`` rows: the part of each of ``names``, every one of which must have one."""
    part: dict[str, int] = {}
    known = set(names)
    for number, line in lines:
        fields = line.split()
        if len(fields) != 2 or fields[1] not in parts:
            check.fail(place(path, number), f"an image name and {', '.join(parts)}", repr(line[:60]))
        if fields[0] not in known:
            check.fail(place(path, number), f"an image of {listed_in}", repr(fields[0]))
        if fields[0] in part:
            check.fail(place(path, number), "an image named once", f"{fields[0]!r} again")
        part[fields[0]] = parts[fields[1]]
    absent = next((name for name in names if name not in part), None)
    if absent is not None:
        check.fail(str(path), f"a list of all {len(names):,} images of {listed_in}", f"no entry for {absent!r}")
    return np.array([part[name] for name in names], np.int64)
