"""Downloads against a real server on loopback that misbehaves on request, and archives crafted for each attack."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import re
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest

from rectifier._base import console
from rectifier.data.readers import download
from rectifier.data.readers.download import fetch, unpack

pooch = pytest.importorskip("pooch")

CONTENT = bytes(range(256)) * 4000  # 1 MB
HALF = len(CONTENT) // 2
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves CONTENT under every path; each request's Range header is recorded, None where it has none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.content = CONTENT
        self.status = 0  # answered to every request, when set
        self.failures = 0  # this many answers have status 503
        self.breaks = 0  # this many answers stop after HALF bytes
        self.knows_range = True
        self.shift = 0  # continues at another byte than was asked for
        self.longest = len(CONTENT)  # bytes in one partial answer
        self.tells_size = True  # in its answer 416

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, asked = self.server, self.headers["Range"]
        server.ranges.append(asked)
        if server.status or server.failures:
            server.failures -= 1
            return self.send_error(server.status or 503)
        begin, end = 0, len(server.content)
        if asked and server.knows_range:
            begin = int(asked.removeprefix("bytes=").removesuffix("-")) + server.shift
            if begin >= end:
                self.send_response(416)
                if server.tells_size:
                    self.send_header("Content-Range", f"bytes */{end}")
                return self.end_headers()
            end = min(end, begin + server.longest)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        if server.breaks:
            server.breaks -= 1
            end = begin + HALF
        self.wfile.write(server.content[begin:end])
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download, "PAUSE", 0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def names(folder: Path) -> list[str]:
    """Everything below a folder, hidden or not."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("known_hash", [None, SHA256, MD5.upper(), SHA256.removeprefix("sha256:")])
def test_a_file_is_downloaded_once(server: Server, tmp_path: Path, known_hash: str | None) -> None:
    for _ in range(2):
        path = fetch(server.url, tmp_path / "new" / "folder", known_hash=known_hash)
        assert path == tmp_path / "new" / "folder" / "file.bin"
        assert path.read_bytes() == CONTENT
    assert server.ranges == [None]
    assert names(path.parent) == ["file.bin"]


def test_the_name_of_the_file_can_be_given(server: Server, tmp_path: Path) -> None:
    assert fetch(server.url, tmp_path, filename="other.bin") == tmp_path / "other.bin"
    assert names(tmp_path) == ["other.bin"]


def test_a_broken_connection_asks_for_the_rest_alone(server: Server, tmp_path: Path) -> None:
    server.breaks = 1
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_later_call_asks_for_the_rest_alone(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.breaks = 1
    with monkeypatch.context() as patch:
        patch.setattr(download, "ATTEMPTS", 1)
        with pytest.raises(OSError, match=f"{server.url} to be downloaded, but got ConnectionError"):
            fetch(server.url, tmp_path, known_hash=SHA256)
    assert names(tmp_path) == ["file.bin.part"]
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert names(tmp_path) == ["file.bin"]


def test_a_file_that_shrinks_meanwhile_is_not_mixed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def replace_file(pause: float) -> None:
        pauses.append(pause)
        server.content = b"new"

    monkeypatch.setattr(download, "PAUSE", 3.0)
    monkeypatch.setattr(download.time, "sleep", replace_file)
    server.breaks = 1
    assert fetch(server.url, tmp_path).read_bytes() == b"new"
    assert server.ranges == [None, f"bytes={HALF}-", None]
    assert pauses == [3.0, 6.0]


def test_pieces_that_the_server_cuts_short_are_put_together(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:HALF])
    server.longest = HALF // 2 + 1
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-", f"bytes={HALF + server.longest}-"]


def test_a_server_that_ignores_range_starts_again(server: Server, tmp_path: Path) -> None:
    server.breaks, server.knows_range = 1, False
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_server_that_continues_elsewhere_is_not_believed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:HALF])
    server.shift = 256
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-", None]


def test_a_part_that_is_already_whole_is_kept(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT)}-"]


