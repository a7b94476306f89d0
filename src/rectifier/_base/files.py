"""Write files whole or not at all, whatever interrupts the writing, and claim folders for one process.

Imports no torch, because processes that decode images use it too.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows has none; claims are not held there
    fcntl = None  # type: ignore[assignment]

_DRAFT = ".tmp"


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Give a path to write to. It replaces ``path`` when the block succeeds and is deleted when it fails.

    ``durable`` puts the content on the disk before it replaces the old file, so a power cut leaves one of them whole.
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
    """Write a file atomically. A ``durable`` one also survives a power cut, and its errors say what to do."""
    if durable:
        with saving(path), replacing(path, durable=True) as draft:
            draft.write_bytes(content)
    else:
        with replacing(path) as draft:
            draft.write_bytes(content)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Add the file and a remedy to an error of the file system."""
    try:
        yield
    except OSError as error:
        remedy = "What was saved before is intact; make room and resume."
        raise OSError(error.errno, f"{error.strerror} while saving {path}. {remedy}") from error


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically and durably."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # A file name may hold bytes that are not UTF-8; json reads them back from their escapes.
    write_bytes(path, text.encode(errors="backslashreplace"), durable=True)


def read_json(path: Path) -> Any:
    """Read what ``write_json`` wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error}). Restore it, or move it away.") from error


def is_draft(path: Path) -> bool:
    """Say whether a file is an unfinished draft that a killed process left behind."""
    return path.name.startswith(".") and path.name.endswith(_DRAFT)


@contextmanager
def claimed(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a folder for this process while the block runs, and say whether the claim succeeded.

    A claim leaves no file and ends with the process, however that ends. It keeps out only processes that also claim.
    With ``wait`` it starts when the others have ended; without, it is False while another process holds the folder.
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


def as_csv(rows: Sequence[Mapping[str, Any]], header: bool = True) -> str:
    """Return rows with the same keys as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    if header and rows:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
