"""A network as a sequence of steps, so that it can be cut: found by running its children in turn, and then checked.

A network whose ``forward`` does more than that (a transformer's class token) has no steps, only groups of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

_ABOVE = 1 / 10  # least share of the weights above the cut before the last stage
_LAST = 1 / 6  # least share of the weights in the last groups of a network without steps


@dataclass(frozen=True)
class Steps:
    """The steps of a network and the shape of one sample's output after each."""

    modules: tuple[nn.Module, ...]
    shapes: tuple[tuple[int, ...], ...]

    def before_last_stage(self) -> int:
        """Return the place of the cut before the last stage: after the step that gives the smallest maps.

        Where that leaves little to train, because this step is the whole last stage, the cut is before it.
        """
        maps = [spatial(shape) if len(shape) == 3 else (1, 1) for shape in self.shapes]
        sizes = [one for one in maps if one != (1, 1)]
        if not sizes:
            return 0
        smallest = maps.index(sizes[-1])
        weights = [size(module) for module in self.modules]
        return smallest + 1 if sum(weights[smallest + 1 :]) >= _ABOVE * sum(weights) else smallest

    def before_last_layer(self) -> int:
        """Return the place before the last step with a matrix of weights."""
        layers = (any(one.dim() > 1 for one in module.parameters()) for module in self.modules)
        return max((place for place, layer in enumerate(layers) if layer), default=0)

    def channels_before_last_layer(self) -> int:
        """Return the number of values that the input of the last layer has at each position."""
        shape = self.shapes[self.before_last_layer() - 1]
        return shape[-1] if len(shape) == 3 and channels_last(shape) else shape[0]

    def stages(self) -> list[list[nn.Parameter]]:
        """Return the parameters of each stage: neighbouring steps whose outputs have one shape."""
        numbered = groupby(zip(self.shapes, self.modules, strict=True), key=lambda pair: pair[0])
        stages = ([p for _, module in members for p in module.parameters()] for _, members in numbered)
        return [stage for stage in stages if stage]


class WithInput(nn.Sequential):
    """Steps that append their input, averaged over positions, to their output ``(N, D)``."""

    def forward(self, values: Tensor) -> Tensor:
        output = values
        for step in self:
            output = step(output)
        return torch.cat([output, over_positions(values)], 1)


def over_positions(values: Tensor) -> Tensor:
    """Return the mean of maps over their positions, ``(N, C)``. Vectors stay."""
    if values.dim() != 4:
        return values
    return values.mean((1, 2) if channels_last(tuple(values.shape[1:])) else (2, 3))


def find_steps(trunk: nn.Module, sample: Tensor) -> Steps | None:
    """Return the steps of a network from a batch of images, or None where running its children gives something else."""
    modes = {module: module.training for module in trunk.modules()}
    trunk.eval()
    try:
        with torch.no_grad(), one_thread():
            modules, outputs = _run(trunk, sample)
            # A container is a sequence as it is; what another forward does, only its output tells.
            right = _is_container(trunk) or _equal(outputs[-1], trunk(sample))
    except Exception:  # whatever a module of another library raises on an input that is not meant for it
        return None
    finally:
        for module, mode in modes.items():
            module.training = mode
    return Steps(tuple(modules), tuple(tuple(output.shape[1:]) for output in outputs)) if right else None


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: for one image that is as fast, and many times as fast where other processes use the cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _equal(found: Tensor, expected: Tensor) -> bool:
    return found.shape == expected.shape and torch.allclose(found, expected, atol=1e-5)


def _run(trunk: nn.Module, value: Tensor) -> tuple[list[nn.Module], list[Tensor]]:
    modules: list[nn.Module] = []
    outputs: list[Tensor] = []
    foreign = not _is_container(trunk)  # its forward may flatten maps by itself, before a linear layer or at the end
    for child in (*expanded(trunk), nn.Flatten()):
        flatten = foreign and value.dim() == 4 and isinstance(child, nn.Linear)
        for module in (nn.Flatten(), child) if flatten else (child,):
            value = module(value)
            modules.append(module)
            outputs.append(value)
    return modules, outputs


def expanded(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the children of a module in order of registration. Plain containers are replaced by their children."""
    for child in module.children():
        if _is_container(child):
            yield from expanded(child)
        else:
            yield child


def _is_container(module: nn.Module) -> bool:
    """Say whether a module is only a list of others: a container, or a module that holds nothing but one container."""
    if any(True for _ in module.parameters(recurse=False)):
        return False
    if isinstance(module, nn.Sequential):
        return type(module).forward is nn.Sequential.forward
    children = list(module.children())
    return isinstance(module, nn.ModuleList) or (len(children) == 1 and isinstance(children[0], nn.ModuleList))


def groups(trunk: nn.Module) -> list[list[nn.Parameter]]:
    """Return groups of parameters from the input to the output, by order of registration.

    Containers, and modules with more than half of all weights, are replaced by their children.
    """
    whole = size(trunk)

    def members(module: nn.Module) -> list[list[nn.Parameter]]:
        children = [child for child in module.children() if size(child)]
        if not children or not (_is_container(module) or size(module) > whole / 2):
            return [list(module.parameters())]
        found = [group for child in children for group in members(child)]
        found[0] = list(module.parameters(recurse=False)) + found[0]  # position and class tokens come first
        return found

    return members(trunk)


def last_groups(found: list[list[nn.Parameter]]) -> list[nn.Parameter]:
    """Return the parameters of the fewest last groups that hold a sixth of the weights."""
    total = sum(p.numel() for group in found for p in group)
    chosen: list[nn.Parameter] = []
    for group in reversed(found):
        chosen = group + chosen
        if sum(p.numel() for p in chosen) >= _LAST * total:
            break
    return chosen


def channels_last(shape: tuple[int, ...]) -> bool:
    """Say whether maps are (H, W, C), as in some transformers, and not (C, H, W): late maps have many channels."""
    return shape[2] > shape[0]


def spatial(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return height and width of maps."""
    return shape[:2] if channels_last(shape) else shape[1:]


def size(module: nn.Module) -> int:
    """Return the number of weights of a module."""
    return sum(parameter.numel() for parameter in module.parameters())
