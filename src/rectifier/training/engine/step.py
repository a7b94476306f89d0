"""One step of the optimizer: launched kernel by kernel, or captured as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException  # the compiler has no public name for its errors

from rectifier._base import check, console
from rectifier.data.loader import Batch
from rectifier.training.config import Config
from rectifier.training.engine.graphs import Graphs, first_line
from rectifier.training.engine.tally import Tally

COMPILE_FROM = {"network": 50_000, "loss": 100_000}
"""Steps, of all trainings side by side that share what is compiled, from which on faster ones make up for the wait."""


@dataclass(frozen=True)
class Trained:
    """What a step changes, and how. ``bare`` is the network, ``wrapped`` what Fabric made of it and its optimizer.

    ``mixing`` makes one image of two, and gives the objective its ``partner``: the other's labels and their share.
    """

    bare: nn.Module
    wrapped: Any
    optimizer: Any
    objective: nn.Module
    mixing: nn.Module | None


def make_optimizer(network: nn.Module, config: Config, lr: float) -> torch.optim.Optimizer:
    """Return the optimizer that the config names, over all weights that are trained.

    On a GPU its step is one kernel, and its rate lies there too: the step can be captured.
    """
    weights = [weight for weight in network.parameters() if weight.requires_grad]
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
    """A step as it is written; ``compiled`` names what of it is compiled, of ``"network"`` and ``"loss"``."""

    def __init__(
        self, fabric: Fabric, trained: Trained, clip: float | None, tally: Tally, compiled: Collection[str] = ()
    ) -> None:
        self._fabric, self.trained, self._clip, self.tally = fabric, trained, clip, tally
        self._forward: Callable[[Tensor], Any] = trained.wrapped
        self._loss = _counted_loss
        if compiled:
            limits = torch._dynamo.config  # of one function's versions: every method and size of a batch has its own
            limits.recompile_limit = max(limits.recompile_limit, 64)
        if "loss" in compiled:
            self._loss = torch.compile(_counted_loss)
        if "network" in compiled and fabric.world_size == 1:  # DDP sends gradients while others are computed
            self._forward = _compiled_forward(fabric, trained.bare)

    def simplify(self, reason: str) -> None:
        """Go on without the compiler, and say why."""
        console.say(f"The step is not compiled: {reason}")
        self._forward, self._loss = self.trained.wrapped, _counted_loss

    def __call__(self, window: list[Batch], rate: float) -> None:
        """Take a step on the mean gradient of some batches."""
        set_rate(self.trained.optimizer, rate)
        try:
            self.run(window)
        except TorchDynamoException as error:
            _cannot_compile(error)
        self.tally.count(len(window))

    def run(self, window: list[Batch]) -> None:
        """Do what a step does on the device, and nothing else."""
        fabric, optimizer = self._fabric, self.trained.optimizer
        optimizer.zero_grad()
        for batch in window:
            with fabric.no_backward_sync(self.trained.wrapped, enabled=batch is not window[-1]):
                images, more = batch.images, {}
                if self.trained.mixing is not None:
                    images, more["partner"] = self.trained.mixing(images, batch.targets)
                output = self._forward(images)
                loss = self._loss(self.trained.objective, self.tally, output, batch.targets, more)
                fabric.backward(loss if len(window) == 1 else loss / len(window))
        if self._clip is not None:
            fabric.clip_gradients(self.trained.wrapped, optimizer, max_norm=self._clip, error_if_nonfinite=False)
        optimizer.step()


class CapturedStep:
    """A step as a CUDA graph, which reads the batch and the rate."""

    def __init__(self, step: EagerStep, may_give_up: bool, may_simplify: bool = False) -> None:
        self._step = step
        simplify = step.simplify if may_simplify else None
        self._graphs = Graphs(step.run, "The step", self._changed, may_give_up, simplify)

    def __call__(self, window: list[Batch], rate: float) -> None:
        """Take a step on the mean gradient of some batches."""
        set_rate(self._step.trained.optimizer, rate)
        try:
            self._graphs(window)
        except TorchDynamoException as error:
            _cannot_compile(error)
        self._step.tally.count(len(window))

    def _changed(self) -> dict[str, Tensor]:
        optimizer, network = self._step.trained.optimizer, self._step.trained.bare
        named: dict[str, Tensor] = dict(network.named_parameters()) | dict(network.named_buffers())
        named |= {f"objective {name}": buffer for name, buffer in self._step.trained.objective.named_buffers()}
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        for number, weight in enumerate(weights):
            state: Iterable[tuple[str, Any]] = optimizer.state.get(weight, {}).items()
            named |= {f"optimizer {number} {key}": value for key, value in state if isinstance(value, Tensor)}
        detached = {name: tensor.detach() for name, tensor in named.items()}
        return detached | self._step.tally.tensors()


def _cannot_compile(error: Exception) -> NoReturn:
    got = f"{first_line(error)} (--step eager or captured needs no compiler; with --resume the run goes on)"
    check.fail("--step compiled", "what this machine can do", got)


def make_step(
    fabric: Fabric, trained: Trained, config: Config, tally: Tally, steps: Mapping[str, int]
) -> EagerStep | CapturedStep:
    """Return the step that the config asks for, or the fastest that device and settings allow; say why not a faster.

    ``steps`` tells how many steps share the network, once it is compiled, and how many the loss.
    """
    captured = is_captured(fabric, config)
    if config.step != "eager" and not captured:
        asked = " as asked for" if config.step == "captured" else ""
        if asked or fabric.device.type == "cuda":
            console.say(f"The step is not captured{asked}: {_obstacle(fabric, config)}.")
    pays = [part for part, shared in steps.items() if shared >= COMPILE_FROM[part]]
    compiled = list(steps) if config.step == "compiled" else pays if config.step == "auto" and captured else ()
    step = EagerStep(fabric, trained, config.clip, tally, compiled)
    if not captured:
        return step
    return CapturedStep(step, may_give_up=config.step != "captured", may_simplify=config.step == "auto")


def is_captured(fabric: Fabric, config: Config) -> bool:
    """Say whether steps are captured: where nothing stands in the way and nothing else is asked for."""
    return config.step != "eager" and _obstacle(fabric, config) is None


def _obstacle(fabric: Fabric, config: Config) -> str | None:
    """Say what stands in the way of capturing a step, or None."""
    if fabric.device.type != "cuda":
        return f"a graph needs a CUDA device, and this is {fabric.device.type}"
    if fabric.world_size > 1:
        return "several processes agree on the length of each batch"
    if config.precision == "16":
        return "float16 looks at every gradient before the step; bf16 does not"
    return None


# What is compiled are functions of network and objective, so that several of one kind are compiled once.


def _counted_loss(objective: nn.Module, tally: Tally, output: Any, targets: Tensor, more: dict[str, Any]) -> Tensor:
    found = objective(output.logits, targets, output.features, return_parts=True, **more)
    tally.add(found)
    loss: Tensor = found.loss
    return loss


def _output(network: nn.Module, images: Tensor) -> Any:
    return network(images)


def _compiled_forward(fabric: Fabric, network: nn.Module) -> Callable[[Tensor], Any]:
    compiled, precision = torch.compile(_output), fabric.strategy.precision

    def forward(images: Tensor) -> Any:  # as the wrapped network does it
        images = precision.convert_input(images)
        with fabric.autocast():
            output = compiled(network, images)
        return precision.convert_output(output)

    return forward