@pytest.mark.parametrize("stale", [b"x" * 100, b"x" * len(CONTENT), CONTENT + b"x"], ids=["short", "equal", "long"])
@pytest.mark.parametrize("tells_size", [True, False])
def test_a_stale_part_does_not_poison_the_file(server: Server, tmp_path: Path, stale: bytes, tells_size: bool) -> None:
    server.tells_size = tells_size
    (tmp_path / "file.bin.part").write_bytes(stale)
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(stale)}-", None]


def test_a_part_is_not_trusted_without_a_checksum(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(b"x" * 100)
    assert fetch(server.url, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None]


def test_an_existing_file_that_differs_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"something else")
    assert fetch(server.url, tmp_path, known_hash=MD5).read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    server.content = b"an error page, say"
    got = hashlib.sha256(server.content).hexdigest()
    wanted = SHA256.removeprefix("sha256:")
    message = f"Expected the sha256 of {server.url} to be {wanted}, but got {got}. It was removed. Try again"
    with pytest.raises(ValueError, match=re.escape(message)):
        fetch(server.url, tmp_path, known_hash=SHA256)
    assert names(tmp_path) == []
    server.content = CONTENT
    assert fetch(server.url, tmp_path, known_hash=SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, None]


def test_not_found_is_said_at_once(server: Server, tmp_path: Path) -> None:
    server.status = 404
    message = f"{server.url} to be downloaded, but got OSError: 404 Not Found. The file can be fetched by hand from "
    with pytest.raises(OSError, match=re.escape(f"{message}{server.url} and put at {tmp_path / 'file.bin'}.")):
        fetch(server.url, tmp_path, known_hash=SHA256)
    assert server.ranges == [None]
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.failures = download.ATTEMPTS - 1
    assert fetch(server.url, tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None] * download.ATTEMPTS
    server.status = 500
    with pytest.raises(OSError, match="ConnectionError: 500 Server Error"):
        fetch(server.url, tmp_path, filename="other.bin")
    assert len(server.ranges) == 2 * download.ATTEMPTS


def test_an_unreachable_host_is_named(server: Server, tmp_path: Path) -> None:
    server.server_close()  # nobody listens at this port now
    with pytest.raises(OSError, match=f"Expected {server.url} to be downloaded, but got .*refused.* fetched by hand"):
        fetch(server.url, tmp_path)


def test_a_server_that_falls_silent_times_out(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", (1.0, 0.05))
    monkeypatch.setattr(download, "ATTEMPTS", 2)
    wake = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda _: wake.wait(10))
    with pytest.raises(OSError, match=r"Read timed out.* put at .*file\.bin"):
        fetch(server.url, tmp_path)
    wake.set()


