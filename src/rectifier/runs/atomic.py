"""Files that are there whole or not at all, whatever interrupts the writing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rectifier import check


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there: a full disk or a kill leaves the one that was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}{_UNFINISHED}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise unsaved(error, path) from error
    finally:
        beside.unlink(missing_ok=True)


def unsaved(error: OSError, path: Path) -> OSError:
    """Say what could not be saved, and what to do."""
    remedy = "What was saved before is intact; make room and go on from there."
    return OSError(error.errno, f"{error.strerror} while saving {path}. {remedy}")


def is_unfinished(path: Path) -> bool:
    """Say whether a file is what a kill left of the writing of another."""
    return path.name.startswith(".") and path.name.endswith(_UNFINISHED)


_UNFINISHED = ".unfinished"


def write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # The name of a file may hold bytes that are no UTF-8; json reads them back from their escapes.
    write_bytes(path, text.encode(errors="backslashreplace"))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        check.fail(str(path), "JSON", f"a damaged file ({error})")
