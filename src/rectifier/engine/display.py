"""What a person sees while a network trains: a bar with the loss and its parts on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from rectifier import console
from rectifier.engine.state import State
from rectifier.engine.tally import Tally

_REFRESH = 0.5  # seconds: reading the loss waits for the device
_LINE = 15.0  # seconds between lines where there is no terminal


class Display:
    """The progress of one training."""

    def __init__(self, epochs: int, batches: int) -> None:
        self._epochs, self._batches = epochs, batches
        self._stack = ExitStack()
        self._shown = self._said = time.monotonic()
        self._progress: Any = None
        self._validation = ""

    def __enter__(self) -> Display:
        if not console.is_quiet():
            self._progress = self._stack.enter_context(console.progress())
            self._task = self._progress.add_task("training", total=self._epochs * self._batches)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def is_due(self) -> bool:
        return self._progress is not None and time.monotonic() - self._shown >= _REFRESH

    def show(self, state: State, tally: Tally) -> None:
        """Show how the present epoch goes."""
        if not self.is_due():
            return
        self._shown = time.monotonic()
        means = tally.means()
        parts = f"CE {means['cross_entropy']:.3f} CRL {means['rectification']:.3f}"
        text = f"epoch {state.epoch + 1}/{self._epochs} {parts}{self._validation}"
        self._progress.update(self._task, completed=state.epoch * self._batches + state.batch, description=text)

    def end_epoch(self, state: State) -> None:
        """Remember the last validation; say it where there is no terminal to show a bar on."""
        row = state.epochs[-1]
        if row["validation"] is not None and state.best is not None:
            self._validation = f" val {100 * row['validation']:.1f} best {100 * state.best:.1f}"
        if self._progress is not None and self._progress.disable and time.monotonic() - self._said >= _LINE:
            self._said = time.monotonic()
            console.say(f"epoch {state.epoch}/{self._epochs} loss {row['loss']:.3f}{self._validation}")
