"""Units of a network in network (Lin et al. 2014), which the networks for clothing are made of."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn


def nin_units(channels: int, units: Sequence[tuple[int, int]]) -> list[nn.Module]:
    """Return units of a convolution and two 1x1 convolutions, ReLU after each, 3x3 max pooling with stride 2 between.

    The first convolution steps over a large image by 4; the others keep the size of their maps.

    Args:
        channels: channels of the images.
        units: of each unit its maps, and the side of its filters.

    >>> import torch
    >>> nn.Sequential(*nin_units(3, [(96, 11), (256, 5)]))(torch.randn(1, 3, 51, 59)).shape
    torch.Size([1, 256, 5, 6])
    """
    layers: list[nn.Module] = []
    for unit, (maps, side) in enumerate(units):
        if unit == 0:
            layers += [nn.Conv2d(channels, maps, side, stride=4), nn.ReLU()]
        else:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True)]
            layers += [nn.Conv2d(channels, maps, side, padding=side // 2), nn.ReLU()]
        layers += [nn.Conv2d(maps, maps, 1), nn.ReLU(), nn.Conv2d(maps, maps, 1), nn.ReLU()]
        channels = maps
    return layers


def maps_side(side: int, units: int) -> int:
    """Return the side of the maps that so many units make of an image, 0 where it is too small for them.

    >>> maps_side(227, 1), maps_side(227, 5), maps_side(71, 5), maps_side(70, 5)
    (55, 3, 1, 0)
    """
    first = max(0, (side - 11) // 4 + 1)
    return first >> (units - 1)  # each pooling halves and rounds down, as its last window may reach over the edge
