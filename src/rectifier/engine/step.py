"""One step of the optimizer: launched kernel by kernel, or captured as one CUDA graph.

A graph replays the kernels of a step without the host, which on a GPU spends more time on starting small kernels than
the device spends on running them. What changes from step to step lies in memory that the graph reads: the batch and
the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier import console
from rectifier.config import Config
from rectifier.data.loader import Batch
from rectifier.engine.tally import Tally

COMPILE_FROM = 100_000
"""Steps from which on compiling, which takes a minute or two, is made up for by faster steps."""


@dataclass(frozen=True)
class Trained:
    """What a step changes. ``bare`` is the network, ``wrapped`` what Fabric made of it and its optimizer."""

    bare: nn.Module
    wrapped: Any
    optimizer: Any
    objective: nn.Module


def make_optimizer(network: nn.Module, config: Config, lr: float) -> torch.optim.Optimizer:
    """Return the optimizer that the config names, over all weights.

    On a GPU its step is one kernel, and its rate lies there too: the step can be captured.
    """
    weights = list(network.parameters())
    device = weights[0].device
    on_gpu = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if on_gpu else lr
    common: dict[str, Any] = {"lr": rate, "weight_decay": config.weight_decay, "fused": True if on_gpu else None}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(weights, capturable=on_gpu, **common)
    return torch.optim.SGD(weights, momentum=config.momentum, nesterov=config.nesterov, **common)


def set_rate(optimizer: Any, rate: float) -> None:
    """Set the learning rate; one that lies on a GPU stays where it is."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class EagerStep:
    """A step as it is written."""

    def __init__(self, fabric: Fabric, trained: Trained, clip: float | None, tally: Tally, compiled: bool) -> None:
        self._fabric, self.trained, self._clip, self.tally = fabric, trained, clip, tally
        self._forward: Callable[[Tensor], Any] = trained.wrapped
        self._objective: Callable[..., Any] = trained.objective
        if compiled:
            self._objective = torch.compile(trained.objective)
            if fabric.world_size == 1:  # under DDP the wrapped network sends gradients while others are computed
                self._forward = _under_autocast(fabric, torch.compile(trained.bare))

    def __call__(self, window: list[Batch], rate: float) -> None:
        """Take a step on the mean gradient of some batches."""
        set_rate(self.trained.optimizer, rate)
        self.run(window)
        self.tally.count(len(window))

    def run(self, window: list[Batch]) -> None:
        """Do what a step does on the device, and nothing else."""
        fabric, optimizer = self._fabric, self.trained.optimizer
        optimizer.zero_grad()
        for batch in window:
            with fabric.no_backward_sync(self.trained.wrapped, enabled=batch is not window[-1]):
                output = self._forward(batch.images)
                found = self._objective(output.logits, batch.targets, output.features, return_parts=True)
                fabric.backward(found.loss if len(window) == 1 else found.loss / len(window))
            self.tally.add(found)
        if self._clip is not None:
            fabric.clip_gradients(self.trained.wrapped, optimizer, max_norm=self._clip, error_if_nonfinite=False)
        optimizer.step()


class CapturedStep:
    """A step as a CUDA graph; one graph for each shape of a batch, of which an epoch has two at most.

    With ``may_give_up``, a step that cannot be captured, as one that waits for a number of the device, is taken eagerly
    from then on, and the reason is told.
    """

    def __init__(self, step: EagerStep, may_give_up: bool) -> None:
        self._step, self._may_give_up, self._given_up = step, may_give_up, False
        self._graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, list[Batch]]] = {}

    def __call__(self, window: list[Batch], rate: float) -> None:
        """Take a step on the mean gradient of some batches."""
        shape = tuple(len(batch.images) for batch in window)
        if shape not in self._graphs and not self._given_up:
            self._try(shape, window)
        if self._given_up:
            self._step(window, rate)
            return
        set_rate(self._step.trained.optimizer, rate)
        graph, fixed = self._graphs[shape]
        for mine, batch in zip(fixed, window, strict=True):
            mine.images.copy_(batch.images)
            mine.targets.copy_(batch.targets)
        graph.replay()
        self._step.tally.count(len(window))

    def _try(self, shape: tuple[int, ...], window: list[Batch]) -> None:
        kept = {name: tensor.clone() for name, tensor in self._tensors().items()}
        random = torch.cuda.get_rng_state()
        try:
            self._graphs[shape] = self._capture(window, kept, random)
        except RuntimeError as error:  # of CUDA, whatever it was that cannot be captured
            if not self._may_give_up:
                raise
            console.say(f"The step is not captured: {str(error).partition(chr(10))[0]}")
            self._given_up = True
            self._recall(kept, random)

    def _capture(
        self, window: list[Batch], kept: dict[str, Tensor], random: Tensor
    ) -> tuple[torch.cuda.CUDAGraph, list[Batch]]:
        fixed = [Batch(*(tensor.clone() for tensor in batch)) for batch in window]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries choose and set up their kernels in the first steps
            for _ in range(3):
                self._step.run(fixed)
        torch.cuda.current_stream().wait_stream(aside)
        self._recall(kept, random)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step.run(fixed)
        return graph, fixed

    def _recall(self, kept: dict[str, Tensor], random: Tensor) -> None:
        """Bring everything back to what it was; what is new, as an optimizer's moments, begins with zeros."""
        for name, tensor in self._tensors().items():
            tensor.copy_(kept[name]) if name in kept else tensor.zero_()
        torch.cuda.set_rng_state(random)
        self._step.trained.optimizer.zero_grad()

    def _tensors(self) -> dict[str, Tensor]:
        """Return everything that a step changes, by name."""
        optimizer, network = self._step.trained.optimizer, self._step.trained.bare
        named: dict[str, Tensor] = dict(network.named_parameters()) | dict(network.named_buffers())
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        for number, weight in enumerate(weights):
            state: Iterable[tuple[str, Any]] = optimizer.state.get(weight, {}).items()
            named |= {f"optimizer {number} {key}": value for key, value in state if isinstance(value, Tensor)}
        detached = {name: tensor.detach() for name, tensor in named.items()}
        return detached | self._step.tally.tensors()


def make_step(fabric: Fabric, trained: Trained, config: Config, tally: Tally, steps: int) -> EagerStep | CapturedStep:
    """Return the step that the config asks for, or the fastest that device and settings allow; say why not a faster."""
    obstacle = _obstacle(fabric, config)
    asked = config.step
    if asked == "auto":
        asked = "eager" if obstacle else "captured"
        if obstacle and fabric.device.type == "cuda":
            console.say(f"The step is not captured: {obstacle}.")
    elif asked == "captured" and obstacle:
        console.say(f"The step is not captured as asked for: {obstacle}.")
        asked = "eager"
    compiled = asked == "compiled" or (asked == "captured" and steps >= COMPILE_FROM)
    step = EagerStep(fabric, trained, config.clip, tally, compiled)
    return CapturedStep(step, may_give_up=config.step == "auto") if asked == "captured" else step


def _obstacle(fabric: Fabric, config: Config) -> str | None:
    """Say what stands in the way of capturing a step, or None."""
    if fabric.device.type != "cuda":
        return f"a graph needs a CUDA device, and this is {fabric.device.type}"
    if fabric.world_size > 1:
        return "several processes agree on the length of each batch"
    if config.precision == "16":
        return "float16 looks at every gradient before the step; bf16 does not"
    return None


def _under_autocast(fabric: Fabric, network: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def forward(images: Tensor) -> Any:
        with fabric.autocast():
            return network(images)

    return forward
