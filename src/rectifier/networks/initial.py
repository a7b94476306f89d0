"""Initial weights that several networks share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import nn


def he(module: nn.Module, mode: Literal["fan_in", "fan_out"]) -> None:
    """Draw the weights of all convolutions and fully connected layers from N(0, 2 / fan) (He et al. 2015), biases 0.

    ``fan_out`` is what the authors' residual and dense networks use, ``fan_in`` what the publication writes out.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, mode=mode, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def truncated_normal(layer: nn.Module, std: float, bias: float) -> None:
    """Draw one layer's weights from N(0, std^2), cut at two deviations as TensorFlow does; set its bias, if any."""
    nn.init.trunc_normal_(layer.get_parameter("weight"), std=std, a=-2 * std, b=2 * std)
    if layer.bias is not None:
        nn.init.constant_(layer.get_parameter("bias"), bias)


def zero_bias(layer: nn.Module) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.get_parameter("bias"))


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw from a seed and leave PyTorch's own random state as it was. None draws from that."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU, so no device's state is touched
        torch.default_generator.manual_seed(seed)
        yield
