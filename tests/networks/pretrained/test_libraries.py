"""Networks of other libraries, by stand-ins: neither library need be installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from helpers.scripts import run_with_torchvision
from rectifier.networks.pretrained import libraries as module
from rectifier.networks.pretrained.backbone import Preprocessing
from rectifier.networks.pretrained.loading import load_backbone
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


# What the libraries say about their weights.
TIMM = {"input_size": (3, 24, 32), "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), "interpolation": "bicubic"}
TIMM |= {"license": "mit", "fixed_input_size": True}
PREPARED = SimpleNamespace(crop_size=[32], mean=[0.1, 0.2, 0.3], std=[0.4, 0.5, 0.6])
PREPARED.interpolation = SimpleNamespace(value="bilinear")
WEIGHTS = SimpleNamespace(transforms=lambda: PREPARED)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Put stand-ins in place; returns what they were asked for."""
    seen: list[dict] = []

    def create_model(name: str, **options: object) -> nn.Module:
        seen.append({"name": name, **options})
        if "unreachable" in name:
            raise ConnectionError("Name or service not known\nand much more")
        toy = Toy(options["in_chans"], 1000)
        toy.classifier[3] = nn.Identity()
        return toy

    def get_model(name: str, **options: object) -> nn.Module:
        seen.append({"name": name, **options})
        if name == "unreachable" and options["weights"]:
            raise OSError("no route to host")
        if name == "squeezed":
            return nn.Sequential(nn.Conv2d(3, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        if name == "maps":
            return nn.Sequential(nn.Conv2d(3, 10, 1), nn.Linear(8, 4))
        return Toy(3, 1000)

    timm, torchvision = ModuleType("timm"), ModuleType("torchvision")
    timm.create_model = create_model
    timm.list_models = lambda: ["toynet", "othernet", "unreachable", "untrained"]
    timm.is_model_pretrained = lambda name: name != "untrained"
    timm.get_pretrained_cfg = lambda name: None if name == "untrained" else SimpleNamespace(to_dict=lambda: TIMM)
    torchvision.models = SimpleNamespace(
        get_model=get_model,
        list_models=lambda module: ["toynet", "squeezed", "maps", "unreachable", "untrained"],
        get_model_weights=lambda name: SimpleNamespace(**({} if name == "untrained" else {"DEFAULT": WEIGHTS})),
    )
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


# As backbones.


def test_a_backbone_of_timm_follows_its_weights(asked: list[dict]) -> None:
    made = load_backbone("timm:toynet.tag")
    assert made.preprocessing == Preprocessing((24, 32), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bicubic")
    assert (made.width, made.licence, made.weights) == (20, "mit", "weights of timm")
    assert load_backbone("timm:toynet", size=16).preprocessing.size == (16, 16)
    common = {"pretrained": True, "num_classes": 0, "in_chans": 3}
    assert asked == [{"name": "toynet.tag", **common}, {"name": "toynet", **common, "img_size": (16, 16)}]


def test_a_backbone_of_torchvision_follows_its_weights(asked: list[dict]) -> None:
    made = load_backbone("torchvision:toynet")
    assert made.preprocessing == Preprocessing((32, 32), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear")
    assert (made.width, made.weights) == (20, "weights of torchvision")
    assert asked == [{"name": "toynet", "weights": "DEFAULT"}]


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_with_a_file_nothing_is_fetched(asked: list[dict], library: str, tmp_path: Path) -> None:
    known = Toy(3, 1000)
    torch.save(known.state_dict(), tmp_path / "weights.pt")
    made = load_backbone(
        f"{library}:unreachable" if library == "torchvision" else "timm:toynet", tmp_path / "weights.pt"
    )
    assert torch.equal(made.trunk.conv.weight, known.conv.weight)
    assert made.fitted == "8 of 8 tensors fitted, 2,624 weights; not used: classifier.3.weight, classifier.3.bias"
    assert not any(one.get("pretrained") or one.get("weights") for one in asked)


@pytest.mark.parametrize(("library", "cache"), [("timm", "hub"), ("torchvision", "checkpoints")])
def test_a_hub_that_cannot_be_reached(
    asked: list[dict], library: str, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    wanted = (
        rf"^Cannot fetch the weights of {library}:unreachable: .*[^.]\. Connect .*{cache}\), or pass --weights FILE\.$"
    )
    with pytest.raises(OSError, match=wanted) as found:
        load_backbone(f"{library}:unreachable")
    assert str(tmp_path) in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_network_without_published_weights(asked: list[dict], library: str) -> None:
    with pytest.raises(ValueError, match=f"{library}:untrained to be a network with published weights, or --weights"):
        load_backbone(f"{library}:untrained")


def test_an_image_size_that_a_backbone_cannot_take(asked: list[dict]) -> None:
    with pytest.raises(ValueError, match="torchvision:toynet does not accept images of 4 x 4 x 3"):
        load_backbone("torchvision:toynet", size=4)


# The libraries themselves.

REAL = """
import sys
import torch
from rectifier.networks.pretrained import extractor, load_backbone
import numpy as np, timm, torchvision
torch.set_num_threads(1)
for name, trunk in {
    "timm:test_resnet": timm.create_model("test_resnet"),
    "timm:test_vit": timm.create_model("test_vit"),
    "timm:test_efficientnet": timm.create_model("test_efficientnet"),
    "torchvision:mobilenet_v3_small": torchvision.models.mobilenet_v3_small(),
}.items():
    torch.save(trunk.state_dict(), "weights.pt")
    made = load_backbone(name, "weights.pt", size=None if "vit" in name else 64)
    below, above = made.cut("last")
    images = torch.randn(2, 3, *made.preprocessing.size)
    with torch.no_grad():
        torch.testing.assert_close(above(below(images)), made.trunk(images))
    pixels = np.zeros((3, *made.preprocessing.size, 3), np.uint8)
    shapes = extractor(made, device="cpu", engine="torch")(pixels)["last"].shape
    print(name, made.preprocessing.size, shapes == (3, made.width), "no steps" if made.steps is None else "steps")
"""


def test_real_networks_of_the_libraries(tmp_path: Path) -> None:
    printed = run_with_torchvision(REAL, tmp_path).splitlines()
    assert printed == [
        "timm:test_resnet (64, 64) True steps",
        "timm:test_vit (160, 160) True no steps",
        "timm:test_efficientnet (64, 64) True steps",
        "torchvision:mobilenet_v3_small (64, 64) True steps",
    ]
