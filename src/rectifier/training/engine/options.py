"""Options: what the engine must know to train a network."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The settings of one training. A field that ``Config`` has too means the same there and here.

    ``choose_from`` is the share of training after which an epoch can be chosen.
    """

    epochs: int = 30
    batch_size: int = 128
    lr: float = 0.1
    optimizer: str = "sgd"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    milestones: tuple[float, ...] = (0.5, 0.75)
    decay: float = 0.1
    warmup: float = 0.0
    clip: float | None = None
    accumulate: int = 1
    validate_every: int = 1
    patience: int | None = None
    select: str = "argmax"
    choose_from: float = 0.0
    precision: str = "auto"
    step: str = "auto"
    accelerator: str = "auto"
    devices: int = 1
    nodes: int = 1

    @property
    def processes(self) -> int:
        return self.devices * self.nodes

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate at a step of the optimizer, which makes ``steps`` steps in an epoch.

        It rises linearly over ``warmup`` epochs. Then ``cosine`` falls to 0 at the end, ``step`` is multiplied by
        ``decay`` at each of the ``milestones`` (shares of the training), and ``constant`` stays.

        >>> [round(Options(lr=1, epochs=4).rate_at(step, 1), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        """
        total, warmup = self.epochs * steps, round(self.warmup * steps)
        if step < warmup:
            return self.lr * ((step + 1) / warmup)
        if self.schedule == "cosine":
            done = (step - warmup) / max(total - warmup, 1)
            return self.lr * (0.5 * (1 + math.cos(math.pi * min(done, 1.0))))
        passed = sum(step >= share * total - 1e-6 for share in self.milestones) if self.schedule == "step" else 0
        return self.lr * self.decay**passed
