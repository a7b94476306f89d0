"""DARN: a stem that all labels share, branches above it, and features that can be ranked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rectifier.networks.darn import darn
from rectifier.networks.registry import build_network

SIZES = [6, 9, 55]


@pytest.mark.parametrize(("shape", "places"), [((227, 227, 3), 3 * 3), ((71, 71, 3), 1), ((96, 135, 3), 1 * 2)])
def test_it_has_the_size_that_its_layers_add_up_to(shape: tuple[int, int, int], places: int) -> None:
    with torch.device("meta"):
        network = darn(SIZES, shape)
    conv, channels = 0, 3
    for maps, side in ((96, 11), (256, 5), (384, 3), (512, 3), (512, 3)):
        conv += (channels * side * side + 1) * maps + 2 * (maps + 1) * maps
        channels = maps
    stem = (512 * places + 1) * 1024 + 1025 * 1024
    branches = 3 * 1025 * 128 + 129 * sum(SIZES)
    assert sum(p.numel() for p in network.parameters()) == conv + stem + branches


@pytest.mark.parametrize("sizes", [[100], [2] * 40, SIZES], ids=len)
def test_the_features_of_all_branches_join_to_one_vector(sizes: list[int]) -> None:
    network = build_network("darn", sizes, (71, 75, 3), seed=0, shared=24, branch=(12, 8))
    features = network(torch.randn(4, 3, 71, 75)).features
    assert features.shape == (4, len(sizes), 8)
    joined = features.flatten(1)
    assert joined.shape == (4, 8 * len(sizes))
    # A ranking of the joined features reaches every branch and all that is below, and not the classifiers.
    nn.functional.triplet_margin_loss(joined[:1], joined[1:2], joined[2:3], margin=100.0).backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad is None) == name.startswith("head.classifier"), name
    first = network.head.entry.weight.grad.unflatten(0, (len(sizes), 12)).abs().amax((1, 2))
    assert (first > 0).all()


def test_the_stem_reads_the_maps_in_their_places() -> None:
    network = build_network("darn", SIZES, (135, 135, 3), seed=0, shared=24).eval()
    images = torch.randn(1, 3, 135, 135)
    assert not torch.allclose(network(images).logits, network(images.flip(3)).logits)
    units, stem = network.trunk[:34], network.trunk[34:]
    maps = units(images)
    assert maps.shape == (1, 512, 2, 2)
    assert not torch.allclose(stem(maps), stem(maps.flip(3)))


def test_dropout_lies_between_the_fully_connected_layers() -> None:
    network = darn(SIZES, (71, 71, 1), shared=(16, 8), dropout=0.4)
    kinds = [type(layer) for layer in network.trunk[34:]]
    assert kinds == [nn.Flatten, nn.Linear, nn.ReLU, nn.Dropout, nn.Linear, nn.ReLU]
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.4, 0.4]  # the other is the head's


def test_without_a_stem_the_branches_read_the_maps() -> None:
    network = darn(SIZES, (71, 71, 3), shared=0, branch=4)
    assert network.head.entry.in_features == 512
