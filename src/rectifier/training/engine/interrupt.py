"""Stop between two steps when the system or the user asks, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def listening(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGTERM and Ctrl-C inside the block. Only the main thread can listen; elsewhere this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Interrupt:
    """Store SIGTERM and Ctrl-C in ``signal`` inside the block; a second Ctrl-C interrupts at once.

    Schedulers send SIGTERM some seconds before they kill.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._listening = listening(self._note)

    def __enter__(self) -> Interrupt:
        self._listening.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.__exit__(None, None, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


class Stopped(Exception):  # noqa: N818  it is no error
    """A signal stopped the training. Its state is saved."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(number, where)
        self.number, self.where = number, where

    @property
    def name(self) -> str:
        """The name of the signal."""
        return signal.Signals(self.number).name

    def __str__(self) -> str:
        return f"Stopped by {self.name} at {self.where}; everything is saved."
