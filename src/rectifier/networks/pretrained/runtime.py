"""extractor: a backbone as a fast function from raw pixels to features, with the fastest engine of this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check
from rectifier._base.imports import with_extra
from rectifier.networks.pretrained.backbone import Backbone, digest
from rectifier.networks.pretrained.engines import (
    Engine,
    OnnxRuntime,
    OpenVino,
    Pixels,
    Runner,
    TorchEngine,
    images_per_run,
)
from rectifier.networks.pretrained.onnx_graph import can_write, onnx_model
from rectifier.networks.pretrained.taps import Taps

ENGINES = ("auto", "onnxruntime", "openvino", "openvino-bf16", "torch")
"""What can run a backbone on a CPU. On a GPU it is torch."""

CPU = torch.device("cpu")

_VERSION = 2  # of what features mean; a higher one makes caches of features old


class Extractor:
    """Map raw pixels, uint8 ``(n, H, W, 3)``, to the layers of a backbone: float32 ``(n, *shape)`` by name.

    ``layers`` holds the shape of each layer for one image, ``size`` and ``interpolation`` how to resize images.
    ``key`` identifies the features: weights, network, layers, preparation, and whether in bfloat16, but not the engine.
    ``described`` says what runs and why.
    """

    def __init__(self, backbone: Backbone, taps: Taps, name: str, engine: Engine, described: str) -> None:
        self.key = _key(backbone, taps, "" if engine.exact else f"{name}, bf16")
        self.layers: dict[str, tuple[int, ...]] = dict(taps.shapes)
        self.size = backbone.preprocessing.size
        self.interpolation = backbone.preprocessing.interpolation
        self.engine, self.described = name, described
        self._run = Runner(engine)

    def __call__(self, pixels: Pixels) -> dict[str, NDArray[np.float32]]:
        given = self._checked(pixels)
        found = {layer: np.empty((len(given), *shape), np.float32) for layer, shape in self.layers.items()}
        for several, layers in self._run(given):
            for layer, values in zip(self.layers, layers, strict=True):
                found[layer][several] = values
        return found

    def _checked(self, pixels: Pixels) -> Pixels:
        if pixels.dtype != np.uint8:
            raise TypeError(check.sentence("pixels", "a uint8 array", f"a {pixels.dtype} array"))
        if pixels.ndim != 4 or pixels.shape[1:3] != self.size or pixels.shape[3] not in (1, 3):
            height, width = self.size
            check.fail("pixels", f"of shape (n, {height}, {width}, 3)", f"shape {pixels.shape}")
        return pixels if pixels.shape[3] == 3 else pixels.repeat(3, axis=3)  # grey


def extractor(
    backbone: Backbone, layers: Sequence[str] = ("last",), *, device: str = "auto", engine: str = "auto"
) -> Extractor:
    """Prepare a backbone to compute features of many images. It keeps the weights that the backbone has now.

    Args:
        backbone: what ``load_backbone`` returns.
        layers: ``"last"`` (the features), ``"penultimate"`` (the input of the last layer, averaged over positions),
            ``"maps"`` (the maps at ``cut("last")``).
        device: ``"auto"`` (a GPU where there is one), ``"cpu"`` or ``"cuda"``.
        engine: one of ``ENGINES``. ``"auto"`` takes torch in bfloat16 on a GPU. On a CPU it takes ONNX Runtime,
            else OpenVINO, else torch: the first that is installed. All agree to 1e-4, except ``"openvino-bf16"``, which
            is faster on some CPUs and right to two digits only.

    >>> from rectifier.networks.pretrained import load_backbone
    >>> compute = extractor(load_backbone("efficientnet-lite0", size=64), ("last", "maps"), device="cpu")
    >>> found = compute(np.zeros((3, 64, 64, 3), np.uint8))
    >>> {layer: values.shape for layer, values in found.items()}
    {'last': (3, 1280), 'maps': (3, 192, 2, 2)}
    """
    check.raise_all([check.choice("engine", engine, ENGINES)])
    taps = Taps(backbone, layers).eval()
    place = _device(device, engine)
    if engine == "auto" and place.type == "cpu":
        name, made, reason = _on_cpu(backbone, taps)
        return Extractor(backbone, taps, name, made, made.described + reason)
    name = "torch" if engine == "auto" else engine
    made = _build(name, backbone, taps, place)
    return Extractor(backbone, taps, name, made, made.described)


def _device(device: str, engine: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and engine in ("auto", "torch") else "cpu")
    place = torch.device(device)
    if place.type != "cpu" and engine not in ("auto", "torch"):
        check.fail("engine", f"torch on {device}; the others run on a CPU", repr(engine))
    return place


def _build(name: str, backbone: Backbone, taps: Taps, device: torch.device = CPU) -> Engine:
    from rectifier.data.store import available_cores

    if name == "torch":
        return TorchEngine(taps, device)
    _check_can_write(name, backbone)
    model = onnx_model(backbone.trunk, taps, backbone.preprocessing.size)
    batch, cores = images_per_run(backbone.preprocessing.size), available_cores()
    if name == "onnxruntime":
        return OnnxRuntime(model, batch, cores)
    return OpenVino(model, batch, cores, "bf16" if name == "openvino-bf16" else "f32")


def _check_can_write(engine: str, backbone: Backbone) -> None:
    if find_spec("onnx") is None:
        raise with_extra(ModuleNotFoundError(name="onnx"), f"engine={engine!r}")
    if not can_write(backbone.trunk):
        remedy = "pip install onnxscript, or engine='torch'"
        raise ImportError(f"engine={engine!r} with {backbone.name} needs onnxscript, which is not installed: {remedy}")


def _on_cpu(backbone: Backbone, taps: Taps) -> tuple[str, Engine, str]:
    """Return the engine for a CPU: its name, the engine, and why it was taken.

    ONNX Runtime comes first, also where OpenVINO is about as fast: OpenVINO was seen to wait for ever beside a torch
    whose threads had worked before.
    """
    name = next((name for name in ("onnxruntime", "openvino") if find_spec(name)), None)
    if name is None:
        return _with_torch(backbone, taps, "pip install 'rectifier[pretrained]' brings a faster engine")
    if not can_write(backbone.trunk):
        return _with_torch(backbone, taps, "with the package onnxscript, ONNX Runtime could run this network faster")
    try:
        return name, _build(name, backbone, taps), ""
    except Exception as error:  # whatever the exporter or a runtime raises on a network that it does not know
        reason = str(error).strip().partition("\n")[0][:200]
        return _with_torch(backbone, taps, f"it cannot become an ONNX model ({reason})")


def _with_torch(backbone: Backbone, taps: Taps, reason: str) -> tuple[str, Engine, str]:
    return "torch", _build("torch", backbone, taps), f"; {reason}"


def _key(backbone: Backbone, taps: Taps, rounded: str) -> str:
    facts = {
        **{"version": _VERSION, "name": backbone.name},
        **{"network": str(backbone.trunk), "weights": digest(backbone.trunk)},
        **{"layers": list(taps.shapes.items()), "preprocessing": asdict(backbone.preprocessing)},
        **({"precision": rounded} if rounded else {}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
