"""Networks of other libraries, by stand-ins: neither library need be installed."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from rectifier.networks.pretrained import libraries as module
from rectifier.networks.registry import build_network


class Toy(nn.Module):
    """Stride 8, so that small images are too small; dropout and batch normalisation as in real ones."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 12, 8, stride=8)
        self.norm = nn.BatchNorm2d(12)
        self.classifier = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.norm(self.conv(images)).mean((2, 3)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Put stand-ins in place; returns what they were asked for."""
    seen: list[dict] = []

    def create_model(name: str, **options: object) -> nn.Module:
        seen.append({"name": name, **options})
        toy = Toy(options["in_chans"], 1000)
        toy.classifier[3] = nn.Identity()
        return toy

    def get_model(name: str, **options: object) -> nn.Module:
        seen.append({"name": name, **options})
        if name == "squeezed":
            return nn.Sequential(nn.Conv2d(3, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        if name == "maps":
            return nn.Sequential(nn.Conv2d(3, 10, 1), nn.Linear(8, 4))
        return Toy(3, 1000)

    timm, torchvision = ModuleType("timm"), ModuleType("torchvision")
    timm.create_model = create_model
    timm.list_models = lambda: ["toynet", "othernet"]
    torchvision.models = SimpleNamespace(get_model=get_model, list_models=lambda module: ["toynet", "squeezed", "maps"])
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    return seen


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_foreign_trunk_gets_our_head(asked: list[dict], library: str, channels: int) -> None:
    network = build_network(f"{library}:toynet", [6, 9], (16, 24, channels), branch=5, seed=0)
    assert network.trunk.training
    logits, features = network(torch.randn(4, channels, 16, 24))
    assert logits.shape == (4, 15)
    assert features.shape == (4, 2, 5)
    assert network.head.entry.in_features == 20
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert 1000 not in {parameter.shape[0] for parameter in network.parameters()}


def test_nothing_is_downloaded_unless_asked_for(asked: list[dict]) -> None:
    build_network("timm:toynet", [3], (16, 16, 1))
    build_network("torchvision:toynet", [3], (16, 16, 3))
    build_network("timm:toynet.some_weights", [3], (16, 16, 3), pretrained=True, drop_rate=0.1)
    build_network("torchvision:toynet", [3], (16, 16, 3), pretrained=True)
    assert asked == [
        {"name": "toynet", "pretrained": False, "num_classes": 0, "in_chans": 1},
        {"name": "toynet", "weights": None},
        {"name": "toynet.some_weights", "pretrained": True, "num_classes": 0, "in_chans": 3, "drop_rate": 0.1},
        {"name": "toynet", "weights": "DEFAULT"},
    ]


def test_looking_for_the_number_of_features_leaves_no_trace(asked: list[dict]) -> None:
    network = build_network("timm:toynet", [3], (16, 16, 3))
    assert int(network.trunk.norm.num_batches_tracked) == 0


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_an_unknown_model_is_answered_with_the_nearest(asked: list[dict], library: str) -> None:
    with pytest.raises(ValueError, match=f"No network 'toynte' in {library}. Did you mean 'toynet'"):
        build_network(f"{library}:toynte", [3], (16, 16, 3))


def test_an_image_that_the_trunk_cannot_take(asked: list[dict]) -> None:
    with pytest.raises(ValueError, match="timm:toynet does not accept images of 4 x 16 x 3"):
        build_network("timm:toynet", [3], (4, 16, 3))


def test_a_trunk_without_linear_classifier(asked: list[dict]) -> None:
    with pytest.raises(ValueError, match="torchvision:squeezed to be a network that ends in a linear classifier"):
        build_network("torchvision:squeezed", [3], (8, 8, 3))


def test_a_trunk_that_gives_maps(asked: list[dict]) -> None:
    with pytest.raises(
        ValueError, match=r"features of torchvision:maps to be of shape \(N, D\), but got shape \(1, 10"
    ):
        build_network("torchvision:maps", [3], (8, 8, 3))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError(name="timm"), r"^A network of timm needs timm, .*: pip install 'rectifier\[timm\]'$"),
        (
            RuntimeError("operator does not exist"),
            "Expected timm to be built for this torch, .* operator does not exist",
        ),
    ],
)
def test_a_library_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    monkeypatch.setattr(module, "import_module", Mock(side_effect=error))
    with pytest.raises(ImportError, match=message):
        build_network("timm:resnet18", [3], (32, 32, 3))


def test_our_networks_need_neither_library() -> None:
    loaded = {name for name in ("timm", "torchvision") if name in sys.modules}
    build_network("mlp", [3], (8, 8, 1))
    assert loaded == {name for name in ("timm", "torchvision") if name in sys.modules}
