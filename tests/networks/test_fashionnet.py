"""FashionNet without landmarks is VGG-16."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from rectifier.networks.clothing import fashionnet
from rectifier.networks.registry import build_network


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
