"""Compute the features that a cache lacks: threads decode while the network computes, block after block."""

from __future__ import annotations

import errno
import shutil
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rectifier._base import check, console
from rectifier.data.dataset import Pixels
from rectifier.data.decode import UnreadableError
from rectifier.data.features.blocks import Key, key_of
from rectifier.data.features.claims import Claim
from rectifier.data.features.compute import Compute, Floats, Layout, features_of
from rectifier.data.features.contents import Contents
from rectifier.data.features.index import Index
from rectifier.data.features.meter import Meter
from rectifier.data.features.views import Views
from rectifier.data.store import available_cores

BLOCK_IMAGES = 256  # what a killed extraction loses at most, and what processes share the work by
_BATCH = 64  # images that are computed at once
_ABANDONED = 3600.0  # seconds
_PAUSE = 0.5  # seconds between looks for the work of other processes


class Image(NamedTuple):
    """An image to compute: its digest, where the data has it, and how many views it needs."""

    digest: bytes
    position: int
    views: int

    @property
    def keys(self) -> list[Key]:
        return [key_of(self.digest, view) for view in range(self.views)]


@dataclass
class Work:
    """A chunk of images that this process has claimed, and the views that the cache lacks; later their features."""

    claim: Claim
    lacking: list[tuple[Image, list[int]]]
    keys: list[Key] = field(default_factory=list)
    pixels: list[Pixels] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)


