"""The content of each image: a digest that finds its features again, whatever the file is called, and its pixels."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Protocol

import numpy as np
from PIL import Image

from rectifier._base import console
from rectifier._base.files import write_bytes
from rectifier.data.cache_home import cache_home
from rectifier.data.dataset import Decoded, ImageFiles
from rectifier.data.decode import UnreadableError, load
from rectifier.data.store import available_cores

DIGEST_BYTES = 16
_SETTLED = 10**9  # ns; a file that changed a moment ago could change again and show the same time
_INDEX_VERSION = 1
_AT_ONCE = 256

Facts = tuple[int, int, int]


class Contents(Protocol):
    """The images of a data set, by position."""

    def digests(self) -> tuple[list[bytes], dict[int, str]]:
        """Return the digest of each image, empty where it cannot be read; and why not, by position."""
        ...

    def load(self, position: int, size: tuple[int, int]) -> Image.Image:
        """Return an image as RGB, or raise ``UnreadableError``."""
        ...


class FileContents:
    """Image files. An index remembers the digest of a file until its length or one of its times changes."""

    def __init__(self, files: ImageFiles) -> None:
        self._files = files
        root = str(files.root.absolute()).encode(errors="surrogateescape")
        self._index = cache_home() / "features" / "files" / f"{hashlib.sha256(root).hexdigest()[:16]}.json"
        self._facts: dict[str, Facts] = {}

    def digests(self) -> tuple[list[bytes], dict[int, str]]:
        known, now = self._read_index(), time_ns()
        found: dict[str, bytes] = {}
        reasons: dict[str, str] = {}
        new: dict[str, list[int | str]] = {}
        paths = list(dict.fromkeys(self._files.paths))
        for path, digest in zip(paths, _threaded(lambda path: self._digest(path, known), paths), strict=True):
            if isinstance(digest, str):
                reasons[path] = digest
                continue
            found[path] = digest
            facts = self._facts[path]
            if known.get(path, [])[:3] != [*facts] and max(facts[1:]) < now - _SETTLED:
                new[path] = [*facts, digest.hex()]
        if new:
            with suppress(OSError):  # without the index, files are read again, and nothing else
                self._index.parent.mkdir(parents=True, exist_ok=True)
                files = self._read_index() | new  # another process may have written meanwhile
                write_bytes(self._index, json.dumps({"version": _INDEX_VERSION, "files": files}).encode())
        return [found.get(path, b"") for path in self._files.paths], {
            position: reasons[path] for position, path in enumerate(self._files.paths) if path in reasons
        }

    def load(self, position: int, size: tuple[int, int]) -> Image.Image:
        path = self._files.paths[position]
        image = load(self._files.root / path, size)
        if _facts(self._files.root / path) != self._facts[path]:
            raise UnreadableError("it changed while it was read")
        return image

    def _digest(self, path: str, known: dict[str, list[int | str]]) -> bytes | str:
        try:
            facts = self._facts[path] = _facts(self._files.root / path)
            remembered = known.get(path, [])
            if remembered[:3] == [*facts]:
                return bytes.fromhex(str(remembered[3]))
            with (self._files.root / path).open("rb") as file:
                return hashlib.file_digest(file, "sha256").digest()[:DIGEST_BYTES]
        except FileNotFoundError:
            return "no such file"
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)

    def _read_index(self) -> dict[str, list[int | str]]:
        try:
            index = json.loads(self._index.read_text())
            return dict(index["files"]) if index["version"] == _INDEX_VERSION else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}


class PixelContents:
    """Decoded images, in memory or in a store."""

    def __init__(self, images: Decoded) -> None:
        self._images = images

    def digests(self) -> tuple[list[bytes], dict[int, str]]:
        shape = str(self._images.shape).encode()
        return [
            hashlib.sha256(shape + pixels.tobytes()).digest()[:DIGEST_BYTES]
            for start in range(0, len(self._images), _AT_ONCE)
            for pixels in self._images.gather(np.arange(start, min(start + _AT_ONCE, len(self._images))))
        ], {}

    def load(self, position: int, size: tuple[int, int]) -> Image.Image:
        pixels = self._images.gather(np.array([position]))[0]
        return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("RGB")


def _facts(path: Path) -> Facts:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns  # ctime too: a copy can keep the old mtime


def _threaded(digest: Callable[[str], bytes | str], paths: Sequence[str]) -> Iterator[bytes | str]:
    """Yield the digest of each file; reading and hashing let other threads run."""
    with ThreadPoolExecutor(2 * available_cores(), "rectifier-digest") as threads, console.progress() as display:
        task = display.add_task("reading images", total=len(paths))
        for start in range(0, len(paths), _AT_ONCE):
            yield from threads.map(digest, batch := paths[start : start + _AT_ONCE])
            display.advance(task, len(batch))
