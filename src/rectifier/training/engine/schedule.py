"""The schedule of the learning rate: a warm-up, then a cosine, steps, or a constant."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rectifier.training.engine.options import Options


@dataclass(frozen=True)
class Schedule:
    """The factor of the learning rate at each of ``total`` steps of the optimizer.

    It rises linearly over the first ``warmup`` steps. Then ``cosine`` falls to 0 at the end, ``step`` is multiplied by
    ``decay`` at each of the ``milestones`` (shares of the training), and ``constant`` stays.

    >>> [round(Schedule("cosine", total=4)(step), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> [Schedule("step", total=4, milestones=(0.5,), decay=0.1, warmup=2)(step) for step in range(4)]
    [0.5, 1.0, 0.1, 0.1]
    """

    kind: str
    total: int
    warmup: int = 0
    milestones: tuple[float, ...] = ()
    decay: float = 0.1

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "cosine":
            done = (step - self.warmup) / max(self.total - self.warmup, 1)
            return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        if self.kind == "step":
            return self.decay ** sum(step >= share * self.total - 1e-6 for share in self.milestones)
        return 1.0


def make_schedule(options: Options, batches: int) -> Schedule:
    """Return the schedule of a training with so many batches per epoch."""
    steps = -(-batches // options.accumulate)
    warmup = round(options.warmup * steps)
    return Schedule(options.schedule, options.epochs * steps, warmup, options.milestones, options.decay)
