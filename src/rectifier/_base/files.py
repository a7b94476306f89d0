"""Files that are there whole or not at all, whatever interrupts the writing, and folders that one process has alone.

Imports no torch: decoding uses it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none; claims are not held there
    fcntl = None  # type: ignore[assignment]

_DRAFT = ".tmp"


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Give a path to write to that takes the place of ``path`` when all went well, and leaves nothing otherwise.

    ``durable``: the content is on the disk before it takes its place, so that a power cut leaves one of the two whole.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_DRAFT}")
    try:
        yield draft
        if durable:
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes | memoryview, *, durable: bool = False) -> None:
    """Write a file beside its place and move it there."""
    with replacing(path, durable=durable) as draft:
        draft.write_bytes(content)


def is_draft(path: Path) -> bool:
    """Say whether a file is what a kill left of the writing of another."""
    return path.name.startswith(".") and path.name.endswith(_DRAFT)


@contextmanager
def claimed(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a folder for this process as long as the block runs; say whether it is ours.

    A claim leaves no file, and ends with the process, however that ends. It keeps out those who claim it, too. With
    ``wait`` it begins when the others have ended; without, it is False as long as somebody has the folder.
    """
    if fcntl is None:
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _locked(handle, wait)
    finally:
        os.close(handle)


def _locked(handle: int, wait: bool) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True
