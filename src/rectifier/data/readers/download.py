"""Fetch files that have a public address, and unpack archives without leaving the folder.

A download is checked against its checksum, continues where an earlier one broke off, and appears under its name only
when it is whole. So does an unpacked folder: that it exists means that it is complete.
"""

from __future__ import annotations

import hashlib
import lzma
import stat
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

from rectifier._base import check, console

ALGORITHMS = ("md5", "sha1", "sha256", "sha512")
ATTEMPTS = 4
PAUSE = 1.0  # seconds before the second attempt, doubled before each further one
TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for the next bytes
BLOCK = 2**18
LIMIT = 64 * 2**30  # bytes that an archive may hold


def fetch(url: str, folder: str | Path, *, known_hash: str | None = None, filename: str | None = None) -> Path:
    """Download a file into ``folder`` unless it is there already, and return its path.

    ``known_hash`` is written as pooch writes it, ``"md5:..."`` or ``"sha256:..."``; bare digits are a sha256. A file
    that is there is taken if the checksum fits, and as it is if none is given. What has arrived when a download breaks
    off stays in ``<filename>.part`` and the next call asks for the rest alone; without a checksum nothing could tell
    that such a beginning is stale, so then every call starts anew.
    """
    name = PurePosixPath(urlsplit(url).path).name if filename is None else filename
    if urlsplit(url).scheme not in ("http", "https"):
        check.fail("url", "an http or https address", repr(url))
    if name in ("", "..") or Path(name).name != name:
        check.fail("filename", "the name of a file, without folders", repr(name))
    checksum = None if known_hash is None else _checksum(known_hash)
    path = Path(folder).expanduser() / name
    if path.is_file():
        if checksum is None or _digest(path, checksum[0]) == checksum[1]:
            return path
        console.say(f"{path} is not the expected file (its {checksum[0]} differs).")
    by_hand = f" The file can be fetched by hand from {url} and put at {path}."
    try:
        import pooch  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(f"Downloading {name} needs pooch: pip install pooch.{by_hand}") from error

    console.say(f"Downloading {url} to {path}.")
    part = path.with_name(f"{name}.part")
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # the line above has said it, or the caller wants quiet
    try:
        joined = None if checksum is None else ":".join(checksum)
        pooch.retrieve(url, joined, name, path.parent, downloader=lambda url, to, _: _deliver(url, part, to, checksum))
    except OSError as error:
        raise OSError(check.sentence(url, "downloaded", f"{type(error).__name__}: {error}") + by_hand) from error
    finally:
        logger.setLevel(level)
    return path


