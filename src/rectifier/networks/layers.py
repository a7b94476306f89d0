"""Layers and initial weights that several networks share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, unfold

from rectifier.networks.options import Widths, as_widths


def fully_connected(inputs: int, widths: Widths, dropout: float) -> list[nn.Module]:
    """Return fully connected layers with ReLU, and dropout between them. The head drops the last output."""
    layers: list[nn.Module] = []
    for before, after in pairwise((inputs, *as_widths(widths))):
        if layers:
            layers.append(nn.Dropout(dropout))
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers


class LocalConv2d(nn.Module):
    """A convolution without padding, where each ``region`` x ``region`` patch of the output has its own weights.

    With ``region=1`` no weights are shared. Where the output, ``grid`` high and wide, does not divide evenly, the last
    regions are smaller. All regions are one batched product. Initial weights are from N(0, 2 / fan_in), biases are 0.

    >>> LocalConv2d(40, 60, 3, (10, 8), region=2).weight.shape  # 5 x 4 regions
    torch.Size([20, 60, 360])
    """

    def __init__(self, in_channels: int, out_channels: int, kernel: int, grid: tuple[int, int], region: int) -> None:
        super().__init__()
        self.kernel, self.grid, self.region = kernel, grid, region
        self.regions = (math.ceil(grid[0] / region), math.ceil(grid[1] / region))
        inputs, patches = in_channels * kernel**2, self.regions[0] * self.regions[1]
        self.weight = nn.Parameter(torch.randn(patches, out_channels, inputs) * math.sqrt(2 / inputs))
        self.bias = nn.Parameter(torch.zeros(patches, out_channels))

    def forward(self, images: Tensor) -> Tensor:
        (height, width), (down, across), side = self.grid, self.regions, self.region
        windows = unfold(images, self.kernel).unflatten(2, self.grid)  # (N, inputs, height, width)
        windows = pad(windows, (0, across * side - width, 0, down * side - height))
        cut = windows.unflatten(3, (across, side)).unflatten(2, (down, side))  # (N, inputs, down, side, across, side)
        by_region = cut.permute(2, 4, 0, 3, 5, 1).flatten(2, 4).flatten(0, 1)  # (regions, N * side * side, inputs)
        product = torch.baddbmm(self.bias.unsqueeze(1), by_region, self.weight.transpose(1, 2))
        # (down, across, N, side, side, out)
        laid: Tensor = product.unflatten(1, (-1, side, side)).unflatten(0, (down, across))
        return laid.permute(2, 5, 0, 3, 1, 4).flatten(4, 5).flatten(2, 3)[:, :, :height, :width]


class ResponseNorm(nn.Module):
    """Local response normalisation (Krizhevsky et al. 2012): divide each map by the mean square of its neighbours.

    It computes the same as PyTorch's layer. That layer pools over the channels, which are last in memory here, and
    takes longer than the rest of a small network. A 1x1 convolution with a band of equal weights is faster.

    Each map is divided by ``(k + alpha * mean) ** beta``, with the mean over ``size`` maps. Maps beyond the first and
    the last count as zeros. Maps of different groups are not neighbours.

    >>> maps = torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1, 1)
    >>> ResponseNorm(3, 3, alpha=3.0, beta=1.0, k=0.0)(maps).flatten()  # 1 / (1 + 4), 2 / (1 + 4 + 9), 3 / (4 + 9)
    tensor([0.2000, 0.1429, 0.2308])
    """

    window: Tensor

    def __init__(
        self, channels: int, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, groups: int = 1
    ) -> None:
        super().__init__()
        self.alpha, self.beta, self.k, self.groups = alpha, beta, k, groups
        own = torch.arange(channels // groups)
        before = own[:, None] - own  # distance between maps
        band = ((before <= size // 2) & (-before <= (size - 1) // 2)).float() / size
        self.register_buffer("window", band.repeat(groups, 1)[:, :, None, None], persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        mean = conv2d(maps.square(), self.window, groups=self.groups)
        return maps / (self.k + self.alpha * mean).pow(self.beta)


def he(module: nn.Module, mode: Literal["fan_in", "fan_out"]) -> None:
    """Draw the weights of all convolutions and linear layers from N(0, 2 / fan) (He et al. 2015). Biases are 0.

    The code of the residual and dense networks uses ``fan_out``. The publication writes ``fan_in``.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, mode=mode, nonlinearity="relu")
            zero_bias(layer)


def truncated_normal(layer: nn.Module, std: float, bias: float) -> None:
    """Draw a layer's weights from N(0, std^2), cut at two deviations as in TensorFlow, and set its bias, if any."""
    nn.init.trunc_normal_(layer.get_parameter("weight"), std=std, a=-2 * std, b=2 * std)
    if layer.bias is not None:
        nn.init.constant_(layer.get_parameter("bias"), bias)


def zero_bias(layer: nn.Module) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.get_parameter("bias"))


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Draw random numbers from a seed and restore PyTorch's random state. None uses that state."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU, so no device's state changes
        torch.default_generator.manual_seed(seed)
        yield
