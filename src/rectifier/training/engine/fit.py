"""Drive trainings to their end: one alone, or several in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from lightning.fabric import Fabric

from rectifier._base import console
from rectifier.training.engine.course import Course
from rectifier.training.engine.display import Display
from rectifier.training.engine.interrupt import Interrupt, Stopped

_ASK_EVERY = 10  # steps between agreements of the processes to save or stop: each time they wait for each other


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
