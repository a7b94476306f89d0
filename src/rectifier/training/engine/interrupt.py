"""Stop between two steps when the system or the user asks, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupt:
    """Store SIGTERM and Ctrl-C in ``signal`` inside the block; a second Ctrl-C interrupts at once.

    Schedulers send SIGTERM some seconds before they kill. ``pass_on`` is called at each signal instead of an interrupt.
    Only the main thread can listen; elsewhere the block does nothing.
    """

    def __init__(self, pass_on: Callable[[], None] | None = None) -> None:
        self.signal: int | None = None
        self._pass_on = pass_on
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, earlier in self._before.items():
            signal.signal(number, earlier)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._pass_on is not None:
            self._pass_on()
        elif number == signal.SIGINT and self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


class Stopped(Exception):  # noqa: N818  it is no error
    """A signal stopped the training. Its state is saved."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(number, where)
        self.number, self.where = number, where

    def __str__(self) -> str:
        return f"Stopped by {signal.Signals(self.number).name} at {self.where}; everything is saved."
