"""DDAN, DARN and the units that they share with MTCT; FashionNet without landmarks is VGG-16."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from rectifier.networks.darn import darn
from rectifier.networks.ddan import ddan
from rectifier.networks.fashionnet import fashionnet
from rectifier.networks.mtct import maps_side, nin_units
from rectifier.networks.registry import build_network

SIZES = [6, 9, 55]


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


def test_ddan_has_the_size_that_its_layers_add_up_to() -> None:
    with torch.device("meta"):
        network = ddan(SIZES, (227, 227, 3))
    conv, channels = 0, 3
    for maps, side in ((96, 11), (256, 5), (384, 3), (1024, 3)):
        conv += (channels * side * side + 1) * maps + 2 * (maps + 1) * maps
        channels = maps
    branches = 3 * (1025 * 512 + 513 * 128) + 129 * sum(SIZES)
    assert sum(p.numel() for p in network.parameters()) == conv + branches


def test_the_features_of_ddan_are_the_average_over_the_last_maps() -> None:
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


def test_a_label_of_ddan_learns_its_branch_and_what_is_shared() -> None:
    network = build_network("ddan", SIZES, (43, 39, 3), seed=0, branch=(12, 8))
    logits, features = network(torch.randn(4, 3, 43, 39))
    assert features.shape == (4, 3, 8)
    logits[:, 6:15].square().sum().backward()  # the second label's
    entry = network.head.entry.weight.grad.unflatten(0, (3, 12)).abs().amax((1, 2))
    assert (entry > 0).tolist() == [False, True, False]
    assert all(parameter.grad.abs().max() > 0 for parameter in network.trunk.parameters())


@pytest.mark.parametrize(("shape", "places"), [((227, 227, 3), 3 * 3), ((71, 71, 3), 1), ((96, 135, 3), 1 * 2)])
def test_darn_has_the_size_that_its_layers_add_up_to(shape: tuple[int, int, int], places: int) -> None:
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


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_it_has_the_known_size_of_vgg_16() -> None:
    with torch.device("meta"):
        network = fashionnet([1000], (224, 224, 3))
    assert parameters(network) == 138_357_544
    assert parameters(network.trunk.features) == 14_714_688


def test_convolutions_are_named_as_torchvisions() -> None:
    with torch.device("meta"):
        trunk = fashionnet([10], (64, 64, 3), shared=8).trunk
    numbers = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28]
    named = {f"features.{number}.{kind}" for number in numbers for kind in ("weight", "bias")}
    assert {name for name in trunk.state_dict() if name.startswith("features")} == named
    assert trunk.features[28].weight.shape == (512, 512, 3, 3)


def test_weights_of_vgg_16_fit_and_leave_its_classifier_over() -> None:
    with torch.device("meta"):
        weights = {f"{name}": value for name, value in fashionnet([10], (64, 64, 3)).trunk.state_dict().items()}
        weights = {name: value for name, value in weights.items() if name.startswith("features")}
        weights["classifier.0.weight"] = torch.empty(4096, 25088)
        found = fashionnet([10], (64, 64, 3), shared=8).trunk.load_state_dict(weights, strict=False)
    assert found.unexpected_keys == ["classifier.0.weight"]
    assert found.missing_keys == ["connected.0.weight", "connected.0.bias"]


def functional_vgg(tensors: list[Tensor], images: Tensor, fully_connected: int) -> Tensor:
    """Simonyan and Zisserman read again, column D: tensors in the order in which they were made, no modules."""
    given, maps = iter(tensors), images
    for convolutions in (2, 2, 3, 3, 3):
        for _ in range(convolutions):
            maps = F.conv2d(maps, next(given), next(given), padding=1).clamp(min=0)
        maps = maps.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5))
    features = maps.flatten(1)
    for _ in range(fully_connected):
        features = (features @ next(given).T + next(given)).clamp(min=0)
    logits = features @ next(given).T + next(given)
    assert next(given, None) is None
    return logits


def test_it_equals_a_functional_version() -> None:
    network = build_network("fashionnet", [5, 7], (32, 64, 3), seed=0, shared=(24, 16)).double().eval()
    images = torch.randn(2, 3, 32, 64, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
        expected = functional_vgg(list(network.state_dict().values()), images, fully_connected=2)
        torch.testing.assert_close(network(images).logits, expected)


def test_dropout_of_vgg_16_is_the_default() -> None:
    with torch.device("meta"):
        drops = [m.p for m in fashionnet([2], (32, 32, 3)).modules() if isinstance(m, nn.Dropout)]
        none = [m.p for m in fashionnet([2], (32, 32, 3), dropout=0).modules() if isinstance(m, nn.Dropout)]
    assert drops == [0.5, 0.5]  # after the first layer, and after the second, where the head begins
    assert none == [0, 0]


def test_labels_may_have_branches() -> None:
    network = fashionnet([5, 7], (32, 32, 3), shared=16, branch=(8, 4))
    assert network(torch.randn(2, 3, 32, 32)).features.shape == (2, 2, 4)
