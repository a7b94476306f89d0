"""Files that are there whole or not at all: a full disk, a kill, an error in between."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rectifier._base.files import read_json, write_bytes, write_json

OLD, NEW = b"old content", b"new content, longer than before" * 1000


def in_another_process(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run code that may limit or kill its own process; ``path`` and ``new`` are known to it."""
    begin = "import os, signal, sys\nfrom pathlib import Path\nfrom rectifier._base.files import write_bytes\n"
    begin += f"path, new = Path(sys.argv[1]), {NEW[:31]!r} * 1000\n"
    command = [sys.executable, "-c", begin + code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_new_file_and_a_replaced_one(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    for content in (OLD, NEW, b""):
        write_bytes(path, content, durable=True)
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["file.bin"]


@pytest.mark.parametrize("before", [OLD, None])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, before: bytes | None) -> None:
    path = tmp_path / "file.bin"
    if before is not None:
        path.write_bytes(before)
    limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    report = "try:\n    write_bytes(path, new, durable=True)\nexcept OSError as error:\n    print(error.errno, error)\n"
    done = in_another_process(limit + report, path)
    assert done.returncode == 0, done.stderr
    assert f"while saving {path}. What was saved before is intact; make room" in done.stdout
    assert os.listdir(tmp_path) == ([] if before is None else ["file.bin"])
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("death", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(9)"])
@pytest.mark.parametrize("moment", ["os.fsync", "Path.replace"])
def test_a_kill_before_the_move_leaves_the_old_file(tmp_path: Path, death: str, moment: str) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(OLD)
    done = in_another_process(
        f"{moment} = lambda *_: {death}\nwrite_bytes(path, new, durable=True)\nprint('alive')", path
    )
    assert done.returncode in (9, -signal.SIGKILL), done.stderr
    assert "alive" not in done.stdout
    assert path.read_bytes() == OLD
    write_bytes(path, NEW, durable=True)  # the draft of the dead process is not in the way
    assert path.read_bytes() == NEW


def test_the_file_is_on_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # After a power cut a file that was moved and not synchronised is empty.
    happened: list[str] = []
    sync, move = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (happened.append(f"sync {os.fstat(file).st_size}"), sync(file)))
    monkeypatch.setattr(Path, "replace", lambda a, b: (happened.append("move"), move(a, b)))
    write_bytes(tmp_path / "file.bin", NEW, durable=True)
    assert happened == [f"sync {len(NEW)}", "move"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_any_error_in_between_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(OLD)

    def interrupted(_: int) -> None:
        raise error("in between")

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(error, match="in between"):
        write_bytes(path, NEW, durable=True)
    assert path.read_bytes() == OLD
    assert os.listdir(tmp_path) == ["file.bin"]


def test_an_error_names_the_file_and_not_its_draft(tmp_path: Path) -> None:
    path = tmp_path / "absent" / "file.bin"
    with pytest.raises(FileNotFoundError, match=rf"No such file or directory while saving {re.escape(str(path))}\."):
        write_bytes(path, NEW, durable=True)


@pytest.mark.parametrize("content", [{"größe": ["ä/ö", 1, 0.1, None, True]}, [], "text", {"1": {"2": 1e-300}}])
def test_json_comes_back_as_it_was(tmp_path: Path, content: Any) -> None:
    write_json(tmp_path / "file.json", content)
    assert read_json(tmp_path / "file.json") == content


def test_json_of_a_name_that_is_no_text(tmp_path: Path) -> None:
    # The name of a file whose bytes are no UTF-8, as Python hands it over.
    name = os.fsdecode(b"caf\xe9")
    write_json(tmp_path / "file.json", {"classes": [name]})
    assert read_json(tmp_path / "file.json") == {"classes": [name]}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_without_numbers_that_other_readers_refuse(tmp_path: Path, number: float) -> None:
    path = tmp_path / "file.json"
    write_json(path, {"loss": 1.0})
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(path, {"loss": number})
    assert read_json(path) == {"loss": 1.0}
    assert os.listdir(tmp_path) == ["file.json"]
