"""Local response normalisation (Krizhevsky et al. 2012)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d


class ResponseNorm(nn.Module):
    """Divide each map by a power of the mean square of its neighbours, the maps before and after it.

    It computes what PyTorch's own layer does. That one pools over the channels, which are last in memory here, and
    takes longer than all else in a small network; a 1x1 convolution with a band of equal weights does the same.

    Args:
        channels: the maps.
        size: over how many of them the mean is taken; those beyond the first and the last are zeros.
        alpha, beta, k: each map is divided by ``(k + alpha * mean) ** beta``.
        groups: of maps, which are not neighbours of each other's.

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
        before = own[:, None] - own  # how many maps one lies before another
        band = ((before <= size // 2) & (-before <= (size - 1) // 2)).float() / size
        self.register_buffer("window", band.repeat(groups, 1)[:, :, None, None], persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        mean = conv2d(maps.square(), self.window, groups=self.groups)
        return maps / (self.k + self.alpha * mean).pow(self.beta)