@dataclass
class Extraction:
    """One filling of a cache. ``failures`` gives the reason for each digest that cannot be decoded."""

    folder: Path
    index: Index
    contents: Contents
    compute: Compute
    layout: Layout
    views: Views
    failures: dict[bytes, str] = field(default_factory=dict)

    def run(self, images: Sequence[Image]) -> None:
        """Compute what the cache lacks of these images. Chunks that other processes claim are waited for."""
        self.index.refresh()
        self.index.verify(key for image in images for key in image.keys)
        chunks = [images[start : start + BLOCK_IMAGES] for start in range(0, len(images), BLOCK_IMAGES)]
        todo = {number: count for number, chunk in enumerate(chunks) if (count := len(self._lacking(chunk)))}
        if not todo:
            console.say(f"{check.amount(len(images), 'image')}: features are in the cache, {self.folder}.")
            return
        self._make_room([each for number in todo for each in self._lacking(chunks[number])])
        waiting = False
        with Meter(sum(todo.values()), self.compute.described) as meter:
            while todo:
                if not self._pass([chunks[number] for number in todo], meter):
                    if not waiting:
                        console.say(f"Waiting for {check.amount(sum(todo.values()), 'image')} of other processes.")
                    waiting = True
                    time.sleep(_PAUSE)
                    self.index.refresh()
                self.index.verify(key for number in todo for image in chunks[number] for key in image.keys)
                todo = {number: count for number in todo if (count := len(self._lacking(chunks[number])))}
                meter.left(sum(todo.values()))

    def _lacking(self, chunk: Sequence[Image]) -> list[tuple[Image, list[int]]]:
        found = []
        for image in chunk:
            views = [view for view, key in enumerate(image.keys) if self.index.lacks(key)]
            if views and image.digest not in self.failures:
                found.append((image, views))
        return found

    def _pass(self, chunks: Sequence[Sequence[Image]], meter: Meter) -> bool:
        """Compute each chunk that no other process claims, and say whether there was one."""
        held: list[Work] = []
        done = False
        decoded = self._decoded(self._claimed(chunks, held))
        try:
            for work, image, views, future in decoded:
                done = True
                try:
                    pixels = future.result()
                except UnreadableError as error:
                    self.failures[image.digest] = str(error)
                else:
                    work.keys += [key_of(image.digest, view) for view in views]
                    work.pixels.append(pixels)
                    meter.advance(1)
                last = image is work.lacking[-1][0]
                if last or sum(map(len, work.pixels)) >= _BATCH:
                    self._compute(work)
                    for each in held:
                        each.claim.touch()
                if last:
                    self._write(work)
                    work.claim.release()
                    held.remove(work)
        finally:
            decoded.close()  # its threads end before the claims
            for work in held:
                work.claim.release()
        return done

    def _claimed(self, chunks: Iterable[Sequence[Image]], held: list[Work]) -> Iterator[Work]:
        """Claim one chunk after the other, and yield what the cache lacks of it by then."""
        for chunk in chunks:
            with self._room_for(sum(image.views for image in chunk)):
                claim = Claim.take(self.folder / f"{chunk[0].digest.hex()}.claim")
            if claim is None:
                continue
            held.append(work := Work(claim, []))
            self.index.refresh()
            work.lacking = self._lacking(chunk)
            if work.lacking:
                yield work
            else:
                claim.release()
                held.remove(work)

    def _decoded(self, works: Iterable[Work]) -> Generator[tuple[Work, Image, list[int], Future[Pixels]]]:
        """Decode ahead of the network: two batches, so that neither waits and little memory is taken."""
        waiting: deque[tuple[Work, Image, list[int], Future[Pixels]]] = deque()
        ahead = 0
        with ThreadPoolExecutor(available_cores(), "rectifier-decode") as threads:
            try:
                for work in works:
                    for image, views in work.lacking:
                        waiting.append((work, image, views, threads.submit(self._decode, image, views)))
                        ahead += len(views)
                        while ahead > 2 * _BATCH:
                            ahead -= len(waiting[0][2])
                            yield waiting.popleft()
                while waiting:
                    yield waiting.popleft()
            finally:
                for *_, future in waiting:
                    future.cancel()

    def _decode(self, image: Image, views: Sequence[int]) -> Pixels:
        return self.views.of(self.contents.load(image.position, self.views.size), views, image.digest)

    def _compute(self, work: Work) -> None:
        if work.pixels:
            pixels = np.concatenate(work.pixels)
            work.pixels.clear()
            parts = (pixels[start : start + _BATCH] for start in range(0, len(pixels), _BATCH))
            work.features += [features_of(self.compute, part, self.layout) for part in parts]

    def _write(self, work: Work) -> None:
        if work.keys:
            with self._room_for(len(work.keys)):
                self.index.write(work.keys, np.concatenate(work.features))

    def _make_room(self, lacking: Sequence[tuple[Image, list[int]]]) -> None:
        """Make the folder, and refuse a disk that cannot hold what is to come, before anything is computed."""
        rows = sum(len(views) for _, views in lacking)
        with self._room_for(rows):
            self.folder.mkdir(parents=True, exist_ok=True)
            _sweep(self.folder)
            disk = shutil.disk_usage(self.folder)
            if disk.total and disk.free < rows * self.layout.row_bytes:
                raise OSError(errno.ENOSPC, f"{_size(disk.free)} are free")

    @contextmanager
    def _room_for(self, rows: int) -> Iterator[None]:
        """Say what to do about a full disk, and about a folder that cannot be written."""
        try:
            yield
        except OSError as error:
            where = "Or set RECTIFIER_CACHE to a folder on another disk."
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                need = _size(rows * self.layout.row_bytes)
                text = f"The disk is full: these features need another {need} in {self.folder}. Features that are"
                text += f" cached stay. Make room and run the command again. {where}"
            else:
                text = f"Features cannot be cached in {self.folder} ({error.strerror}). Make it writable. {where}"
            raise OSError(error.errno, text) from error


def _sweep(folder: Path) -> None:
    """Delete the drafts and claims that killed processes left behind."""
    for path in folder.iterdir():
        with suppress(OSError):
            if path.suffix in (".tmp", ".claim") and path.stat().st_mtime < time.time() - _ABANDONED:
                path.unlink()


def _size(count: int) -> str:
    """Write a number of bytes.

    >>> _size(1280 * 4 * 2000), _size(3 << 30)
    ('9.8 MiB', '3.0 GiB')
    """
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.1f} MiB"
