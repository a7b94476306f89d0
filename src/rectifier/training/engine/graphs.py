"""Work on batches as CUDA graphs: captured once for each shape, then replayed without the host.

On a GPU the host needs more time to start small kernels than the device needs to run them; a graph starts them all at
once. Values that change between replays are in memory that the graph reads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException  # the compiler has no public name for its errors

from rectifier._base import console
from rectifier.data.loader import Batch

Work = Callable[[list[Batch]], None]
"""Work on the device with some batches, and nothing else."""


def first_line(error: Exception) -> str:
    """Return the first line of an error; a compiler adds pages."""
    return str(error).strip().partition("\n")[0]


class Graphs:
    """Work as CUDA graphs, one for each shape of the batches, of which an epoch has two at most.

    Args:
        work: the work to capture.
        name: its name in messages.
        changed: returns all tensors that the work changes, by name; capturing leaves them as they were.
        may_give_up: work that cannot be captured, because it waits for the device, runs uncaptured from then on. A
            message gives the reason.
        simplify: simplifies work that cannot be compiled, which is then tried once more; None: that is an error.
    """

    def __init__(
        self,
        work: Work,
        name: str,
        changed: Callable[[], dict[str, Tensor]],
        may_give_up: bool,
        simplify: Callable[[str], None] | None = None,
    ) -> None:
        self._work, self._name, self._changed, self._may_give_up = work, name, changed, may_give_up
        self._simplify = simplify
        self._given_up = False
        self._graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, list[Batch]]] = {}

    def __call__(self, window: list[Batch]) -> None:
        shape = tuple(len(batch.images) for batch in window)
        if shape not in self._graphs and not self._given_up:
            self._try(shape, window)
        if self._given_up:
            self._work(window)
            return
        graph, fixed = self._graphs[shape]
        for mine, batch in zip(fixed, window, strict=True):
            mine.images.copy_(batch.images)
            mine.targets.copy_(batch.targets)
        graph.replay()

    def _try(self, shape: tuple[int, ...], window: list[Batch]) -> None:
        kept = {name: tensor.clone() for name, tensor in self._changed().items()}
        random = torch.cuda.get_rng_state()
        try:
            self._graphs[shape] = self._capture(window, kept, random)
        except RuntimeError as error:  # CUDA raises it for anything that cannot be captured
            not_compiled = isinstance(error, TorchDynamoException)
            may_go_on = self._simplify is not None if not_compiled else self._may_give_up
            if not may_go_on or isinstance(error, torch.OutOfMemoryError):
                raise
            reason = first_line(error)
            torch.cuda.synchronize()  # work that started before the error still changes tensors
            self._recall(kept, random)
            if not_compiled and self._simplify is not None:
                self._simplify(reason)
                self._try(shape, window)
                return
            console.say(f"{self._name} is not captured: {reason}")
            self._given_up = True

    def _capture(
        self, window: list[Batch], kept: dict[str, Tensor], random: Tensor
    ) -> tuple[torch.cuda.CUDAGraph, list[Batch]]:
        fixed = [Batch(*(tensor.clone() for tensor in batch)) for batch in window]
        current = torch.cuda.current_stream()
        # A graph keeps the workspaces that cuBLAS has for the stream it is captured on. Two graphs that run at the same
        # time must not share them, so a lane captures on its own stream; the default one cannot be captured.
        stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
        stream.wait_stream(current)
        with torch.cuda.stream(stream):  # libraries choose and set up their kernels in the first run
            self._work(fixed)
        current.wait_stream(stream)
        self._recall(kept, random)
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as those that read images ahead, may use the device meanwhile.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self._work(fixed)
        return graph, fixed

    def _recall(self, kept: dict[str, Tensor], random: Tensor) -> None:
        """Restore all tensors; new ones, such as an optimizer's moments, start with zeros."""
        for name, tensor in self._changed().items():
            tensor.copy_(kept[name]) if name in kept else tensor.zero_()
        torch.cuda.set_rng_state(random)
