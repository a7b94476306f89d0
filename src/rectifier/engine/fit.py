"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from lightning.fabric import Fabric

from rectifier.config import Config
from rectifier.engine.course import Course
from rectifier.engine.display import Display
from rectifier.engine.interrupt import Interrupt, Stopped
from rectifier.engine.schedule import Schedule

_ASK_EVERY = 10  # steps, for processes to agree whether to save or stop: each time they wait for each other


def make_schedule(config: Config, batches: int) -> Schedule:
    """Return the schedule of a training with so many batches an epoch."""
    steps = -(-batches // config.accumulate)
    warmup = round(config.warmup * steps)
    return Schedule(config.schedule, config.epochs * steps, warmup, config.milestones, config.decay)


def fit(fabric: Fabric, courses: Sequence[Course], config: Config, lr: float) -> None:
    """Train from where the courses stand, which is the same batch of the same epoch, to the end."""
    lead = courses[0]
    if len({(course.state.epoch, course.state.batch) for course in courses}) > 1:
        raise RuntimeError("Trainings side by side must begin at the same batch.")
    schedule = make_schedule(config, lead.batches)
    saved_at = time.monotonic()

    with Interrupt() as interrupt, Display(config.epochs, lead.batches) as display:
        for course in courses:
            course.begin(schedule.total)
        while lead.state.epoch < config.epochs and not lead.state.is_over(config.patience):
            for course in courses:
                course.begin_epoch()
            while lead.state.batch < lead.batches:
                rate = lr * schedule(lead.state.step)
                for course in courses:
                    course.advance(rate)
                due = time.monotonic() - saved_at >= config.checkpoint_seconds
                asked = fabric.world_size == 1 or lead.state.step % _ASK_EVERY == 0
                stop, save = _agreed(fabric, interrupt.signal, due) if asked else (0, False)
                if stop or save or display.is_due() or fabric.device.type == "cpu":
                    _check_finite(courses)
                if stop or save:
                    _save(courses)
                    saved_at = time.monotonic()
                if stop:
                    raise Stopped(stop, f"epoch {lead.state.epoch + 1}, batch {lead.state.batch} of {lead.batches}")
                display.show(courses)
            _check_finite(courses, weights=True)
            _end_epoch(courses, config, lr * schedule(lead.state.step - 1))
            display.end_epoch(courses)
            stop, _ = _agreed(fabric, interrupt.signal, due=False)
            if stop:  # it came with the last steps, or while validation was at work
                _save(courses)
                raise Stopped(stop, f"the end of epoch {lead.state.epoch}")
        _save(courses)
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


def _end_epoch(courses: Sequence[Course], config: Config, rate: float) -> None:
    """Note the epoch, and validate when its turn has come; all at once, so no score is read before all have begun."""
    number = courses[0].state.epoch + 1
    is_validated = number % config.validate_every == 0 or number == config.epochs
    scores = [course.validate() if is_validated else None for course in courses]
    for course, score in zip(courses, scores, strict=True):
        course.end_epoch(rate, score)


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
