"""The training loop."""

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

_ASK_EVERY = 10  # steps, for processes to agree whether to save or stop: each time they wait for each other


def fit(fabric: Fabric, courses: Sequence[Course], checkpoint_seconds: float) -> dict[int, str]:
    """Train each course from where it stands to its end, a step of each in turn.

    One whose loss or weights are not finite ends there, with its last good checkpoint, and the others go on. Returned
    is what was wrong with such courses, by their numbers.
    """
    saved_at = time.monotonic()
    failed: dict[Course, str] = {}
    with Interrupt() as interrupt, Display(courses) as display:
        for course in courses:
            course.begin()
        while under_way := [course for course in courses if not (course.is_over or course in failed)]:
            for course in under_way:
                if not course.is_epoch_over:  # one may have been stopped after the last batch
                    course.advance()
            ended = [course for course in under_way if course.is_epoch_over]
            due = time.monotonic() - saved_at >= checkpoint_seconds
            asked = fabric.world_size == 1 or bool(ended) or under_way[0].state.step % _ASK_EVERY == 0
            stop, save = _agreed(fabric, interrupt.signal, due) if asked else (0, False)
            all_are_due = stop or save or display.is_due() or fabric.device.type == "cpu"
            wrong = _complaints(under_way if all_are_due else ended)
            for complaint in wrong.values():
                if fabric.world_size > 1:  # other processes must not wait for this one
                    raise FloatingPointError(complaint)
                if len(courses) > 1:  # of one alone it is the error that training ends with
                    console.say(complaint)
            failed |= wrong
            sound = [course for course in under_way if course not in failed]
            if stop or save:
                for course in sound:
                    course.save()
                saved_at = time.monotonic()
            if stop:
                raise Stopped(stop, under_way[0].where)
            if sound:
                display.show(sound)
            if ended := [course for course in ended if course not in failed]:
                _end_epochs(ended)
                display.end_epoch(ended)
        stop, _ = _agreed(fabric, interrupt.signal, due=False)
        if stop:  # it came with the last validation
            raise Stopped(stop, courses[0].where)
    if fabric.device.type == "cuda":
        torch.cuda.synchronize(fabric.device)  # what comes next is done on another stream
    return {number: failed[course] for number, course in enumerate(courses) if course in failed}


def _agreed(fabric: Fabric, number: int | None, due: bool) -> tuple[int, bool]:
    """Return whether to stop (the signal's number, or 0) and whether to save: the same in every process."""
    if fabric.world_size == 1:
        return number or 0, due
    wishes = torch.tensor([number or 0, int(due and fabric.is_global_zero)], device=fabric.device)
    dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
    stop, save = wishes.tolist()
    return stop, bool(save)


def _end_epochs(courses: Sequence[Course]) -> None:
    """Note what validation thinks of each; all at once, so that no score is waited for before all have begun."""
    scores = [course.validate() for course in courses]
    for course, score in zip(courses, scores, strict=True):
        course.end_epoch(score)
        if course.is_over:
            course.save()


def _complaints(courses: Sequence[Course]) -> dict[Course, str]:
    """Return what is wrong with courses whose loss was not finite, or whose weights are not: they may not be saved.

    Weights are looked at when an epoch is over.
    """
    found = {course: course.complaint(weights=course.is_epoch_over) for course in courses}
    return {course: f"{course.name}: {text}{_REMEDY}" for course, text in found.items() if text is not None}


_REMEDY = (
    " Training ends; the last good checkpoint is kept. A smaller rate, clipped gradients or a warm-up often help:"
    " rectifier train --config RUN/config.json --lr ... --set clip=1 --out ANOTHER."
)
