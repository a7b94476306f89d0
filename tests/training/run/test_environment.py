"""What a run says of its versions, commit and machine."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

import rectifier
from rectifier.training.run.environment import PACKAGES, commit, environment, session


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in a fresh repository, of which nothing is committed yet; this package is taken to lie there."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "src" / "rectifier"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (tmp_path / "README.md").write_text("")
    git(tmp_path, "init", "--quiet")
    monkeypatch.setattr(rectifier, "__file__", str(folder / "__init__.py"))
    return folder


def committed(folder: Path, *paths: str) -> str:
    git(folder, "add", *paths)
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


def test_the_commit_of_a_checkout(package: Path) -> None:
    assert commit() is None  # nothing is committed yet
    made = committed(package, ".")
    assert commit() == made


@pytest.mark.parametrize("change", ["edited", "staged", "removed"])
def test_changed_files_of_the_package_add_a_plus(package: Path, change: str) -> None:
    (package / "check.py").write_text("")
    clean = committed(package, ".")
    if change == "removed":
        (package / "check.py").unlink()
    else:
        (package / "check.py").write_text("changed = True\n")
    if change == "staged":
        git(package, "add", ".")
    assert commit() == clean + "+"


def test_what_is_not_the_package_adds_no_plus(package: Path) -> None:
    clean = committed(package.parents[1], ".")
    (package.parents[1] / "README.md").write_text("changed")
    (package / "scratch.py").write_text("")
    assert commit() == clean


def test_a_package_installed_below_another_repository_has_no_commit(package: Path) -> None:
    committed(package.parents[1], "README.md")
    assert commit() is None


def test_no_repository_and_no_git(tmp_path: Path, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed(package, ".")
    with monkeypatch.context() as m:
        m.setenv("PATH", str(tmp_path / "nothing"))
        assert commit() is None
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr(rectifier, "__file__", str(elsewhere / "__init__.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() is None


def test_the_environment_is_this_one() -> None:
    found = environment()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["rectifier"] == rectifier.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["threads"] == torch.get_num_threads()
    assert len(found["gpus"]) == torch.cuda.device_count()
    assert found["packages"]["torch"] == version("torch")
    assert set(found["packages"]) <= set(PACKAGES)
    assert found["processor"]


def test_packages_that_are_not_there_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rectifier.training.run.environment.PACKAGES", ("numpy", "no-such-package"))
    assert environment()["packages"] == {"numpy": version("numpy")}


def test_a_session_has_its_time_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["rectifier", "train", "--data", "digits"])
    before = datetime.now(UTC).replace(microsecond=0)
    found = session()
    assert before <= datetime.fromisoformat(found["started"]) <= datetime.now(UTC)
    assert found["command"] == ["rectifier", "train", "--data", "digits"]
    assert json.loads(json.dumps(found)) == found
