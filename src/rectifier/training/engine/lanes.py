"""Lanes: several trainings side by side on one device, each as if it were alone.

One small network leaves most of a large GPU idle. A lane has a stream of its own, so that the kernels of several
trainings run at the same time, and random numbers of its own, so that dropout draws what it draws alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


class Lane:
    """The stream and the random numbers of one of several trainings. Its work on a GPU is started, not waited for."""

    def __init__(self, device: torch.device, seed: int, alike: Mapping[str, int]) -> None:
        # How many trainings, with this one, share its compiled network, and how many share its loss.
        self.alike = alike
        self._host = torch.Generator().manual_seed(seed).get_state()
        self._random: torch.Generator | None = None
        if device.type == "cuda":
            self._random = torch.Generator(device).manual_seed(seed)
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))  # for the training's inputs

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Make this lane's stream and random numbers PyTorch's current ones."""
        before = torch.get_rng_state()
        torch.set_rng_state(self._host)
        try:
            with self._on_device():
                yield
        finally:
            self._host = torch.get_rng_state()
            torch.set_rng_state(before)

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        if self._random is None:
            yield
            return
        default = torch.cuda.default_generators[self._stream.device_index]
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(self._random)  # the generator itself, not its numbers: a graph refers to it
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            default.graphsafe_set_state(before)


class OnlyLane:
    """The lane of a training that is alone: nothing is switched."""

    alike: Mapping[str, int] = {"network": 1, "loss": 1}

    @contextmanager
    def turn(self) -> Iterator[None]:
        yield
