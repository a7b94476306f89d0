"""Several processes at work on one experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.fake_training import (
    CE,
    CHOOSING,
    CRL,
    DIVIDED,
    FakeTraining,
    content,
    made,
    meanwhile,
    prints,
    request,
    stop_within,
)
from rectifier._base import files as atomic
from rectifier.reproduce import reproduce
from rectifier.training import BusyError, resume
from rectifier.training import many as suite
from rectifier.training.config import Config
from rectifier.training.run.folder import Run

pytestmark = pytest.mark.usefixtures("quiet")


def test_two_at_work_on_one_experiment_lose_nothing(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Config] = []

    def train(config: Config, out: Path, **options: Any) -> Run:
        begun.append(config)
        if len(begun) == 1:  # somebody else is at it, too
            reproduce("one", made(), request(tmp_path, only=["CRL"]))
        return fake.train(config, out, **options)

    monkeypatch.setattr(suite, "train", train)
    result = reproduce("one", made(), request(tmp_path, only=["CE"]))
    assert set(prints(tmp_path)) == {("CE", 0), ("CE", 1), ("CRL", 0), ("CRL", 1)}
    assert result.gain(CRL, "argmax")
    assert len(begun) == 4


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = made(CE, seeds=1, settings={"epochs": 3, "checkpoint_seconds": 1e9})
    stop_within(experiment, tmp_path, monkeypatch)
    (folder,) = (tmp_path / "runs").iterdir()
    with atomic.claimed(folder, wait=False) as ours:
        assert ours
        with pytest.raises(BusyError, match=folder.name):
            resume(folder)
    assert resume(folder).is_finished


def test_what_another_process_trains_is_waited_for(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: list[Path] = []

    def train(config: Config, out: Path, **options: Any) -> Run:
        if not busy:
            busy.append(out)
            fake.train(config, out, **options)  # by somebody else, who is done when the claim is free
            raise BusyError(out)
        return fake.train(config, out, **options)

    monkeypatch.setattr(suite, "train", train)
    assert len(reproduce("one", made(), request(tmp_path)).all_records) == 4
    assert len(fake.seen()) == 4


def test_a_run_that_another_process_retrains_keeps_its_new_record(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduce("one", made(CE), request(tmp_path))
    fake.scores = lambda _: (0.9, 0.9)
    meanwhile(fake, monkeypatch, lambda: reproduce("one", made(), request(tmp_path, only=["CE"], again=True)))
    result = reproduce("one", made(), request(tmp_path, only=["CRL"]))
    assert set(result.values(CE, "argmax").values()) == {0.9}
    assert [one["replaced"] for one in content(tmp_path)["superseded"]] == ["trained anew"] * 2


def test_what_others_find_and_choose_is_taken_up(
    tmp_path: Path, fake: FakeTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.scores = DIVIDED
    experiment = made(CE, CHOOSING, measure=lambda _: {"answer": 42})
    reproduce("one", made(CE, seeds=1), request(tmp_path))
    fake.seen()

    def elsewhere() -> None:
        reproduce("one", experiment, request(tmp_path, seeds=1))

    meanwhile(fake, monkeypatch, elsewhere)  # while the second seed of CE is trained here
    result = reproduce("one", experiment, request(tmp_path, only=["CE"]))
    assert result.found == {"answer": 42}
    assert result.chosen == {("CRL", ""): {"eta": 0.5}}
    assert list(result.values(result.experiment.cell("CRL"), "argmax")) == ["0"]
    assert content(tmp_path)["superseded"] == []


def test_a_claim_ends_and_leaves_nothing(tmp_path: Path) -> None:
    with atomic.claimed(tmp_path, wait=False) as first, atomic.claimed(tmp_path, wait=False) as second:
        assert (first, second) == (True, False)
    with atomic.claimed(tmp_path, wait=True) as third:
        assert third
    assert not list(tmp_path.iterdir())
