"""How a step is run: eagerly, compiled, or captured as a CUDA graph. The step itself is in ``loop.py``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException  # the compiler has no public name for its errors

from rectifier._base import console
from rectifier.data.loader import Batch
from rectifier.training.engine.graphs import Graphs, first_line
from rectifier.training.engine.groups import weight_groups
from rectifier.training.engine.loop import take_step
from rectifier.training.engine.options import Options
from rectifier.training.engine.state import Tally

COMPILE_FROM = {"network": 50_000, "loss": 100_000}
"""Steps, of all trainings that share the compiled part, from which on compiling saves time."""


def make_optimizer(network: nn.Module, options: Options) -> torch.optim.Optimizer:
    """Return the optimizer that the options name, over the network's ``weight_groups``.

    On a GPU its step is one kernel, and each rate is a tensor there, so that the step can be captured.
    """
    groups = weight_groups(network, options)
    device = groups[0]["params"][0].device
    on_gpu = device.type == "cuda"
    for group in groups:
        rate = options.lr * group["scale"]
        group["lr"] = torch.tensor(rate, device=device) if on_gpu else rate
    fused = True if on_gpu else None
    if options.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=options.lr, fused=fused, capturable=on_gpu)
    return torch.optim.SGD(groups, lr=options.lr, fused=fused, momentum=options.momentum, nesterov=options.nesterov)


def set_rate(optimizer: Any, rate: float) -> None:
    """Set the learning rate, times the scale of each group; a rate on a GPU stays the same tensor."""
    for group in optimizer.param_groups:
        scaled = rate * group["scale"]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(scaled)
        else:
            group["lr"] = scaled


@dataclass(eq=False)
class EagerStep:
    """A step kernel by kernel, which changes the weights of ``network``.

    ``wrapped`` and ``optimizer`` are what Fabric made of the network and its optimizer. ``mixing`` mixes pairs of
    images, and gives the objective the ``partner``: the other's labels and their share.
    """

    fabric: Fabric
    network: nn.Module
    wrapped: Any
    optimizer: Any
    objective: nn.Module
    tally: Tally
    mixing: nn.Module | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        self.forward: Callable[[Tensor], Any] = self.wrapped
        self.loss = _counted_loss

    def compile(self, parts: Collection[str]) -> None:
        """Compile the ``"network"``, the ``"loss"`` or both."""
        if parts:
            limits = torch._dynamo.config  # versions of one function: every method and batch size has its own
            limits.recompile_limit = max(limits.recompile_limit, 64)
        if "loss" in parts:
            self.loss = torch.compile(_counted_loss)
        if "network" in parts and self.fabric.world_size == 1:  # DDP sends gradients while others are computed
            self.forward = _compiled_forward(self.fabric, self.network)

    def simplify(self, reason: str) -> None:
        """Continue without the compiler, and say why."""
        console.say(f"The step is not compiled: {reason}")
        self.forward, self.loss = self.wrapped, _counted_loss

    def __call__(self, window: list[Batch], rate: float) -> None:
        """Step along the mean gradient of some batches."""
        set_rate(self.optimizer, rate)
        try:
            self.run(window)
        except TorchDynamoException as error:
            _cannot_compile(error)
        self.tally.count(len(window))

    def run(self, window: list[Batch]) -> None:
        take_step(self, window)


class CapturedStep:
    """A step as a CUDA graph, which reads the batch and the rate."""

    def __init__(self, step: EagerStep, may_give_up: bool, may_simplify: bool = False) -> None:
        self._step = step
        simplify = step.simplify if may_simplify else None
        self._graphs = Graphs(step.run, "The step", self._changed, may_give_up, simplify)

    def __call__(self, window: list[Batch], rate: float) -> None:
        """Step along the mean gradient of some batches."""
        set_rate(self._step.optimizer, rate)
        try:
            self._graphs(window)
        except TorchDynamoException as error:
            _cannot_compile(error)
        self._step.tally.count(len(window))

    def _changed(self) -> dict[str, Tensor]:
        optimizer, network = self._step.optimizer, self._step.network
        named: dict[str, Tensor] = dict(network.named_parameters()) | dict(network.named_buffers())
        named |= {f"objective {name}": buffer for name, buffer in self._step.objective.named_buffers()}
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        for number, weight in enumerate(weights):
            state: Iterable[tuple[str, Any]] = optimizer.state.get(weight, {}).items()
            named |= {f"optimizer {number} {key}": value for key, value in state if isinstance(value, Tensor)}
        detached = {name: tensor.detach() for name, tensor in named.items()}
        return detached | self._step.tally.tensors()


def _cannot_compile(error: Exception) -> NoReturn:
    remedy = "step='eager' and step='captured' need no compiler, also when the run is resumed."
    raise ValueError(f"This machine cannot compile the step: {first_line(error)}. {remedy}")


def fastest(step: EagerStep, options: Options, steps: Mapping[str, int]) -> EagerStep | CapturedStep:
    """Return the step as the options ask, or as fast as possible here; say why it is not captured.

    ``steps`` counts the steps that share the compiled network, and those that share the compiled loss.
    """
    captured = is_captured(step.fabric, options)
    expected = options.step == "captured" or (options.step != "eager" and step.fabric.device.type == "cuda")
    if expected and not captured:
        console.say(f"The step is not captured: {_obstacle(step.fabric, options)}.")
    pays = [part for part, shared in steps.items() if shared >= COMPILE_FROM[part]]
    step.compile(list(steps) if options.step == "compiled" else pays if options.step == "auto" and captured else [])
    if not captured:
        return step
    return CapturedStep(step, may_give_up=options.step != "captured", may_simplify=options.step == "auto")


def is_captured(fabric: Fabric, options: Options) -> bool:
    """Say whether steps are captured: always, unless something prevents it or the options say otherwise."""
    return options.step != "eager" and _obstacle(fabric, options) is None


def _obstacle(fabric: Fabric, options: Options) -> str | None:
    """Say what prevents capturing a step, or None."""
    if fabric.device.type != "cuda":
        return f"a graph needs a CUDA device, and this is {fabric.device.type}"
    if fabric.world_size > 1:
        return "several processes agree on the length of each batch"
    if options.precision == "16":
        return "float16 looks at every gradient before the step; bf16 does not"
    return None


# The compiler gets functions of network and objective, so that several of one kind are compiled once.


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
