"""The training loop of one run, and the step that it repeats."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from rectifier.training.engine.schedule import rate_at

if TYPE_CHECKING:
    from rectifier.data.loader import Batch
    from rectifier.training.engine.course import Course
    from rectifier.training.engine.step_modes import EagerStep


def training(course: Course) -> Iterator[None]:
    """Train one network to the end. At each pause another training can take its turn."""
    options, state = course.options, course.state
    while not course.is_over:
        course.start_epoch()
        batches = iter(course.loader)
        while window := list(islice(batches, options.accumulate)):
            course.step(window, rate_at(options, state.step, course.steps))  # ``take_step``, or its CUDA graph
            state.advance(len(window))
            course.average.update(state.step)
            yield  # the caller checks the loss, saves, or stops
        score = course.validate()
        yield  # every training starts its validation before any waits for a score
        course.end_epoch(score)
        yield


def take_step(step: EagerStep, window: list[Batch]) -> None:
    """Step along the mean gradient of some batches. Only the device works here, so a CUDA graph can capture it."""
    step.optimizer.zero_grad()
    for batch in window:
        with step.fabric.no_backward_sync(step.wrapped, enabled=batch is not window[-1]):
            images, more = batch.images, dict[str, Any]()
            if step.mixing is not None:
                images, more["partner"] = step.mixing(images, batch.targets)
            output = step.forward(images)
            loss = step.loss(step.objective, step.tally, output, batch.targets, more)
            step.fabric.backward(loss if len(window) == 1 else loss / len(window))
    if step.clip is not None:
        step.fabric.clip_gradients(step.wrapped, step.optimizer, max_norm=step.clip, error_if_nonfinite=False)
    step.optimizer.step()
