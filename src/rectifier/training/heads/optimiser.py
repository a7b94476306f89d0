"""AdamW and SGD for stacked weights, where each head has its own learning rate and weight decay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rectifier.training.heads.spec import HeadSpec

BETAS, EPS = (0.9, 0.999), 1e-8  # those of torch.optim.AdamW


def rates(spec: HeadSpec, steps: int) -> Tensor:
    """Return the learning rate of every step, float64 ``(steps,)``.

    >>> rates(HeadSpec(lr=1.0), 4).round(decimals=3).tolist()
    [1.0, 0.854, 0.5, 0.146]
    """
    step, rising = torch.arange(steps, dtype=torch.float64), round(spec.warmup * steps)
    done = (step - rising) / max(steps - rising, 1)
    level = (1 + torch.cos(math.pi * done)) / 2 if spec.schedule == "cosine" else torch.ones_like(step)
    return spec.lr * torch.where(step < rising, (step + 1) / max(rising, 1), level)


def decays(name: str) -> bool:
    """Tell whether a weight decays: all do except biases and scales."""
    return name.endswith("weight")


class Stacked:
    """The update of weights ``(H, ...)`` of H heads. Each step is that of ``torch.optim``, head by head."""

    def __init__(self, weights: Mapping[str, Tensor], specs: Sequence[HeadSpec], steps: int) -> None:
        self.weights, self.done = dict(weights), 0
        like = next(iter(self.weights.values()))
        self.rates = torch.stack([rates(spec, steps) for spec in specs], 1).to(like)  # (steps, H)
        self.decay = torch.tensor([spec.weight_decay for spec in specs], dtype=torch.float64).to(like)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        rate = self.rates[self.done]
        self.done += 1
        with torch.no_grad():
            for name, weight in self.weights.items():
                self.update(name, weight, gradients[name], rate, self.decay if decays(name) else None)

    def update(self, name: str, weight: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor | None) -> None:
        raise NotImplementedError


class StackedAdamW(Stacked):
    """The update of ``torch.optim.AdamW``."""

    def __init__(self, weights: Mapping[str, Tensor], specs: Sequence[HeadSpec], steps: int) -> None:
        super().__init__(weights, specs, steps)
        self.first = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self.second = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}

    def update(self, name: str, weight: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor | None) -> None:
        first, second = self.first[name], self.second[name]
        first.lerp_(gradient, 1 - BETAS[0])
        second.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        corrections = [1 - beta**self.done for beta in BETAS]
        direction = torch.sqrt(second, out=gradient).div_(math.sqrt(corrections[1])).add_(EPS)  # gradient is used up
        torch.div(first, direction, out=direction)
        if decay is not None:
            weight.mul_(_beside(1 - rate * decay, weight))
        weight.addcmul_(direction, _beside(rate, weight), value=-1 / corrections[0])


class StackedSGD(Stacked):
    """The update of ``torch.optim.SGD`` with momentum."""

    def __init__(self, weights: Mapping[str, Tensor], specs: Sequence[HeadSpec], steps: int) -> None:
        super().__init__(weights, specs, steps)
        self.momentum = torch.tensor([spec.momentum for spec in specs], dtype=torch.float64).to(self.rates)
        self.velocity = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}

    def update(self, name: str, weight: Tensor, gradient: Tensor, rate: Tensor, decay: Tensor | None) -> None:
        if decay is not None:
            gradient.addcmul_(weight, _beside(decay, weight))
        velocity = self.velocity[name].mul_(_beside(self.momentum, weight)).add_(gradient)
        weight.addcmul_(velocity, _beside(rate, weight), value=-1)


OPTIMISERS: dict[str, type[Stacked]] = {"adamw": StackedAdamW, "sgd": StackedSGD}


def _beside(of_heads: Tensor, weight: Tensor) -> Tensor:
    """Return ``(H,)`` in a shape that broadcasts over weights ``(H, ...)``."""
    return of_heads.view(-1, *[1] * (weight.dim() - 1))
