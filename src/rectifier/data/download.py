"""Download files and unpack archives. A file or folder appears under its name only when it is complete."""

from __future__ import annotations

import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rectifier._base import console

ATTEMPTS = 4
PAUSE = 1.0  # seconds before the second attempt; they double before each further one
TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for the next bytes
_BLOCK = 2**18


def fetch(url: str, folder: Path, known_hash: str) -> Path:
    """Download a file into ``folder``, unless it is already there, and return its path.

    pooch compares the file with ``known_hash``, such as ``"md5:..."``. An interrupted download resumes, in this call
    or the next one: the bytes that arrived stay in ``<name>.part``, and the server is asked only for the rest.
    """
    import pooch  # type: ignore[import-untyped]

    name = url.rpartition("/")[2]
    path, part = folder / name, folder / f"{name}.part"

    def deliver(url: str, to: str, _: object) -> None:
        console.say(f"Downloading {url} to {path}.")
        _transfer(url, part)
        part.replace(to)

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # pooch would report the download a second time
    resumed = part.exists()
    try:
        pooch.retrieve(url, known_hash, name, folder, downloader=deliver)
    except ValueError:
        if not resumed:
            raise
        return fetch(url, folder, known_hash)  # the old bytes were of another file
    except OSError as error:
        by_hand = f"You can also download it by hand and put it at {path}."
        raise OSError(f"Downloading {url} failed: {error}. {by_hand}") from error
    finally:
        logger.setLevel(level)
    return path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a tar archive into ``folder``, which must not exist, and return it.

    tarfile refuses members that would land outside the folder. An interrupted call leaves no folder behind.
    """
    console.say(f"Unpacking {archive} into {folder}.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as draft,
        tarfile.open(archive) as tar,
    ):
        whole = Path(draft, "whole")  # one level deeper, because other users cannot enter a temporary folder
        whole.mkdir()
        tar.extractall(whole, filter="data")
        whole.rename(folder)
    return folder


def _transfer(url: str, part: Path) -> None:
    """Fetch the bytes that ``part`` lacks, and reconnect a few times if the connection breaks."""
    import requests
    import urllib3

    with console.progress() as display:
        task = display.add_task(f"{part.stem} (MB)", total=None)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _attempt(url, part, partial(display.update, task))
            except (ConnectionError, requests.RequestException, urllib3.exceptions.HTTPError) as error:
                if attempt == ATTEMPTS:
                    raise ConnectionError(str(error)) from error
                time.sleep(PAUSE * 2 ** (attempt - 1))


def _attempt(url: str, part: Path, show: Callable[..., None]) -> None:
    """Ask once for the bytes that ``part`` lacks and append them; start over if the server cannot continue there."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    # A compressed transfer would match neither the checksum nor the byte numbers of Range.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        scope = answer.headers.get("Content-Range", "")
        if answer.status_code == 416 and scope == f"bytes */{have}":
            return  # no byte is lacking
        if answer.status_code == 416 or (answer.status_code == 206 and not scope.startswith(f"bytes {have}-")):
            part.unlink(missing_ok=True)
            raise ConnectionError(f"the server does not continue at byte {have} ({answer.status_code} {scope!r})")
        if 400 <= answer.status_code < 500:
            raise OSError(f"{answer.status_code} {answer.reason}")  # asking again would not help
        answer.raise_for_status()
        begin = have if answer.status_code == 206 else 0
        length = scope.rpartition("/")[2] if begin else answer.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        with part.open("ab" if begin else "wb") as file:
            for block in answer.raw.stream(_BLOCK, decode_content=False):
                file.write(block)
                show(completed=file.tell() / 1e6, total=None if total is None else total / 1e6)
    if total is not None and (size := part.stat().st_size) != total:
        raise ConnectionError(f"the connection closed after {size} of {total} bytes")
