"""The index of a cache: the row of each view of each image, in the blocks of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rectifier._base import check, console
from rectifier.data.dataset import Ints
from rectifier.data.features.blocks import SUFFIX, Blocks, Header, Key, is_whole, read_header, write_block
from rectifier.data.features.compute import Floats, Layout
from rectifier.data.store import available_cores


class Block(NamedTuple):
    """A block: its file, and the place of its first row among the rows of all blocks."""

    path: Path
    header: Header
    first: int


class Index:
    """The blocks of a folder, and the row of each view of each image in them."""

    def __init__(self, folder: Path, layout: Layout) -> None:
        self._folder, self._layout = folder, layout
        self._blocks: list[Block] = []
        self._rows: dict[Key, int] = {}
        self._known: set[str] = set()
        self._sound: set[Path] = set()
        self._first = 0

    def refresh(self) -> None:
        """Take in the blocks that are new in the folder."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in sorted(set(os.listdir(self._folder)) - self._known):
                self._known.add(name)
                if name.endswith(SUFFIX):
                    self._add(self._folder / name)

    def lacks(self, key: Key) -> bool:
        return key not in self._rows

    def rows_of(self, keys: Iterable[Key]) -> Ints:
        """Return the row of each key in all blocks together, -1 without one."""
        return np.array([self._rows.get(key, -1) for key in keys], np.int64)

    def write(self, keys: Sequence[Key], values: Floats) -> None:
        """Write a new block, and take it in."""
        path = write_block(self._folder, keys, values)
        self._known.add(path.name)
        self._sound.add(path)
        self._add(path)

    def verify(self, keys: Iterable[Key]) -> None:
        """Compare the blocks of these keys with their checksums, once, and delete those that are damaged."""
        used = self._used(self.rows_of(keys))
        unverified = [block for block in used if block.path not in self._sound]
        with ThreadPoolExecutor(available_cores()) as threads:
            whole = list(threads.map(lambda block: is_whole(block.path, block.header), unverified))
        self._sound |= {block.path for block, fine in zip(unverified, whole, strict=True) if fine}
        self._drop([block for block, fine in zip(unverified, whole, strict=True) if not fine])

    def select(self, rows: Ints) -> tuple[Blocks, Ints]:
        """Return the blocks that hold these rows, and the rows in them."""
        used = self._used(rows)
        firsts, lengths = np.array([[block.first, block.header.rows] for block in used], np.int64).reshape(-1, 2).T
        new = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        block = np.searchsorted(firsts, rows, side="right") - 1
        moved = np.where(rows < 0, -1, rows - firsts[block] + new[block]) if len(used) else rows
        return Blocks([(b.path, b.header.start, b.header.rows) for b in used], self._layout), moved

    def _used(self, rows: Ints) -> list[Block]:
        firsts = np.array([block.first for block in self._blocks], np.int64)
        numbers = np.unique(np.searchsorted(firsts, rows[rows >= 0], side="right") - 1)
        return [self._blocks[number] for number in numbers.tolist()]

    def _add(self, path: Path) -> None:
        try:
            header, keys = read_header(path, self._layout)
        except FileNotFoundError:  # another process found it damaged
            return
        except ValueError:
            self._delete([path])
            return
        self._blocks.append(Block(path, header, self._first))
        for row, key in enumerate(keys, self._first):
            self._rows.setdefault(key, row)
        self._first += header.rows

    def _drop(self, damaged: Sequence[Block]) -> None:
        if not damaged:
            return
        self._delete([block.path for block in damaged])
        kept = [block.path for block in self._blocks if block not in damaged]
        self._blocks, self._rows, self._first = [], {}, 0  # a row that only a damaged block had may be in another too
        for path in kept:
            self._add(path)

    def _delete(self, paths: Sequence[Path]) -> None:
        console.say(f"{check.amount(len(paths), 'block')} of cached features damaged, e.g. {paths[0]}: computed again.")
        for path in paths:
            with suppress(OSError):
                path.unlink()
            self._known.discard(path.name)
