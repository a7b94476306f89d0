"""Lanes: several trainings side by side on one device, each as if it were alone.

One small network leaves most of a large GPU idle. A lane has a stream of its own, so that the kernels of several
trainings run at the same time, and random numbers of its own, so that dropout draws what it draws alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


class Lane:
    """Enter it for whatever one of several trainings does; work on a GPU is only started meanwhile, not waited for."""

    def __init__(self, device: torch.device, seed: int, alike: Mapping[str, int]) -> None:
        # How many, this one among them, have a network, and a loss, that does the same with other numbers.
        self.alike = alike
        self._host = torch.Generator().manual_seed(seed).get_state()
        self._random: torch.Generator | None = None
        if device.type == "cuda":
            self._random = torch.Generator(device).manual_seed(seed)
            self._stream = torch.cuda.Stream(device)
            self._stream.wait_stream(torch.cuda.current_stream(device))  # for what the training was given

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let this lane's stream and random numbers be PyTorch's own."""
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
        default.graphsafe_set_state(self._random)  # not its numbers but the thing itself: a graph keeps hold of it
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            default.graphsafe_set_state(before)


class OnlyLane:
    """The lane of a training that is alone: nothing changes hands."""

    alike: Mapping[str, int] = {"network": 1, "loss": 1}

    @contextmanager
    def turn(self) -> Iterator[None]:
        yield
