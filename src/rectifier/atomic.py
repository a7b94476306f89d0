"""Files that are there whole or not at all, whatever interrupts the writing. Imports no torch: decoding uses it too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
