"""LocalConv2d: a convolution whose weights are shared within small regions only, or not at all."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, unfold


class LocalConv2d(nn.Module):
    """A convolution without padding; each ``region`` x ``region`` patch of its output has its own weights and bias.

    With ``region=1`` nothing is shared. Where the output does not divide evenly, the last regions are smaller. All
    regions are one batched product. Weights start from N(0, 2 / fan_in), biases at 0.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel: the side of the filters.
        grid: ``(height, width)`` of the output.
        region: the side of the patches that share weights.

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
        laid: Tensor = product.unflatten(1, (-1, side, side)).unflatten(
            0, (down, across)
        )  # (down, across, N, side, side, out)
        return laid.permute(2, 5, 0, 3, 1, 4).flatten(4, 5).flatten(2, 3)[:, :, :height, :width]
