"""Stop between two steps when the system or the user asks, so that nothing is lost."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """Store SIGTERM and Ctrl-C in ``signal`` inside the block; a second Ctrl-C interrupts at once.

    Schedulers send SIGTERM some seconds before they kill. Only the main thread can listen; elsewhere this does nothing.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

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
