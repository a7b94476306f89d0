"""Signals: noted while training, as before afterwards."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rectifier.training.engine.interrupt import Interrupt, Stopped

BOTH = (signal.SIGTERM, signal.SIGINT)


@pytest.fixture
def outer() -> Iterator[list[int]]:
    """The signals that reach handlers which were there before."""
    reached: list[int] = []
    before = {number: signal.signal(number, lambda number, _: reached.append(number)) for number in BOTH}
    yield reached
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_is_noted_and_nothing_stops(outer: list[int], number: int) -> None:
    with Interrupt() as interrupt:
        assert interrupt.signal is None
        os.kill(os.getpid(), number)  # as a scheduler or a terminal sends it
        assert interrupt.signal == number
    assert interrupt.signal == number
    assert not outer


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_old_handlers_are_restored(outer: list[int], error: type[BaseException] | None) -> None:
    before = [signal.getsignal(number) for number in BOTH]
    if error is None:
        with Interrupt():
            assert signal.getsignal(signal.SIGTERM) not in before
    else:
        with pytest.raises(error, match="inside"), Interrupt():
            raise error("inside")
    assert [signal.getsignal(number) for number in BOTH] == before
    for number in BOTH:
        signal.raise_signal(number)
    assert outer == list(BOTH)


@pytest.mark.parametrize("first", BOTH)
def test_a_ctrl_c_after_a_signal_does_not_wait(outer: list[int], first: int) -> None:
    with Interrupt() as interrupt:
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            signal.raise_signal(signal.SIGINT)
        assert interrupt.signal == first


def test_schedulers_may_ask_twice(outer: list[int]) -> None:
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.signal == signal.SIGTERM


def test_one_within_another_hands_back_to_it(outer: list[int]) -> None:
    with Interrupt() as first:
        with Interrupt() as second:
            signal.raise_signal(signal.SIGTERM)
        assert (first.signal, second.signal) == (None, signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert first.signal == signal.SIGTERM


def test_elsewhere_than_in_the_main_thread_nothing_changes(outer: list[int]) -> None:
    found: dict[str, Any] = {}

    def work() -> None:
        before = [signal.getsignal(number) for number in BOTH]
        with Interrupt() as interrupt:
            found["changed"] = [signal.getsignal(number) for number in BOTH] != before
            found["signal"] = interrupt.signal

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == {"changed": False, "signal": None}


@pytest.mark.parametrize(("number", "name"), [(15, "SIGTERM"), (2, "SIGINT")])
def test_having_stopped_says_why_and_where_also_from_another_process(number: int, name: str) -> None:
    stopped = Stopped(number, "epoch 2, batch 3 of 9")
    for each in (stopped, pickle.loads(pickle.dumps(stopped))):
        assert str(each) == f"Stopped by {name} at epoch 2, batch 3 of 9; everything is saved."
        assert (each.number, each.where) == (number, "epoch 2, batch 3 of 9")
