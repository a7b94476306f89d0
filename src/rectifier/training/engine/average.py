"""The moving average of a network's weights, which is often better than the weights of any one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The exponential moving average of the weights that train; ``keep`` 0 averages nothing.

    After step t (from 1) the average becomes d * average + (1 - d) * weights, with d = min(keep, (1 + t) / (10 + t)):
    early weights are soon forgotten. Buffers, such as batch statistics, are not averaged: those of the network count.

    The network holds its own weights while it trains, and the average inside ``with average.in_place()``. All changes
    are in the same memory, without waiting for the device, so that captured graphs stay valid.

    >>> network = nn.Linear(1, 1, bias=False)
    >>> weight = network.weight.detach().zero_()
    >>> average = Average(network, keep=0.99)
    >>> weight.fill_(11).item()
    11.0
    >>> average.update(step=1)   # d = 2 / 11
    >>> with average.in_place():
    ...     weight.item()
    9.0
    """

    def __init__(self, network: nn.Module, keep: float) -> None:
        self._keep = keep
        self._trained = {name: w.detach() for name, w in network.named_parameters() if w.requires_grad and keep}
        self.weights: dict[str, Tensor] = {name: weight.clone() for name, weight in self._trained.items()}

    def update(self, step: int) -> None:
        """Take in the weights after a step of the optimizer; ``step`` counts from 1."""
        if self.weights:
            kept = min(self._keep, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.weights.values()), list(self._trained.values()), 1 - kept)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the network hold the average; afterwards it has its own weights back, to the bit."""
        if not self.weights:
            yield
            return
        trained = list(self._trained.values())
        own = [weight.clone() for weight in trained]
        torch._foreach_copy_(trained, list(self.weights.values()))
        try:
            yield
        finally:
            torch._foreach_copy_(trained, own)

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Restore ``weights`` that were saved."""
        for name, weight in self.weights.items():
            weight.copy_(saved[name])
