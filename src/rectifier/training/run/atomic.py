"""What a run writes: whole or not at all, and with a word on what to do when it cannot be written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier._base import files as atomic


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that neither a full disk nor a kill nor a power cut harms the one that was there."""
    try:
        atomic.write_bytes(path, content, durable=True)
    except OSError as error:
        raise unsaved(error, path) from error


def unsaved(error: OSError, path: Path) -> OSError:
    """Say what could not be saved, and what to do."""
    remedy = "What was saved before is intact; make room and go on from there."
    return OSError(error.errno, f"{error.strerror} while saving {path}. {remedy}")


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # The name of a file may hold bytes that are no UTF-8; json reads them back from their escapes.
    write_bytes(path, text.encode(errors="backslashreplace"))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        check.fail(str(path), "JSON", f"a damaged file ({error}): restore it, or put it elsewhere")
