"""The progress of an extraction: a bar in a terminal; elsewhere a line now and then, and one at the end."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Self

from rectifier._base import check, console

EVERY = 15.0  # seconds between lines without a terminal


class Meter:
    """Counts images, those of this process and those of others."""

    def __init__(self, total: int, described: str) -> None:
        self._total, self._described, self._left = total, described.rstrip("."), total
        self._computed = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._began = self._said = time.monotonic()
        self._display = self._stack.enter_context(console.progress("images/s"))
        self._task = self._display.add_task("features", total=self._total)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._stack.close()
        if kind is None and self._computed:
            images = check.amount(self._computed, "image")
            console.say(f"{images}: features by {self._described}, {self._rate():,.0f} images/s.")

    def advance(self, images: int) -> None:
        """Count images that this process has computed."""
        self._computed += images
        self._show(self._left - images)
        now = time.monotonic()
        if self._display.disable and now - self._said >= EVERY:
            self._said = now
            done = f"{self._total - self._left:,} of {check.amount(self._total, 'image')}"
            seconds = self._left / self._rate()
            console.say(f"Features: {done}, {self._rate():,.0f} images/s, about {seconds:,.0f} s left.")

    def left(self, images: int) -> None:
        """Note how many images are missing, now that other processes have computed some."""
        self._show(images)

    def _show(self, left: int) -> None:
        self._left = max(0, left)
        self._display.update(self._task, completed=self._total - self._left)

    def _rate(self) -> float:
        return self._computed / max(time.monotonic() - self._began, 1e-9)
