"""The state of a training: its counters, its best epoch, and that a checkpoint holds everything."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import nn

from rectifier.training.engine.state import State


def network(value: float) -> nn.Linear:
    made = nn.Linear(2, 1)
    with torch.no_grad():
        made.weight.fill_(value)
    return made


def judged(scores: list[float], keep_last: bool = False) -> State:
    """Validate once an epoch, with weights that are the number of the epoch."""
    state = State()
    for epoch, score in enumerate(scores, start=1):
        state.end_epoch({"epoch": epoch}, [])
        state.judge(score, network(float(epoch)), keep_last)
    return state


def kept_epoch(state: State) -> int:
    assert state.best_weights is not None
    return int(state.best_weights["weight"][0, 0])


def through_a_file(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_batches_count_within_an_epoch_and_steps_through_all() -> None:
    state = State()
    for epoch in (1, 2):
        for window in (2, 2, 1):
            state.advance(window)
        assert (state.batch, state.step) == (5, 3 * epoch)
        state.end_epoch({"loss": epoch}, [{"epoch": epoch, "label": label} for label in ("colour", "striped")])
        assert (state.epoch, state.batch, state.step) == (epoch, 0, 3 * epoch)
    assert [row["loss"] for row in state.epochs] == [1, 2]
    assert [(row["epoch"], row["label"]) for row in state.labels] == [
        (epoch, label) for epoch in (1, 2) for label in ("colour", "striped")
    ]


@pytest.mark.parametrize(
    "scores", [[0.5], [0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.5, 0.5, 0.1], [0.0, 0.0], [0.4, 0.6, 0.5, 0.6, 0.7]]
)
def test_the_first_of_the_best_epochs_is_kept(scores: list[float]) -> None:
    state = judged(scores)
    best = scores.index(max(scores)) + 1
    assert (state.best, state.best_epoch, kept_epoch(state)) == (max(scores), best, best)
    assert state.waited == len(scores) - best


def test_the_last_epoch_is_kept_on_request() -> None:
    assert kept_epoch(judged([0.9, 0.5, 0.1], keep_last=True)) == 3


@pytest.mark.parametrize("keep_last", [False, True])
def test_validations_without_a_gain_are_counted(keep_last: bool) -> None:
    # Which weights are kept is one thing, whether validation still gains another.
    scores = [0.3, 0.6, 0.5, 0.6, 0.4]
    waited = [judged(scores[:count], keep_last).waited for count in range(1, len(scores) + 1)]
    assert waited == [0, 0, 1, 2, 3]


def test_the_best_weights_do_not_change_with_training() -> None:
    state, trained = State(), network(1.0)
    state.judge(0.5, trained)
    with torch.no_grad():
        trained.weight.fill_(7.0)
    assert kept_epoch(state) == 1


def test_buffers_are_kept_with_the_weights() -> None:
    state, normalised = State(), nn.BatchNorm1d(3)
    normalised(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))
    state.judge(0.5, normalised)
    assert state.best_weights is not None
    assert state.best_weights.keys() == normalised.state_dict().keys()
    assert torch.equal(state.best_weights["running_mean"], normalised.running_mean)


def test_a_checkpoint_holds_everything() -> None:
    state = judged([0.2, 0.6, 0.5])
    state.end_epoch({"epoch": 4, "validation": None}, [{"label": "colour", "alpha": 0.5}])
    state.advance(3)
    plain = State()
    written = state.as_dict()
    assert not [name for name in written if repr(written[name]) == repr(getattr(plain, name))], "a field at its default"
    saved = through_a_file({**written, "network": {}})
    again = State.from_checkpoint(saved)
    assert again.saved is saved
    for name in written.keys() - {"best_weights"}:
        assert getattr(again, name) == getattr(state, name)
    assert again.best_weights is not None
    assert state.best_weights is not None
    assert all(torch.equal(again.best_weights[name], weight) for name, weight in state.best_weights.items())


def test_what_a_checkpoint_was_loaded_from_is_not_saved_again() -> None:
    state = State.from_checkpoint({**State().as_dict(), "network": {"w": torch.zeros(1000)}})
    assert set(state.as_dict()) == {f.name for f in fields(State)} - {"saved"}


def test_judging_continues_after_a_checkpoint_as_without() -> None:
    scores = [0.2, 0.6, 0.5, 0.6, 0.7, 0.1]
    whole = judged(scores)
    for stopped in range(len(scores) + 1):
        state = State.from_checkpoint(through_a_file(judged(scores[:stopped]).as_dict()))
        for epoch in range(stopped + 1, len(scores) + 1):
            state.end_epoch({"epoch": epoch}, [])
            state.judge(scores[epoch - 1], network(float(epoch)))
        assert (state.best, state.best_epoch, state.waited) == (whole.best, whole.best_epoch, whole.waited)
        assert kept_epoch(state) == kept_epoch(whole)
        assert state.epochs == whole.epochs


def test_no_checkpoint_is_the_beginning() -> None:
    assert State.from_checkpoint(None) == State()
    one, two = State.from_checkpoint(None), State.from_checkpoint(None)
    one.end_epoch({"epoch": 1}, [])
    assert two.epochs == []