def test_a_folder_that_cannot_be_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"but got \w+Error: .* put at .*/file/folder/file\.bin\."):
        fetch(server.url, tmp_path / "file" / "folder")
    assert server.ranges == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_said_at_once(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device.* fetched by hand"):
        fetch(server.url, tmp_path, known_hash=SHA256)
    assert server.ranges == [None]


def test_pooch_is_needed_only_to_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    url = "https://example.org/file.bin"
    with pytest.raises(ImportError, match=r"pip install pooch\. .* put at .*file\.bin"):
        fetch(url, tmp_path, known_hash=SHA256)
    (tmp_path / "file.bin").write_bytes(CONTENT)
    assert fetch(url, tmp_path, known_hash=SHA256) == tmp_path / "file.bin"


def test_quiet_is_quiet(
    server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, said = pooch.get_logger(), list[logging.LogRecord]()
    monkeypatch.setattr(logger, "handle", said.append)
    monkeypatch.setattr(logger, "level", logging.INFO)
    with console.quiet():
        fetch(server.url, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert said == []
    assert logger.level == logging.INFO
    fetch(server.url, tmp_path, filename="other.bin")
    assert capfd.readouterr() == ("", f"Downloading {server.url} to {tmp_path / 'other.bin'}.\n")


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("ftp://host/file", {}, "Expected url to be an http or https address, but got 'ftp://host/file'"),
        ("http://host/", {}, "Expected filename to be the name of a file, without folders, but got ''"),
        ("http://host/..", {}, "Expected filename to be the name of a file.* got '..'"),
        ("http://host/a", {"filename": "../a"}, "Expected filename to be the name of a file.* got '../a'"),
        ("http://host/a", {"known_hash": "sha265:00"}, "known_hash to be one of .*'sha265'. Did you mean 'sha256'"),
        ("http://host/a", {"known_hash": "md5:00"}, "known_hash to be 32 hexadecimal digits for md5, but got 'md5:00'"),
        ("http://host/a", {"known_hash": "x" * 64}, "known_hash to be 64 hexadecimal digits for sha256"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, url: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fetch(url, tmp_path, **options)
    assert names(tmp_path) == []


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, 3 if kind == tarfile.REGTYPE else 0
    return info


def write_tar(path: Path, *members: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info in members:
            archive.addfile(info, io.BytesIO(b"abc"))
    return path


def write_zip(path: Path, *members: zipfile.ZipInfo | str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for info in members:
            archive.writestr(info, "abc")
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_python_without_filters_unpacks(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = tarfile.TarFile.extractall
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda tar, folder: extract(tar, folder))
    write_tar(archive, member("a.txt"))
    assert names(unpack(archive, tmp_path / "data")) == ["a.txt"]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz", "zip"])
def test_archives_are_unpacked(archive: Path, tmp_path: Path, mode: str) -> None:
    if mode == "zip":
        write_zip(archive, "a.txt", "b/c.txt")
    else:
        write_tar(archive, member("a.txt"), member("./b", tarfile.DIRTYPE), member("b/c.txt"), mode=mode)
    folder = unpack(archive, tmp_path / "deep" / "data")
    assert folder == tmp_path / "deep" / "data"
    assert names(tmp_path) == ["archive", "deep", "deep/data", "deep/data/a.txt", "deep/data/b", "deep/data/b/c.txt"]
    assert (folder / "b" / "c.txt").read_bytes() == b"abc"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert folder.stat().st_mode == plain.stat().st_mode


def test_links_that_lead_downwards_are_unpacked(archive: Path, tmp_path: Path) -> None:
    links = [member("s", tarfile.SYMTYPE, "b/c.txt"), member("h", tarfile.LNKTYPE, "b/c.txt")]
    folder = unpack(write_tar(archive, member("b/c.txt"), *links), tmp_path / "data")
    assert (folder / "s").is_symlink()
    assert (folder / "s").read_bytes() == (folder / "h").read_bytes() == b"abc"


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (member("/absolute"), "'/absolute'"),
        (member("../escape"), "'../escape'"),
        (member("a/../../escape"), "'a/../../escape'"),
        (member("a\\..\\..\\escape"), r"'a\\..\\..\\escape'"),
        (member("C:escape"), "'C:escape'"),
        (member("link", tarfile.SYMTYPE, "/etc"), "'link' -> '/etc'"),
        (member("link", tarfile.SYMTYPE, ".."), "'link' -> '..'"),
        # Lexically inside; outside if 'up' is a link to somewhere higher.
        (member("a/b/link", tarfile.SYMTYPE, "up/.."), "'a/b/link' -> 'up/..'"),
        (member("link", tarfile.LNKTYPE, "/etc/passwd"), "'link' -> '/etc/passwd'"),
        (member("link", tarfile.LNKTYPE, "../secret"), "'link' -> '../secret'"),
        (member("device", tarfile.CHRTYPE), "'device'"),
        (member("disk", tarfile.BLKTYPE), "'disk'"),
        (member("pipe", tarfile.FIFOTYPE), "'pipe'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tar_member_that_leaves_is_refused_before_writing(
    archive: Path, tmp_path: Path, bad: tarfile.TarInfo, named: str
) -> None:
    write_tar(archive, member("good"), bad)
    with pytest.raises(
        ValueError, match=re.escape(f"every member of {archive} to be a file") + ".*" + re.escape(named)
    ):
        unpack(archive, tmp_path / "deep" / "data")
    assert names(tmp_path) == ["archive"]


@pytest.mark.parametrize("name", ["/absolute", "../escape", "a/../../escape", "a\\..\\..\\escape", "C:escape"])
def test_a_zip_member_that_leaves_is_refused_before_writing(archive: Path, tmp_path: Path, name: str) -> None:
    write_zip(archive, "good", name)
    with pytest.raises(ValueError, match="every member of .*" + re.escape(repr(name))):
        unpack(archive, tmp_path / "deep" / "data")
    assert names(tmp_path) == ["archive"]


def test_a_link_in_a_zip_is_refused(archive: Path, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    write_zip(archive, "good", link)
    with pytest.raises(ValueError, match=r"every member of .*'link'"):
        unpack(archive, tmp_path / "data")
    assert names(tmp_path) == ["archive"]


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_that_swells_is_refused(archive: Path, tmp_path: Path, kind: str) -> None:
    if kind == "tar":
        write_tar(archive, member("a"), member("b"))
    else:
        write_zip(archive, "a", "b")
    with pytest.raises(ValueError, match="at most 5 bytes when unpacked, but got more at member 'b'"):
        unpack(archive, tmp_path / "data", limit=5)
    assert names(tmp_path) == ["archive"]
    unpack(archive, tmp_path / "data", limit=6)


def cut(content: bytes) -> bytes:
    return content[:-100_000]


def flip(content: bytes) -> bytes:
    return content[:-100_000] + bytes([content[-100_000] ^ 0xFF]) + content[-99_999:]


@pytest.mark.parametrize("damage", [cut, flip])
@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz", "zip"])
def test_a_damaged_archive_leaves_nothing(archive: Path, tmp_path: Path, mode: str, damage: object) -> None:
    noise = Random(0).randbytes(1_500_000)  # more than one block of bz2: the damage shows late
    if mode == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("noise", noise)
    else:
        info = member("noise")
        info.size = len(noise)
        with tarfile.open(archive, mode) as tar:  # type: ignore[call-overload]
            tar.addfile(info, io.BytesIO(noise))
    archive.write_bytes(damage(archive.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ValueError, match=f"Expected {archive} to be a whole tar or zip .*Delete it and download it"):
        unpack(archive, tmp_path / "data")
    assert names(tmp_path) == ["archive"]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "damage",
    [
        lambda tar: tar[:1024] + b"\xff" + tar[1025:],  # the second member's header: tarfile alone would stop there
        lambda tar: tar[:1024],  # cut between two members
        lambda tar: tar[:1030],
        lambda tar: b"",
        lambda tar: b"<html>404</html>",
    ],
)
def test_a_tar_that_lost_members_is_noticed(archive: Path, tmp_path: Path, damage: object, packed: bool) -> None:
    content = damage(write_tar(archive, member("a"), member("b"), mode="w").read_bytes())  # type: ignore[operator]
    archive.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(ValueError, match="to be a whole tar or zip archive"):
        unpack(archive, tmp_path / "data")
    assert names(tmp_path) == ["archive"]


def test_an_interrupted_unpack_leaves_nothing(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tar(archive, member("a"), member("b"))
    extract = tarfile.TarFile.extractall

    def interrupt(*arguments: object, **options: object) -> None:
        extract(*arguments, **options)  # type: ignore[arg-type]
        assert any(name.endswith("/b") for name in names(tmp_path))
        assert not (tmp_path / "data").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(tarfile.TarFile, "extractall", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive, tmp_path / "data")
    assert names(tmp_path) == ["archive"]


def test_only_a_new_or_empty_folder_is_filled(archive: Path, tmp_path: Path) -> None:
    write_tar(archive, member("a"))
    folder = tmp_path / "data"
    folder.mkdir()
    assert names(unpack(archive, folder)) == ["a"]
    (folder / "a").write_text("mine")
    for taken in (folder, folder / "a"):
        with pytest.raises(ValueError, match=f"to be new or empty, but got {taken}"):
            unpack(archive, taken)
    assert (folder / "a").read_text() == "mine"


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.zip"):
        unpack(tmp_path / "nowhere.zip", tmp_path / "data")
