"""Fixtures of the tests of experiments."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    Count,
    FakeTraining,
    made,
    request,
    write_table,
)
from rectifier._base import console
from rectifier.reproduce import reproduce
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.run.folder import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs and results of an experiment that was run once."""
    folder = tmp_path_factory.mktemp("finished")
    with console.quiet():
        reproduce("one", made(), request(folder))
    return folder


@pytest.fixture(scope="module")
def template(finished: Path) -> Path:
    return next((finished / "runs").iterdir())


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    counted, begin, go_on = Count(), suite.train, suite.resume

    def counted_train(config: Config, out: Path, **options: Any) -> Run:
        counted.started.append(config)
        return begin(config, out, **options)

    def counted_resume(run: Path, **options: Any) -> Run:
        counted.resumed.append(run)
        return go_on(run, **options)

    monkeypatch.setattr(suite, "train", counted_train)
    monkeypatch.setattr(suite, "resume", counted_resume)
    return counted


@pytest.fixture
def fake(template: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    fake = FakeTraining(template)
    monkeypatch.setattr(suite, "train", fake.train)
    monkeypatch.setattr(
        suite, "train_together", lambda wanted, **_: [suite.train(each.config, each.folder) for each in wanted]
    )
    return fake


@pytest.fixture
def quiet() -> Iterator[None]:
    with console.quiet():
        yield


@pytest.fixture
def done(finished: Path, tmp_path: Path) -> Path:
    """A copy of an experiment that was run once."""
    return Path(shutil.copytree(finished, tmp_path / "done"))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RECTIFIER_CACHE", str(tmp_path / "cache"))
    return write_table(tmp_path / "images", "rb" * 8 + "br" * 8)
