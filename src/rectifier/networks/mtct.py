"""MTCT, the network of the paper's clothing experiments (Dong, Gong, Zhu 2017): a network in network."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from rectifier.labels.columns import Sizes
from rectifier.networks.layers import he
from rectifier.networks.network import Network
from rectifier.networks.options import Widths, check_options, image_shape

Units = tuple[tuple[int, int], ...]
"""Number of maps and side of the filters, for each unit."""

MTCT: Units = ((96, 11), (256, 5), (384, 3), (512, 3), (512, 3))


def mtct(
    sizes: Sizes, shape: Sequence[int], *, branch: Widths = (512, 128), dropout: float = 0.0, classifier: str = "linear"
) -> Network:
    """Build MTCT (Dong, Gong, Zhu 2017): five units, then three fully connected layers for each label.

    The publication gives no widths. Ours: 512 maps in the last two units, the average over the last maps, branches of
    512 and 128. Any size from 71 x 71. ``Network`` explains the arguments.

    >>> import torch
    >>> network = mtct([6, 9, 55], (96, 72, 3))
    >>> network(torch.randn(2, 3, 96, 72)).logits.shape
    torch.Size([2, 70])
    """
    check_options(branch, dropout, classifier)
    shape = image_shape("mtct", shape, 71)  # the last pooling needs two places: 71, 16, 8, 4, 2
    trunk = averaged_units(shape[2], MTCT)
    return Network(trunk, MTCT[-1][0], sizes, shape, branch=branch, dropout=dropout, classifier=classifier)


def averaged_units(channels: int, units: Units) -> nn.Sequential:
    """Return units followed by the average over their last maps."""
    trunk = nn.Sequential(*nin_units(channels, units), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he(trunk, "fan_in")
    return trunk


def nin_units(channels: int, units: Sequence[tuple[int, int]]) -> list[nn.Module]:
    """Return units of a convolution and two 1x1 convolutions, each with ReLU, and 3x3 max pooling between units.

    The first convolution has stride 4, the poolings have stride 2. The other layers keep the size of their maps.
    """
    layers: list[nn.Module] = []
    for maps, side in units:
        if layers:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(channels, maps, side, padding=side // 2)]
        else:
            layers += [nn.Conv2d(channels, maps, side, stride=4)]
        layers += [nn.ReLU(), nn.Conv2d(maps, maps, 1), nn.ReLU(), nn.Conv2d(maps, maps, 1), nn.ReLU()]
        channels = maps
    return layers


def maps_side(side: int, units: int) -> int:
    """Return the side of the maps after so many units, 0 where the image is too small.

    >>> maps_side(227, 1), maps_side(227, 5), maps_side(71, 5), maps_side(70, 5)
    (55, 3, 1, 0)
    """
    first = max(0, (side - 11) // 4 + 1)
    return first >> (units - 1)  # each pooling halves and rounds down: its last window may cross the edge
