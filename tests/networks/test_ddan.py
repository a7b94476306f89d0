"""DDAN: what all labels share, and what each has alone."""

from __future__ import annotations

import torch

from rectifier.networks.ddan import ddan
from rectifier.networks.registry import build_network

SIZES = [6, 9, 55]


def test_it_has_the_size_that_its_layers_add_up_to() -> None:
    with torch.device("meta"):
        network = ddan(SIZES, (227, 227, 3))
    conv, channels = 0, 3
    for maps, side in ((96, 11), (256, 5), (384, 3), (1024, 3)):
        conv += (channels * side * side + 1) * maps + 2 * (maps + 1) * maps
        channels = maps
    branches = 3 * (1025 * 512 + 513 * 128) + 129 * sum(SIZES)
    assert sum(p.numel() for p in network.parameters()) == conv + branches


def test_the_features_are_the_average_over_the_last_maps() -> None:
    network = build_network("ddan", SIZES, (55, 47, 3), seed=0, branch=0).eval()
    images = torch.randn(2, 3, 55, 47)
    maps = network.trunk[:-2](images)
    assert maps.shape == (2, 1024, 1, 1)
    torch.testing.assert_close(network(images).features, maps.flatten(1))
    larger = build_network("ddan", SIZES, (80, 72, 3), seed=0, branch=0).eval()
    images = torch.randn(2, 3, 80, 72)
    maps = larger.trunk[:-2](images)
    assert maps.shape == (2, 1024, 2, 2)
    torch.testing.assert_close(larger(images).features, maps.mean((2, 3)))


def test_a_label_learns_its_branch_and_what_is_shared() -> None:
    network = build_network("ddan", SIZES, (43, 39, 3), seed=0, branch=(12, 8))
    logits, features = network(torch.randn(4, 3, 43, 39))
    assert features.shape == (4, 3, 8)
    logits[:, 6:15].square().sum().backward()  # the second label's
    entry = network.head.entry.weight.grad.unflatten(0, (3, 12)).abs().amax((1, 2))
    assert (entry > 0).tolist() == [False, True, False]
    assert all(parameter.grad.abs().max() > 0 for parameter in network.trunk.parameters())
