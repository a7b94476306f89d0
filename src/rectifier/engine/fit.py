"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from lightning.fabric import Fabric

from rectifier.engine.course import Course
from rectifier.engine.display import Display
from rectifier.engine.interrupt import Interrupt, Stopped

_ASK_EVERY = 10  # steps, for processes to agree whether to save or stop: each time they wait for each other


def fit(fabric: Fabric, courses: Sequence[Course], checkpoint_seconds: float) -> None:
    """Train each course from where it stands to its end, a step of each in turn."""
    saved_at = time.monotonic()
    with Interrupt() as interrupt, Display(courses) as display:
        for course in courses:
            course.begin()
        while under_way := [course for course in courses if not course.is_over]:
            for course in under_way:
                if not course.is_epoch_over:  # one may have been stopped after the last batch
                    course.advance()
            lead, ended = under_way[0], [course for course in under_way if course.is_epoch_over]
            due = time.monotonic() - saved_at >= checkpoint_seconds
            asked = fabric.world_size == 1 or bool(ended) or lead.state.step % _ASK_EVERY == 0
            stop, save = _agreed(fabric, interrupt.signal, due) if asked else (0, False)
            if stop or save or display.is_due() or fabric.device.type == "cpu":
                _check_finite(under_way)
            if stop or save:
                _save(under_way)
                saved_at = time.monotonic()
            if stop:
                raise Stopped(stop, lead.where)
            display.show(under_way)
            if ended:
                _end_epochs(ended)
                display.end_epoch(ended)
        stop, _ = _agreed(fabric, interrupt.signal, due=False)
        if stop:  # it came with the last validation
            raise Stopped(stop, courses[0].where)
    if fabric.device.type == "cuda":
        torch.cuda.synchronize(fabric.device)  # what comes next is done on another stream


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
    _check_finite(courses, weights=True)
    scores = [course.validate() for course in courses]
    for course, score in zip(courses, scores, strict=True):
        course.end_epoch(score)
        if course.is_over:
            course.save()


def _check_finite(courses: Sequence[Course], weights: bool = False) -> None:
    """End training when a loss was not finite, or when the weights are not; what is sound is saved."""
    complaints = [course.complaint(weights) for course in courses]
    if any(complaints):
        _save([course for course, complaint in zip(courses, complaints, strict=True) if complaint is None])
        raise FloatingPointError(next(filter(None, complaints)) + _REMEDY)


_REMEDY = (
    " Training ends; the last good checkpoint is kept. A smaller rate, clipped gradients or a warm-up often help:"
    " rectifier train --config RUN/config.json --lr ... --set clip=1 --out ANOTHER."
)


def _save(courses: Sequence[Course]) -> None:
    for course in courses:
        course.save()
