"""DenseNet for small images (Huang et al. 2017, section 3), the best network of the paper's CIFAR-100 experiments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.layers import he, zero_bias
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape

BLOCKS = 3


def densenet(
    sizes: Sizes,
    shape: Sequence[int],
    *,
    depth: int = 40,
    growth: int = 12,
    bottleneck: bool = False,
    compression: float = 1.0,
    branch: Widths = 0,
    dropout: float = 0.0,
    classifier: str = "linear",
) -> Network:
    """Build a densely connected network for small images.

    "DenseNet-BC" of the publication has ``bottleneck`` and ``compression=0.5``. It starts with 2 ``growth`` maps, the
    plain form with 16. The publication drops 0.2 where images are not augmented. Weights are from N(0, 2 / fan_out), as
    in the authors' code. The CRL paper does not name its form; the default has 1.0 M parameters, BC with depth 100 has
    0.8 M. Any size from 4 x 4.

    Own arguments (``Network`` explains the others):
        depth: number of layers with weights, 3n + 4, or 6n + 4 with ``bottleneck``.
        growth: number of maps that each layer adds.
        bottleneck: add a 1x1 convolution to 4 ``growth`` maps before each 3x3.
        compression: share of maps kept between blocks, above 0 and at most 1.
        dropout: share dropped after each convolution except the first.

    >>> network = densenet([10], (32, 32, 3))
    >>> sum(parameter.numel() for parameter in network.parameters())
    1019722
    """
    step = 2 * BLOCKS if bottleneck is True else BLOCKS
    sensible = check.is_count(depth) and depth > 4 and (depth - 4) % step == 0
    own = [
        check.that("depth", depth, f"{step}n + 4 for a whole number n", sensible),
        check.count("growth", growth),
        check.switch("bottleneck", bottleneck),
        check.share("compression", compression),
    ]
    check_options(branch, dropout, classifier, *own)
    shape = image_shape("densenet", shape, 4)  # the second pooling needs two places: 4, 2, 1
    trunk = DenseNet(shape[2], (depth - 4) // step, growth, bottleneck, compression, dropout)
    return Network(trunk, trunk.features, sizes, shape, branch=branch, classifier=classifier, draw=zero_bias)


class DenseNet(nn.Module):
    """The shared layers: images to ``features`` features."""

    def __init__(
        self, channels: int, layers: int, growth: int, bottleneck: bool, compression: float, dropout: float
    ) -> None:
        super().__init__()
        maps = 2 * growth if bottleneck and compression < 1 else 16
        stages: list[nn.Module] = [nn.Conv2d(channels, maps, 3, padding=1, bias=False)]
        for block in range(BLOCKS):
            if block:
                kept = max(1, int(compression * maps))
                stages += [*_convolution(maps, kept, 1, dropout), nn.AvgPool2d(2)]
                maps = kept
            stages += [DenseLayer(maps + layer * growth, growth, bottleneck, dropout) for layer in range(layers)]
            maps += layers * growth
        self.stages = nn.Sequential(*stages, nn.BatchNorm2d(maps), nn.ReLU())
        self.features = maps
        he(self, "fan_out")

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.stages(images)
        return maps.mean((2, 3))


class DenseLayer(nn.Module):
    """Layers that append ``growth`` new maps to the maps they read."""

    def __init__(self, before: int, growth: int, bottleneck: bool, dropout: float) -> None:
        super().__init__()
        narrow = _convolution(before, 4 * growth, 1, dropout) if bottleneck else []
        read = 4 * growth if bottleneck else before
        self.layers = nn.Sequential(*narrow, *_convolution(read, growth, 3, dropout))

    def forward(self, maps: Tensor) -> Tensor:
        return torch.cat([maps, self.layers(maps)], 1)


def _convolution(before: int, after: int, side: int, dropout: float) -> list[nn.Module]:
    """Return batch normalisation, ReLU, one convolution, and dropout where there is any."""
    convolution = nn.Conv2d(before, after, side, padding=side // 2, bias=False)
    dropped = [nn.Dropout(dropout)] if dropout else []
    return [nn.BatchNorm2d(before), nn.ReLU(), convolution, *dropped]
