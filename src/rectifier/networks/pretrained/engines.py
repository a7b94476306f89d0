"""What runs a backbone: torch, ONNX Runtime or OpenVINO. Each maps raw pixels ``(N, H, W, 3)`` to a list of layers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check
from rectifier._base.imports import with_extra
from rectifier.networks.pretrained.onnx_graph import PIXELS
from rectifier.networks.pretrained.taps import Taps

Pixels = NDArray[np.uint8]
Layers = list[NDArray[np.float32]]


class Engine(Protocol):
    """A function from pixels to layers; images of a run, runs at once, whether it is exact (float32), and words."""

    batch: int
    workers: int
    exact: bool
    described: str

    def __call__(self, pixels: Pixels) -> Layers: ...


class Runner:
    """Run an engine on any number of images: a few in each run, and several runs at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pool = ThreadPoolExecutor(engine.workers) if engine.workers > 1 else None

    def __call__(self, pixels: Pixels) -> Iterator[tuple[slice, Layers]]:
        """Yield the layers of some images after the other, with their places."""
        several = [slice(start, start + self.engine.batch) for start in range(0, len(pixels), self.engine.batch)]
        batches = (np.ascontiguousarray(pixels[some]) for some in several)
        return zip(several, (self.pool.map if self.pool else map)(self.engine, batches), strict=True)


def images_per_run(size: tuple[int, int]) -> int:
    """Return how many images a core takes at once: one of the usual size, because its activations fill the cache.

    >>> images_per_run((224, 224)), images_per_run((64, 64)), images_per_run((600, 600))
    (1, 12, 1)
    """
    return min(64, max(1, 50_000 // (size[0] * size[1])))


class TorchEngine:
    """Run with torch: channels last, in bfloat16 where the device is not a CPU."""

    def __init__(self, taps: Taps, device: torch.device) -> None:
        self.device = device
        self.taps = deepcopy(taps).eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        on_cpu = device.type == "cpu"
        self.batch, self.workers, self.exact = (16 if on_cpu else 256), 1, on_cpu
        where = _cores(torch.get_num_threads()) if on_cpu else f"{_device_name(device)} in bfloat16"
        self.described = f"torch on {where}"

    def __call__(self, pixels: Pixels) -> Layers:
        owned = pixels if pixels.flags.writeable else pixels.copy()  # torch warns of memory that it may not write
        given = torch.from_numpy(owned).to(self.device)
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type != "cpu"),
        ):
            return [layer.float().cpu().numpy() for layer in self.taps(given)]


class OnnxRuntime:
    """Run an ONNX model with ONNX Runtime. Each run has one core, so that no core waits for another within a layer."""

    def __init__(self, model: bytes, batch: int, cores: int) -> None:
        runtime = _import("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors alone
        self.session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.batch, self.workers, self.exact = batch, cores, True
        self.described = f"ONNX Runtime on {_cores(cores)}"

    def __call__(self, pixels: Pixels) -> Layers:
        layers: Layers = self.session.run(None, {PIXELS: pixels})
        return layers


class OpenVino:
    """Run an ONNX model with OpenVINO, one core a run, in float32, or in bfloat16 where asked to."""

    def __init__(self, model: bytes, batch: int, cores: int, precision: str = "f32") -> None:
        core = _import("openvino").Core()
        options = {"INFERENCE_NUM_THREADS": cores, "NUM_STREAMS": cores, "INFERENCE_PRECISION_HINT": precision}
        self.compiled: Any = core.compile_model(core.read_model(model), "CPU", options)
        self.of_thread = threading.local()
        self.batch, self.workers, self.exact = batch, cores, precision == "f32"
        self.described = f"OpenVINO on {_cores(cores)}" + (" in bfloat16" if precision == "bf16" else "")

    def __call__(self, pixels: Pixels) -> Layers:
        if not hasattr(self.of_thread, "request"):
            self.of_thread.request = self.compiled.create_infer_request()
        found = self.of_thread.request.infer({0: pixels})
        return [np.array(found[number]) for number in range(len(self.compiled.outputs))]  # copies: it reuses its own


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise with_extra(error, f"engine={module!r}") from None


def _cores(number: int) -> str:
    return check.amount(number, "CPU core")


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
