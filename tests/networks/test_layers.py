"""The units of a network in network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rectifier.networks.layers import maps_side, nin_units


@pytest.mark.parametrize("units", [1, 2, 4, 5])
def test_the_side_of_the_maps_is_what_the_units_give(units: int) -> None:
    with torch.device("meta"):
        layers = nn.Sequential(*nin_units(1, [(4, 11)] + [(4, 3)] * (units - 1)))
        for side in range(11, 240):
            expected = maps_side(side, units)
            if expected:
                assert layers(torch.empty(1, 1, side, 239)).shape == (1, 4, expected, maps_side(239, units))
            else:
                with pytest.raises(RuntimeError, match="too small"):
                    layers(torch.empty(1, 1, side, 239))


def test_every_convolution_is_followed_by_relu_and_every_unit_but_the_first_follows_a_pooling() -> None:
    layers = nin_units(3, [(8, 11), (16, 5), (32, 3)])
    unit = [nn.Conv2d, nn.ReLU] * 3
    assert [type(layer) for layer in layers] == [*unit, nn.MaxPool2d, *unit, nn.MaxPool2d, *unit]
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    assert [layer.kernel_size[0] for layer in convolutions] == [11, 1, 1, 5, 1, 1, 3, 1, 1]
    assert [layer.stride[0] for layer in convolutions] == [4] + [1] * 8
