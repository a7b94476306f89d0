"""Decoded images in memory-mapped files, with a bound on resident memory."""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from rectifier._base import check
from rectifier.data.dataset import Ints, Pixels

RESIDENT_BYTES = 128 << 20  # most bytes of the maps that stay in memory
FAULT_BYTES = 2 << 20  # bytes that reading one image may bring into memory: the system may map a huge page around it


class Maps:
    """Memory maps of the shards. Pages go back to the system regularly, which bounds resident memory."""

    def __init__(self, paths: Sequence[Path], shape: tuple[int, ...]) -> None:
        self._paths, self._shape = [path.absolute() for path in paths], shape
        self._open: dict[int, tuple[mmap.mmap, Pixels]] = {}
        self._touched: set[int] = set()
        self._images = 0
        self._lock = Lock()
        whole = sum(path.stat().st_size for path in self._paths if path.exists())
        self._bounded = whole > RESIDENT_BYTES and hasattr(mmap, "MADV_DONTNEED")

    def __reduce__(self) -> tuple[Any, ...]:
        return Maps, (self._paths, self._shape)  # a process that unpickles this maps the files itself

    def checksums(self) -> list[str]:
        """Return the checksum of every shard, recorded when the shard was written."""
        return [json.loads(path.with_suffix(".json").read_text())["sha256"] for path in self._paths]

    def read(self, shard: int, rows: Ints) -> Pixels:
        """Return a copy of these images of a shard."""
        images = self._mapped(shard)[rows]
        if not self._bounded:
            return images
        with self._lock:
            self._touched.add(shard)
            self._images += len(rows)
            if self._images * FAULT_BYTES >= RESIDENT_BYTES:
                for touched in self._touched:
                    self._open[touched][0].madvise(mmap.MADV_DONTNEED)
                self._touched.clear()
                self._images = 0
        return images

    def _mapped(self, shard: int) -> Pixels:
        with self._lock:
            if shard not in self._open:
                try:
                    file = self._paths[shard].open("rb")
                except FileNotFoundError:
                    hint = "The store was rebuilt for other images or another size, or deleted: open or build it again."
                    check.no_file(self._paths[shard], hint)
                with file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                self._open[shard] = mapped, np.frombuffer(mapped, np.uint8).reshape(-1, *self._shape)
            return self._open[shard][1]


@dataclass(frozen=True)
class StoredImages:
    """Decoded images in the shards of a store. ``slots`` ``(N,)`` locates each; ``fit`` says how it was resized."""

    maps: Maps
    size: tuple[int, int]
    per_shard: int
    slots: Ints
    fit: str = "stretch"

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def shape(self) -> tuple[int, int, int]:
        return (*self.size, 3)

    def checksum(self) -> str:
        """Return a hash of all pixels. It comes from the recorded checksums: no pixel is read."""
        listed = "\n".join([*self.maps.checksums(), str(self.per_shard)])
        return hashlib.sha256(listed.encode() + self.slots.astype("<i8").tobytes()).hexdigest()[:16]

    def select(self, index: Ints) -> StoredImages:
        return replace(self, slots=self.slots[index])

    def gather(self, index: Ints, out: Pixels | None = None) -> Pixels:
        shard, row = np.divmod(self.slots[index], self.per_shard)
        out = np.empty((len(index), *self.shape), np.uint8) if out is None else out
        order = np.argsort(shard, kind="stable")
        edges = np.flatnonzero(np.diff(shard[order])) + 1
        for places in np.split(order, edges):  # one step for each shard that the batch touches
            if len(places):
                out[places] = self.maps.read(int(shard[places[0]]), row[places])
        return out
