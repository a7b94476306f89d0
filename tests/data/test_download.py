"""Downloads from a real server that misbehaves on request; archives that are damaged or escape."""

from __future__ import annotations

import hashlib
import io
import logging
import re
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest

from rectifier._base import console
from rectifier.data import download
from rectifier.data.download import fetch, unpack

pooch = pytest.importorskip("pooch")

CONTENT = bytes(range(256)) * 4000
HALF = len(CONTENT) // 2
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def names(folder: Path) -> list[str]:
    """Everything below a folder, hidden or not."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("known_hash", [SHA256, f"md5:{hashlib.md5(CONTENT).hexdigest()}"])
def test_a_file_is_downloaded_once(server: Any, tmp_path: Path, known_hash: str) -> None:
    for _ in range(2):
        path = fetch(server.url, tmp_path / "new" / "folder", known_hash)
        assert path == tmp_path / "new" / "folder" / "file.bin"
        assert path.read_bytes() == CONTENT
    assert server.ranges == [None]
    assert names(path.parent) == ["file.bin"]


def test_an_existing_file_that_differs_is_replaced(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.bin").write_bytes(b"something else")
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT


def test_a_broken_connection_asks_only_for_the_rest(server: Any, tmp_path: Path) -> None:
    server.breaks = 1
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_later_call_asks_only_for_the_rest(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.breaks = 1
    with monkeypatch.context() as patch:
        patch.setattr(download, "ATTEMPTS", 1)
        with pytest.raises(OSError, match=f"Downloading {server.url} failed: .*Connection broken"):
            fetch(server.url, tmp_path, SHA256)
    assert names(tmp_path) == ["file.bin.part"]
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]
    assert names(tmp_path) == ["file.bin"]


def test_pieces_that_the_server_cuts_short_are_put_together(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:HALF])
    server.longest = HALF // 2 + 1
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-", f"bytes={HALF + server.longest}-"]


def test_a_server_that_ignores_range_starts_again(server: Any, tmp_path: Path) -> None:
    server.breaks, server.knows_range = 1, False
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


def test_a_server_that_continues_elsewhere_is_not_believed(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:HALF])
    server.shift = 256
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={HALF}-", None]


def test_a_part_that_is_already_whole_is_kept(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(CONTENT)}-"]
    assert names(tmp_path) == ["file.bin"]


def test_a_file_that_shrinks_meanwhile_is_not_mixed(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def replace_file(pause: float) -> None:
        pauses.append(pause)
        server.content = b"new"

    monkeypatch.setattr(download, "PAUSE", 3.0)
    monkeypatch.setattr(download.time, "sleep", replace_file)
    server.breaks = 1
    assert fetch(server.url, tmp_path, f"sha256:{hashlib.sha256(b'new').hexdigest()}").read_bytes() == b"new"
    assert server.ranges == [None, f"bytes={HALF}-", None]
    assert pauses == [3.0, 6.0]


@pytest.mark.parametrize("stale", [b"x" * 100, b"x" * len(CONTENT), CONTENT + b"x"], ids=["short", "equal", "long"])
@pytest.mark.parametrize("gives_size", [True, False])
def test_a_stale_part_does_not_poison_the_file(server: Any, tmp_path: Path, stale: bytes, gives_size: bool) -> None:
    server.gives_size = gives_size
    (tmp_path / "file.bin.part").write_bytes(stale)
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(stale)}-", None]


def test_a_wrong_checksum_leaves_nothing_behind(server: Any, tmp_path: Path) -> None:
    server.content = b"an error page, say"
    with pytest.raises(ValueError, match=r"hash of downloaded file \(file\.bin\) does not match the known hash"):
        fetch(server.url, tmp_path, SHA256)
    assert names(tmp_path) == []
    server.content = CONTENT
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT


def test_not_found_is_reported_at_once(server: Any, tmp_path: Path) -> None:
    server.status = 404
    message = f"Downloading {server.url} failed: 404 Not Found. You can also download it by hand"
    with pytest.raises(OSError, match=re.escape(f"{message} and put it at {tmp_path / 'file.bin'}.")):
        fetch(server.url, tmp_path, SHA256)
    assert server.ranges == [None]
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again(server: Any, tmp_path: Path) -> None:
    server.failures = download.ATTEMPTS - 1
    assert fetch(server.url, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges == [None] * download.ATTEMPTS
    server.status = 500
    with pytest.raises(OSError, match="500 Server Error"):
        fetch(server.url, tmp_path / "other", SHA256)
    assert len(server.ranges) == 2 * download.ATTEMPTS


def test_an_unreachable_host_is_named(server: Any, tmp_path: Path) -> None:
    server.server_close()  # nothing listens at this port now
    with pytest.raises(OSError, match=f"Downloading {server.url} failed: .*refused.* by hand"):
        fetch(server.url, tmp_path, SHA256)


def test_a_silent_server_times_out(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", (1.0, 0.05))
    wake = threading.Event()
    monkeypatch.setattr(server.RequestHandlerClass, "do_GET", lambda _: wake.wait(10))
    with pytest.raises(OSError, match=r"Read timed out.* put it at .*file\.bin"):
        fetch(server.url, tmp_path, SHA256)
    wake.set()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_reported_at_once(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file.bin.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device.* by hand"):
        fetch(server.url, tmp_path, SHA256)
    assert server.ranges == [None]


def test_quiet_is_quiet(
    server: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger, said = pooch.get_logger(), list[logging.LogRecord]()
    monkeypatch.setattr(logger, "handle", said.append)
    monkeypatch.setattr(logger, "level", logging.INFO)
    with console.quiet():
        fetch(server.url, tmp_path, SHA256)
    assert capfd.readouterr() == ("", "")
    assert said == []
    assert logger.level == logging.INFO
    fetch(server.url, tmp_path / "loud", SHA256)
    assert capfd.readouterr() == ("", f"Downloading {server.url} to {tmp_path / 'loud/file.bin'}.\n")


def write_tar(path: Path, *members: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in members:
            info = tarfile.TarInfo(name)
            info.size = 3
            archive.addfile(info, io.BytesIO(b"abc"))
    return path


def test_an_archive_is_unpacked(tmp_path: Path) -> None:
    folder = unpack(write_tar(tmp_path / "archive", "a.txt", "b/c.txt"), tmp_path / "deep" / "data")
    assert folder == tmp_path / "deep" / "data"
    assert names(tmp_path) == ["archive", "deep", "deep/data", "deep/data/a.txt", "deep/data/b", "deep/data/b/c.txt"]
    (tmp_path / "plain").mkdir()
    assert folder.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_member_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "archive", "good", "../../escape")
    with pytest.raises(tarfile.OutsideDestinationError, match="outside the destination"):
        unpack(archive, tmp_path / "data")
    assert names(tmp_path) == ["archive"]


@pytest.mark.parametrize("damage", ["cut", KeyboardInterrupt])
def test_a_failed_unpack_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Any) -> None:
    archive = write_tar(tmp_path / "archive", "good", "b")
    if damage == "cut":
        archive.write_bytes(archive.read_bytes()[:-20])
    if damage is KeyboardInterrupt:
        extract = tarfile.TarFile.extractall

        def interrupt(*arguments: Any, **options: Any) -> None:
            extract(*arguments, **options)
            assert not (tmp_path / "data").exists()
            raise KeyboardInterrupt

        monkeypatch.setattr(tarfile.TarFile, "extractall", interrupt)
    with pytest.raises((tarfile.TarError, EOFError, KeyboardInterrupt)):
        unpack(archive, tmp_path / "data")
    assert names(tmp_path) == ["archive"]
