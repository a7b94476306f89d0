"""Extractors: every engine gives what torch gives, and the choice between them is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rectifier.networks.pretrained import onnx_graph, runtime
from rectifier.networks.pretrained.backbone import Backbone, Preprocessing
from rectifier.networks.pretrained.loading import load_backbone
from rectifier.networks.pretrained.runtime import Extractor, extractor

LAYERS = ("last", "penultimate", "maps")
SIZE = (64, 49)


@cache
def lite(name: str = "efficientnet-lite0", size: tuple[int, int] = SIZE) -> Backbone:
    return load_backbone(name, size=size)


class NoSequence(nn.Module):
    """What cannot be cut: its forward multiplies between the modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 4, stride=4)
        self.last = nn.Conv2d(8, 6, 1)

    def forward(self, images: Tensor) -> Tensor:
        return 2 * self.last(3 * self.conv(images)).mean((2, 3))


class Dense(nn.Module):
    """A layer of maps whose channels are last, as in some transformers, and the mean of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 6)

    def forward(self, maps: Tensor) -> Tensor:
        return self.layer(maps).mean((1, 2))


class ChannelsLast(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.permute(0, 2, 3, 1)


def other(trunk: nn.Module) -> Backbone:
    torch.manual_seed(0)
    prepared = Preprocessing((16, 12), (0.4, 0.5, 0.6), (0.1, 0.2, 0.3), "bilinear")
    return Backbone("other", trunk.eval(), 6, prepared, "", "", "")


def sequence() -> Backbone:
    steps = nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Conv2d(8, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return other(nn.Sequential(*steps))


def pixels(backbone: Backbone, images: int = 3) -> NDArray[np.uint8]:
    shape = (images, *backbone.preprocessing.size, 3)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def plainly(backbone: Backbone, given: NDArray[np.uint8]) -> dict[str, NDArray[np.float32]]:
    """Compute all layers with torch, as the definitions say."""
    mean, std = (
        torch.tensor(value)[:, None, None] for value in (backbone.preprocessing.mean, backbone.preprocessing.std)
    )
    images = (torch.from_numpy(given).permute(0, 3, 1, 2) / 255 - mean) / std
    with torch.no_grad():
        found = {"last": backbone.trunk(images)}
        if backbone.steps:
            below = nn.Sequential(*backbone.steps.modules[: backbone.steps.before_last_layer()])
            found |= {"penultimate": below(images).mean((2, 3)), "maps": backbone.cut("last")[0](images)}
    return {layer: values.numpy() for layer, values in found.items()}


@pytest.mark.parametrize("engine", ["torch", "onnxruntime", "openvino"])
@pytest.mark.parametrize("name", ["efficientnet-lite0", "efficientnet-lite2"])
def test_all_engines_agree_on_all_layers(name: str, engine: str) -> None:
    compute, given = extractor(lite(name), LAYERS, device="cpu", engine=engine), pixels(lite(name))
    expected = plainly(lite(name), given)
    found = compute(given)
    assert list(found) == list(LAYERS)
    for layer, shape in compute.layers.items():
        assert found[layer].shape == (3, *shape)
        assert found[layer].dtype == np.float32
        np.testing.assert_allclose(found[layer], expected[layer], atol=1e-4, rtol=0, err_msg=layer)


def test_bfloat16_is_near() -> None:
    given = pixels(lite())
    expected = plainly(lite(), given)["last"]
    found = extractor(lite(), device="cpu", engine="openvino-bf16")(given)["last"]
    assert np.abs(found - expected).mean() < 0.05 * np.abs(expected).mean()


def test_the_shapes_at_the_published_size() -> None:
    compute = extractor(lite("efficientnet-lite0", (224, 224)), LAYERS, device="cpu", engine="torch")
    assert compute.layers == {"last": (1280,), "penultimate": (320,), "maps": (192, 7, 7)}
    assert (compute.size, compute.interpolation) == ((224, 224), "bicubic")


@pytest.mark.parametrize("engine", ["torch", "onnxruntime", "openvino"])
@pytest.mark.parametrize("form", ["sequence", "no sequence"])
def test_other_networks_run_in_all_engines(form: str, engine: str) -> None:
    backbone = sequence() if form == "sequence" else other(NoSequence())
    layers = LAYERS if form == "sequence" else LAYERS[:1]
    given = pixels(backbone, 5)  # not the batch of the trace
    found = extractor(backbone, layers, device="cpu", engine=engine)(given)
    expected = plainly(backbone, given)
    for layer in layers:
        np.testing.assert_allclose(found[layer], expected[layer], atol=1e-4, rtol=0, err_msg=layer)


def test_a_network_that_is_no_sequence_has_one_layer() -> None:
    with pytest.raises(ValueError, match="a layer of other to be one of last, but got 'maps'"):
        extractor(other(NoSequence()), ("last", "maps"))


def test_the_mean_of_maps_is_over_positions_wherever_the_channels_are() -> None:
    conv = nn.Conv2d(3, 8, 4, stride=4)
    backbone = other(nn.Sequential(conv, ChannelsLast(), Dense()))
    compute, given = extractor(backbone, ("penultimate",), engine="torch", device="cpu"), pixels(backbone)
    expected = plainly(other(nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten())), given)["last"]
    assert compute.layers == {"penultimate": (8,)}
    np.testing.assert_allclose(compute(given)["penultimate"], expected, atol=1e-5)


@pytest.mark.parametrize("images", [0, 1, 8, 19])
def test_images_are_split_into_batches_and_joined(images: int) -> None:
    compute, given = extractor(lite(), device="cpu", engine="onnxruntime"), pixels(lite(), 19)[:images]
    found = compute(given)["last"]
    assert found.shape == (images, 1280)
    for image, features in zip(given, found, strict=True):
        np.testing.assert_allclose(compute(image[None])["last"][0], features, atol=1e-5)


def test_pixels_of_any_layout_in_memory_and_grey_ones() -> None:
    compute, given = extractor(lite(), device="cpu", engine="onnxruntime"), pixels(lite())
    turned = np.ascontiguousarray(given.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(compute(turned)["last"], compute(given)["last"])
    given.setflags(write=False)  # as in a memory map
    for engine in ("torch", "onnxruntime", "openvino"):
        extractor(lite(), device="cpu", engine=engine)(given)
    grey = given[..., :1]
    np.testing.assert_array_equal(compute(grey)["last"], compute(grey.repeat(3, 3))["last"])


def test_other_pixels_are_refused() -> None:
    compute = extractor(lite(), device="cpu", engine="torch")
    with pytest.raises(TypeError, match="pixels to be a uint8 array, but got a float32 array"):
        compute(np.zeros((1, *SIZE, 3), np.float32))
    with pytest.raises(ValueError, match=r"pixels to be of shape \(n, 64, 49, 3\), but got shape \(1, 49, 64, 3\)"):
        compute(np.zeros((1, *SIZE[::-1], 3), np.uint8))


def test_an_extractor_keeps_the_weights_that_it_was_made_from() -> None:
    backbone = load_backbone("efficientnet-lite0", size=SIZE)
    given = pixels(backbone)
    engines = [extractor(backbone, device="cpu", engine=engine) for engine in ("torch", "onnxruntime", "openvino")]
    before = [compute(given)["last"] for compute in engines]
    key = engines[0].key
    with torch.no_grad():
        backbone.trunk.stem.conv.weight.mul_(2)
    for compute, known in zip(engines, before, strict=True):
        np.testing.assert_array_equal(compute(given)["last"], known)
    assert extractor(backbone, device="cpu", engine="torch").key != key


def test_a_trunk_in_training_is_not_changed_and_runs_in_evaluation() -> None:
    backbone = load_backbone("efficientnet-lite0", size=SIZE)
    backbone.trunk.train()
    statistics = backbone.trunk.stem.norm.running_mean.clone()
    found = extractor(backbone, device="cpu", engine="torch")(pixels(backbone))["last"]
    assert backbone.trunk.training
    assert torch.equal(backbone.trunk.stem.norm.running_mean, statistics)
    np.testing.assert_allclose(found, plainly(lite(), pixels(backbone))["last"], atol=1e-5)


def key(backbone: Backbone, layers: tuple[str, ...] = ("last",), engine: str = "torch") -> str:
    return extractor(backbone, layers, device="cpu", engine=engine).key


def test_the_key_tells_features_apart_and_not_engines() -> None:
    plain = key(lite())
    assert plain == key(load_backbone("efficientnet-lite0", size=SIZE)) == key(lite(), engine="onnxruntime")
    prepared = lite().preprocessing
    changes = {
        "size": replace(lite(), preprocessing=replace(prepared, size=(49, 64))),
        "interpolation": replace(lite(), preprocessing=replace(prepared, interpolation="bilinear")),
        "mean": replace(lite(), preprocessing=replace(prepared, mean=(0.5, 0.5, 0.4))),
        "network": lite("efficientnet-lite2"),
    }
    keys = [plain, key(lite(), LAYERS), *map(key, changes.values())]
    assert len(set(keys)) == len(keys)


# The choice of an engine.


def only(names: tuple[str, ...]) -> Callable[[str], object]:
    return lambda name: object() if name in names else None


def choose(monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], backbone: Backbone | None = None) -> Extractor:
    monkeypatch.setattr(runtime, "find_spec", only(names))
    monkeypatch.setattr(onnx_graph, "find_spec", only(names))
    return extractor(backbone or lite(), device="cpu")


def test_the_engine_that_is_installed_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = choose(monkeypatch, ("onnx", "onnxruntime"))
    assert found.engine == "onnxruntime"
    assert found.described.startswith("ONNX Runtime on ")
    assert choose(monkeypatch, ("onnx", "openvino")).engine == "openvino"
    found = choose(monkeypatch, ("onnx",))
    assert found.engine == "torch"
    assert found.described.endswith("core; pip install 'rectifier[pretrained]' brings a faster engine")


def test_onnx_runtime_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(monkeypatch, ("onnx", "onnxruntime", "openvino")).engine == "onnxruntime"


def test_a_network_without_an_onnx_model_runs_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = choose(monkeypatch, ("onnx", "onnxruntime"), sequence())
    assert found.engine == "torch"
    assert found.described.endswith("; with the package onnxscript, ONNX Runtime could run this network faster")

    def fail(*_: object) -> bytes:
        raise RuntimeError("no such operator\nand a long story")

    monkeypatch.setattr(runtime, "onnx_model", fail)
    found = choose(monkeypatch, ("onnx", "onnxscript", "onnxruntime"), sequence())
    assert found.described.endswith("; it cannot become an ONNX model (no such operator)")
    found(pixels(sequence()))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setitem(sys.modules, engine, None)
    extra = {"onnxruntime": "pretrained", "openvino": "openvino"}[engine]
    with pytest.raises(ImportError, match=rf"engine='{engine}' needs {engine}, .* 'rectifier\[{extra}\]'"):
        extractor(lite(), device="cpu", engine=engine)


def test_what_writes_an_onnx_model_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, needed in (
        ((), r"onnx, .* 'rectifier\[pretrained\]'"),
        (("onnx",), "onnxscript, .* or engine='torch'"),
    ):
        monkeypatch.setattr(runtime, "find_spec", only(installed))
        monkeypatch.setattr(onnx_graph, "find_spec", only(installed))
        with pytest.raises(ImportError, match=f"^engine='onnxruntime'.* needs {needed}"):
            extractor(sequence(), device="cpu", engine="onnxruntime")


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"engine to be one of .* but got 'onnx'"):
        extractor(lite(), engine="onnx")
    with pytest.raises(ValueError, match="engine to be torch on cuda; the others run on a CPU, but got 'openvino'"):
        extractor(lite(), device="cuda", engine="openvino")
    with pytest.raises(
        ValueError, match="a layer of efficientnet-lite0 to be one of last, penultimate, maps, but got 'l"
    ):
        extractor(lite(), ("lst",))
    with pytest.raises(TypeError, match="layers to be a list of names, but got 'last'"):
        extractor(lite(), "last")


def test_the_key_tells_the_order_of_layers_and_the_activation_of_a_network() -> None:
    one, other_order = (extractor(lite(), order).key for order in (LAYERS[:2], LAYERS[1::-1]))
    assert one != other_order
    made = sequence()
    changed = replace(made, trunk=nn.Sequential(*[nn.Tanh() if isinstance(m, nn.ReLU) else m for m in made.trunk]))
    assert extractor(made, engine="torch").key != extractor(changed, engine="torch").key