def unpack(archive: str | Path, folder: str | Path, *, limit: int = LIMIT) -> Path:
    """Unpack a tar (plain, gz, bz2, xz) or zip archive into ``folder``, which must be new or empty, and return it.

    Every member is looked at before anything is written. A member is refused when its path or its link's target is
    absolute or goes through ``..`` (links that only lead downwards cannot leave the folder, however they are chained),
    when it is neither file, folder nor link, or when the members together exceed ``limit`` bytes.
    """
    archive, folder = Path(archive), Path(folder).expanduser()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        check.fail("the folder to unpack into", "new or empty", folder)
    with _readable(archive) as (members, extract):
        total = 0
        for name, target, size, allowed in members:
            total += size
            if not allowed or not _stays_inside(name) or not _stays_inside(target):
                wanted = "a file, folder or link inside the folder (no absolute path, no '..')"
                check.fail(f"every member of {archive}", wanted, repr(name) + (f" -> {target!r}" if target else ""))
            if total > limit:
                check.fail(f"{archive}", f"at most {limit} bytes when unpacked", f"more at member {name!r}")
        console.say(f"Unpacking {archive} into {folder}.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
            whole = Path(beside, "whole")  # one deeper, because a temporary folder is closed to other users
            whole.mkdir()
            extract(whole)
            if folder.exists():
                folder.rmdir()
            whole.rename(folder)
    return folder


def _checksum(known_hash: str) -> tuple[str, str]:
    """Split ``"md5:..."`` into algorithm and digits; bare digits are a sha256."""
    algorithm, _, digits = known_hash.rpartition(":")
    algorithm, digits = algorithm.lower() or "sha256", digits.lower()
    check.raise_all([check.choice("the algorithm of known_hash", algorithm, ALGORITHMS)])
    length = 2 * hashlib.new(algorithm).digest_size
    if len(digits) != length or set(digits) - set("0123456789abcdef"):
        check.fail("known_hash", f"{length} hexadecimal digits for {algorithm}", repr(known_hash))
    return algorithm, digits


def _digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _deliver(url: str, part: Path, to: str, checksum: tuple[str, str] | None) -> None:
    """Bring the whole file to ``to`` by way of ``part``; the checksum tells whether ``part`` was a true beginning."""
    if checksum is None:
        part.unlink(missing_ok=True)
    resumed = part.exists()
    _transfer(url, part)
    if checksum is not None and (got := _digest(part, checksum[0])) != checksum[1]:
        part.unlink()
        if resumed:
            return _deliver(url, part, to, checksum)
        what = f"the {checksum[0]} of {url}"
        hint = " It was removed. Try again; if it stays so, the file at that address is another one than was expected."
        raise ValueError(check.sentence(what, checksum[1], got) + hint)
    part.replace(to)


def _transfer(url: str, part: Path) -> None:
    """Fetch what ``part`` still lacks, with a few attempts at a connection that breaks."""
    import requests
    import urllib3

    with console.progress() as display:
        task = display.add_task(f"{part.stem} (MB)", total=None)

        def show(done: int, total: int | None) -> None:
            display.update(task, completed=done / 1e6, total=None if total is None else total / 1e6)

        for attempt in range(1, ATTEMPTS + 1):
            try:
                return _attempt(url, part, show)
            except (ConnectionError, requests.RequestException, urllib3.exceptions.HTTPError) as error:
                if attempt == ATTEMPTS:
                    raise ConnectionError(str(error)) from error
                time.sleep(PAUSE * 2 ** (attempt - 1))


def _attempt(url: str, part: Path, show: Callable[[int, int | None], None]) -> None:
    """Ask once for what ``part`` lacks and append it; begin anew where the server does not continue."""
    import requests

    have = part.stat().st_size if part.exists() else 0
    # Compressed on the way, the bytes would be neither those of the checksum nor those that Range counts.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        scope = answer.headers.get("Content-Range", "")
        if answer.status_code == 416 and scope == f"bytes */{have}":
            return  # all of it is here already
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
            for block in answer.raw.stream(BLOCK, decode_content=False):
                file.write(block)
                show(file.tell(), total)
    if total is not None and (size := part.stat().st_size) != total:
        raise ConnectionError(f"the connection closed after {size} of {total} bytes")


# Name, link target (or nothing), size, and whether it is of a kind that may be unpacked.
Member = tuple[str, str, int, bool]


@contextmanager
def _readable(archive: Path) -> Iterator[tuple[Iterator[Member], Callable[[Path], None]]]:
    """Open an archive of either kind: its members, and a way to extract them all. Damage gives one clear error."""
    try:
        with archive.open("rb") as file:
            is_zip = file.read(4) in (b"PK\3\4", b"PK\5\6")
        if is_zip:
            with zipfile.ZipFile(archive) as zipped:
                yield _zip_members(zipped), zipped.extractall
        else:
            with tarfile.open(archive) as tar:
                # The first versions of Python 3.11 have no filters; where members and links lead is checked anyway.
                options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                yield _tar_members(tar), lambda folder: tar.extractall(folder, **options)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's own, such as a full disk; gzip and bz2 report damage without a number
        reason = str(error).partition(":\n")[0]  # tarfile goes on to list what every compressor thinks of it
        message = check.sentence(str(archive), "a whole tar or zip archive", f"{type(error).__name__}: {reason}")
        raise ValueError(f"{message} Delete it and download it again.") from error


def _zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)  # zipfile would write a link's target as a file's content
        yield info.filename, "", info.file_size, kind in (0, stat.S_IFREG, stat.S_IFDIR)


def _tar_members(archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive:
        link = info.issym() or info.islnk()
        yield info.name, info.linkname if link else "", info.size, link or info.isfile() or info.isdir()
    # tarfile takes a damaged header for the end, and would drop all that follows without a word.
    if archive.fileobj is not None:
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError("damaged or cut off before the end mark")
        while archive.fileobj.read(BLOCK):
            pass  # the compressor's own checksum comes last


def _stays_inside(path: str) -> bool:
    r"""Say whether a path leads only downwards, read as Windows does, where a backslash separates too.

    >>> [_stays_inside(path) for path in ("a/b", "/a", "a/../b", r"a\..\b", "C:a")]
    [True, False, False, False, False]
    """
    parsed = PureWindowsPath(path)
    return not parsed.drive and not parsed.root and ".." not in parsed.parts
