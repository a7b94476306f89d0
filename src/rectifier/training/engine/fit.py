"""Drive trainings to their end, one alone or several in turn, and show their progress."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from lightning.fabric import Fabric

from rectifier._base import console
from rectifier.training.engine.course import Course
from rectifier.training.engine.interrupt import Interrupt, Stopped

if TYPE_CHECKING:
    from rich.progress import Progress

_ASK_EVERY = 10  # steps between agreements of the processes to save or stop: each time they wait for each other
_REFRESH = 0.5  # seconds: reading the loss waits for the device
_LINE = 15.0  # seconds between lines where there is no terminal


def fit(fabric: Fabric, courses: Sequence[Course], checkpoint_seconds: float) -> dict[Course, str]:
    """Train each course from its state to its end, a step of each in turn.

    A course whose loss or weights are not finite ends there, with its last good checkpoint; the others continue.
    Return what was wrong with such courses.
    """
    saved_at = time.monotonic()
    failed: dict[Course, str] = {}
    with Interrupt() as interrupt, console.progress() as bar:
        display = Display(courses, bar)
        for course in courses:
            course.start()
        while active := [course for course in courses if not (course.is_over or course in failed)]:
            for course in active:
                if not course.is_epoch_over:  # a run may have stopped after the last batch
                    course.advance()
            ended = [course for course in active if course.is_epoch_over]
            due = time.monotonic() - saved_at >= checkpoint_seconds
            ask = fabric.world_size == 1 or bool(ended) or active[0].state.step % _ASK_EVERY == 0
            stop, save = _agreed(fabric, interrupt.signal, due) if ask else (0, False)
            check_all = stop or save or display.is_due() or fabric.device.type == "cpu"
            looked_at = active if check_all else ended
            wrong = {course: text for course in looked_at if (text := course.complaint())}
            for complaint in wrong.values():
                if fabric.world_size > 1:  # other processes must not wait for this one
                    raise FloatingPointError(complaint)
                if len(courses) > 1:  # a single course raises it as an error at the end
                    console.say(complaint)
            failed |= wrong
            sound = [course for course in active if course not in failed]
            if stop or save:
                for course in sound:
                    course.save()
                saved_at = time.monotonic()
            if stop:
                raise Stopped(stop, active[0].where)
            if sound:
                display.show(sound)
            if ended := [course for course in ended if course not in failed]:
                _end_epochs(ended)
                display.end_epoch(ended)
        stop, _ = _agreed(fabric, interrupt.signal, due=False)
        if stop:  # it arrived during the last validation
            raise Stopped(stop, courses[0].where)
    if fabric.device.type == "cuda":
        torch.cuda.synchronize(fabric.device)  # the next work uses another stream
    return failed


def _agreed(fabric: Fabric, number: int | None, due: bool) -> tuple[int, bool]:
    """Return whether to stop (the signal's number, or 0) and whether to save: the same in every process."""
    if fabric.world_size == 1:
        return number or 0, due
    wishes = torch.tensor([number or 0, int(due and fabric.is_global_zero)], device=fabric.device)
    dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
    stop, save = wishes.tolist()
    return stop, bool(save)


def _end_epochs(courses: Sequence[Course]) -> None:
    """Validate and record. All start to validate before any waits for its score."""
    for _ in ("validate", "record"):
        for course in courses:
            course.advance()
    for course in courses:
        if course.is_over:
            course.save()


class Display:
    """The progress of one training, or the means over several side by side: a bar on a terminal, lines elsewhere."""

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
