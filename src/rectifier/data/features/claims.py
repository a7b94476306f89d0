"""Claims share work among processes, on one machine or on several with a common folder.

A claim is a file that is locked, names the machine, and is touched while the work goes on. The lock decides between
processes of one machine, and ends with them. The time decides between machines: a claim that nothing touched for a few
minutes is free. If two machines take one at the same instant, both do the work, and one result replaces the other.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none; only the time decides there
    fcntl = None  # type: ignore[assignment]

STALE = 300.0  # seconds


class Claim:
    """The claim of this process. ``touch`` it while the work goes on, and ``release`` it at the end."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    @classmethod
    def take(cls, path: Path) -> Claim | None:
        """Claim, or return None while another process works on this."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            locked = _locks(handle)
            holder = os.pread(handle, 256, 0).decode() if hasattr(os, "pread") else path.read_text()
            ours = locked and holder == _machine()
            age = time.time() - os.fstat(handle).st_mtime
            if locked is False or not (ours or not holder or age > STALE):
                os.close(handle)
                return None
            os.ftruncate(handle, 0)
            os.write(handle, _machine().encode())
        except BaseException:
            with suppress(OSError):
                os.close(handle)
            raise
        return cls(path, handle)

    def touch(self) -> None:
        with suppress(OSError):  # another machine found it stale
            os.utime(self._path)

    def release(self) -> None:
        with suppress(OSError):
            self._path.unlink()
        os.close(self._handle)


def _machine() -> str:
    return socket.gethostname()


def _locks(handle: int) -> bool | None:
    """Lock a file and say whether that succeeded; None on a system without locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True
