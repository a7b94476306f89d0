"""Options: what the engine must know to train a network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The settings of one training. A field that ``Config`` has too means the same there and here.

    ``choose_from`` is the share of training after which an epoch can be chosen. ``rate_decay`` is explained in
    ``groups.py``, ``freeze_norm`` in ``modes.py``, ``ema`` in ``average.py``.
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
    rate_decay: float = 1.0
    freeze_norm: bool = False
    ema: float = 0.0
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
