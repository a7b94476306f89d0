"""The schedule of the learning rate."""

from __future__ import annotations

import math

from rectifier.training.engine.options import Options


def rate_at(options: Options, step: int, steps: int) -> float:
    """Return the learning rate at a step of the optimizer, which makes ``steps`` steps in an epoch.

    It rises linearly over ``warmup`` epochs. Then ``cosine`` falls to 0 at the end, ``step`` is multiplied by
    ``decay`` at each of the ``milestones`` (shares of the training), and ``constant`` stays.

    >>> [round(rate_at(Options(lr=1, epochs=4), step, 1), 3) for step in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    total, warmup = options.epochs * steps, round(options.warmup * steps)
    if step < warmup:
        return options.lr * ((step + 1) / warmup)
    if options.schedule == "cosine":
        done = (step - warmup) / max(total - warmup, 1)
        return options.lr * (0.5 * (1 + math.cos(math.pi * min(done, 1.0))))
    passed = sum(step >= share * total - 1e-6 for share in options.milestones) if options.schedule == "step" else 0
    return options.lr * options.decay**passed
