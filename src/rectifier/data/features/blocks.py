"""Blocks of features: files that are written once and whole, found by scanning their folder.

A block is a header, the keys of its rows (digest of the image and number of the view), and the rows. The header counts
the rows and has the checksums of both. Nothing else describes the folder, so any process may add blocks to it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rectifier._base import check
from rectifier._base.files import write_bytes
from rectifier.data.dataset import Ints
from rectifier.data.features.compute import Floats, Layout
from rectifier.data.features.contents import DIGEST_BYTES

SUFFIX = ".features"
RESIDENT_BYTES = 1 << 30  # blocks that are together smaller are read into memory once
_MOST_OPEN = 128  # mapped blocks, each an open file
_HEADER = struct.Struct("<8sIIII")  # magic, rows, bytes of a row, checksum of the keys, checksum of the rows
_MAGIC = b"rectfea1"
_KEY_BYTES = DIGEST_BYTES + 2
_ALIGNED = 64

Key = bytes  # the digest of an image and the number of a view


def key_of(digest: bytes, view: int) -> Key:
    return digest + view.to_bytes(2, "little")


class Header(NamedTuple):
    """What a block says of itself: its number of rows, the byte where they start, their checksum."""

    rows: int
    start: int
    checksum: int


def write_block(folder: Path, keys: Sequence[Key], values: Floats) -> Path:
    """Write a block. Its name comes from its keys, so the same rows are the same file."""
    listed, rows = b"".join(keys), values.tobytes()
    header = _HEADER.pack(_MAGIC, len(keys), len(rows) // len(keys), zlib.crc32(listed), zlib.crc32(rows))
    gap = bytes(_start(len(keys)) - len(header) - len(listed))
    path = folder / (hashlib.sha256(listed).hexdigest()[:24] + SUFFIX)
    write_bytes(path, b"".join([header, listed, gap, rows]), durable=True)
    return path


def read_header(path: Path, layout: Layout) -> tuple[Header, list[Key]]:
    """Return the header and the keys of a block. Another file, and a damaged one, raise ``ValueError``."""
    with path.open("rb") as file:
        first = file.read(_HEADER.size)
        length = os.fstat(file.fileno()).st_size
        if len(first) < _HEADER.size:
            raise ValueError
        magic, rows, row_bytes, keys_sum, checksum = _HEADER.unpack(first)
        listed = file.read(rows * _KEY_BYTES)
    whole = zlib.crc32(listed) == keys_sum and length == _start(rows) + rows * row_bytes
    if magic != _MAGIC or row_bytes != layout.row_bytes or not whole:
        raise ValueError
    keys = [listed[i : i + _KEY_BYTES] for i in range(0, len(listed), _KEY_BYTES)]
    return Header(rows, _start(rows), checksum), keys


def _start(rows: int) -> int:
    return -(-(_HEADER.size + rows * _KEY_BYTES) // _ALIGNED) * _ALIGNED


def is_whole(path: Path, header: Header) -> bool:
    """Compare the rows of a block with its checksum."""
    try:
        with path.open("rb") as file:
            file.seek(header.start)
            checksum = 0
            while content := file.read(1 << 22):
                checksum = zlib.crc32(content, checksum)
    except OSError:
        return False
    return checksum == header.checksum


class Blocks:
    """The rows of several blocks, end to end: in memory if they are small together, else in memory maps."""

    def __init__(self, files: Sequence[tuple[Path, int, int]], layout: Layout) -> None:
        self.files, self.layout = list(files), layout
        self._firsts = np.cumsum([0, *(rows for *_, rows in self.files)])
        self._open: OrderedDict[int, Floats] = OrderedDict()
        self._whole: Floats | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Blocks, (self.files, self.layout)  # a process that unpickles this reads the files itself

    def in_memory(self) -> Floats | None:
        """Return all rows ``(n, *shape)``, or None if they are too large."""
        with self._lock:
            if self._whole is None and self._firsts[-1] * self.layout.row_bytes < RESIDENT_BYTES:
                self._whole = np.empty((int(self._firsts[-1]), *self.layout.shape), self.layout.dtype)
                for number, first in enumerate(self._firsts[:-1].tolist()):
                    rows = self._mapped(number)
                    self._whole[first : first + len(rows)] = rows
                self._open.clear()
            return self._whole

    def read(self, rows: Ints, out: NDArray[Any]) -> None:
        """Write these rows to ``out`` ``(n, *shape)``, of any type."""
        if (whole := self.in_memory()) is not None:
            if out.dtype == whole.dtype:
                whole.take(rows, axis=0, out=out, mode="clip")  # in mode "raise" NumPy would copy `out`
            else:
                out[...] = whole[rows]
            return
        block = np.searchsorted(self._firsts, rows, side="right") - 1
        order = np.argsort(block, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(block[order])) + 1):  # one step for each block
            if len(places):
                number = int(block[places[0]])
                with self._lock:
                    values = self._mapped(number)
                out[places] = values[rows[places] - self._firsts[number]]

    def _mapped(self, number: int) -> Floats:
        if number not in self._open:
            path, start, rows = self.files[number]
            try:
                file = path.open("rb")
            except FileNotFoundError:
                check.no_file(path, "The cache of features was deleted. Run the command again to fill it.")
            with file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            values = np.frombuffer(mapped, self.layout.dtype, rows * int(np.prod(self.layout.shape)), start)
            self._open[number] = values.reshape(rows, *self.layout.shape)
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)  # closed when nothing reads it any more
        self._open.move_to_end(number)
        return self._open[number]
