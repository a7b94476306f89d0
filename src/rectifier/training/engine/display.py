"""Show the progress of training: a bar with the loss and its parts on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rectifier._base import console
from rectifier.training.engine.course import Course

if TYPE_CHECKING:
    from rich.progress import Progress

_REFRESH = 0.5  # seconds: reading the loss waits for the device
_LINE = 15.0  # seconds between lines where there is no terminal


class Display:
    """The progress of one training, or the means over several side by side."""

    def __init__(self, courses: Sequence[Course], bar: Progress) -> None:
        self._courses, self._bar = courses, bar
        self._task = bar.add_task("training", total=sum(each.options.epochs * each.batches for each in courses))
        self._shown = self._said = time.monotonic()
        self._validation = ""

    def is_due(self) -> bool:
        return not console.is_quiet() and time.monotonic() - self._shown >= _REFRESH

    def show(self, courses: Sequence[Course]) -> None:
        """Show the current epoch of the active trainings."""
        if not self.is_due():
            return
        self._shown = time.monotonic()
        lead, means = courses[0], [course.means() for course in courses]
        base, rectification = (fmean(each[part] for each in means) for part in ("cross_entropy", "rectification"))
        epoch = f"epoch {lead.state.epoch + 1}/{lead.options.epochs}"
        text = f"{epoch} loss {base:.3f} CRL {rectification:.3f}{self._validation}"
        done = sum(course.state.epoch * course.batches + course.state.batch for course in self._courses)
        self._bar.update(self._task, completed=done, description=text)

    def end_epoch(self, courses: Sequence[Course]) -> None:
        """Remember the last validation, and print it if no terminal shows a bar."""
        rows = [course.state.epochs[-1] for course in courses]
        bests = [course.state.best for course in courses if course.state.best is not None]
        scores = [row["validation"] for row in rows if row["validation"] is not None]
        if scores:
            best = f" best {100 * fmean(bests):.1f}" if bests else ""  # some methods choose from a later epoch on
            self._validation = f" val {100 * fmean(scores):.1f}{best}"
        if self._bar.disable and time.monotonic() - self._said >= _LINE:
            self._said = time.monotonic()
            loss = fmean(row["loss"] for row in rows)
            console.say(f"epoch {courses[0].state.epoch}/{courses[0].options.epochs} loss {loss:.3f}{self._validation}")
