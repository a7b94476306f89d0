"""Images per second into a small convolution, compared with plain PyTorch; the time to build a store; memory.

    python benchmarks/loader.py [--device cuda] [--data-root DIR] [--rounds 3] [--json FILE]

Plain PyTorch is a Dataset that decodes with pillow, crops and flips sample by sample, and a DataLoader with one worker
per core. The data are CIFAR-100 and CelebA from --data-root, or generated images of their sizes without it.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import measure
import numpy as np
import torch
from PIL import Image
from plain import plain_loader
from rich.console import Console
from rich.table import Table

from rectifier import LabelSpace
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.loader import Loader
from rectifier.data.normalise import statistics
from rectifier.data.sources import open_data
from rectifier.data.store import build_store
from rectifier.training import quiet

BATCH = 256


def cifar_data(root: Path | None) -> ImageData:
    data = open_data("cifar100", root=root) if root else open_data("shapes:samples=49000,size=32,labels=shape,ratio=1")
    return data.part("train")


def celeba_data(root: Path | None, folder: Path) -> ImageData:
    """Return CelebA's training split, or drawn images of that size in JPEG files."""
    if root:
        return open_data("celeba", root=root).part("train")
    drawn = open_data("shapes:samples=20000,size=78x64").part("train")
    folder.mkdir()
    assert isinstance(drawn.images, ImageArray)
    for number, pixels in enumerate(drawn.images.pixels):
        Image.fromarray(pixels).save(folder / f"{number:06d}.jpg", quality=95)
    files = ImageFiles(folder, tuple(f"{n:06d}.jpg" for n in range(len(drawn))))
    return ImageData("drawn", files, drawn.targets, drawn.space, drawn.split, files.paths)


def consumer(device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a strided convolution, which reads every pixel and costs little."""
    layer = torch.nn.Conv2d(3, 16, 4, stride=4).to(device, memory_format=torch.channels_last)
    return lambda images: layer(images).mean()


def images_per_second(loader: Iterable[Any], device: str, most: int) -> float:
    consume = consumer(device)
    time.sleep(0.5)  # the processes of the previous candidate end
    seen, total = 0, torch.zeros((), device=device)
    start = time.perf_counter()
    with torch.inference_mode():
        for batch in loader:
            images = batch[0].to(device, non_blocking=True)
            total += consume(images)
            seen += len(images)
            if seen >= most:
                break
    float(total)  # waits for the device
    return seen / (time.perf_counter() - start)


def side_by_side(candidates: dict[str, tuple[Iterable[Any], int]], device: str, rounds: int) -> dict[str, float]:
    """Return the median images per second of each. They take turns in changing order."""
    order = random.Random(0)
    for loader, most in candidates.values():
        images_per_second(loader, device, most // 4)
    rates: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, (loader, most) in order.sample(list(candidates.items()), len(candidates)):
            rates[name].append(images_per_second(loader, device, most))
    return {name: median(found) for name, found in rates.items()}


def compare(raw: ImageData, decoded: ImageData, device: str, rounds: int) -> dict[str, float]:
    augment, cuda = CropAndFlip(4), device != "cpu"
    normalisation = statistics(decoded)
    options: dict[str, Any] = {"shuffle": True, "augment": augment, "device": device, "normalise": normalisation}
    some, many = len(raw), (10 if cuda else 2) * len(raw)
    workers = len(os.sched_getaffinity(0))
    size = decoded.images.shape[:2]  # type: ignore[attr-defined]
    return side_by_side(
        {
            "plain": (plain_loader(raw, size, normalisation, batch=BATCH, workers=workers, pin=cuda), some),
            "ours, resident": (_Endless(Loader(decoded, "train", BATCH, mode="resident", **options)), many),
            "ours, streamed": (_Endless(Loader(decoded, "train", BATCH, mode="streamed", **options)), many),
        },
        device,
        rounds,
    )


class _Endless:
    """Epoch after epoch: one of ours is too short to measure."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        while True:
            yield from self.loader


def store_seconds(raw: ImageData, folder: Path, workers: int) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    start = time.perf_counter()
    build_store(raw, folder, size="78x64", workers=workers)
    return time.perf_counter() - start


MEMORY = """
import sys, torch
from pathlib import Path
from rectifier.training import quiet
from rectifier.data.augment import CropAndFlip
from rectifier.data.loader import Loader
from rectifier.data.store import open_store
torch.set_num_threads(1)
def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
with quiet():
    start = resident()
    data = open_store(sys.argv[1])
    before = resident()
    loader = Loader(data, "train", 256, shuffle=True, augment=CropAndFlip(4), mode="streamed")
    most = 0.0
    for batch in loader:
        most = max(most, resident())
print(before - start, most - before)
"""


def memory_mib(folder: Path, samples: int) -> dict[str, float]:
    """Build a store of so many images. Return the resident memory that opening and then streaming it adds."""
    write_store(folder, samples)
    found = subprocess.run([sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True)
    shutil.rmtree(folder)
    opened, loader = map(float, found.stdout.split())
    return {"targets and names": opened, "loader": loader}


def write_store(folder: Path, samples: int) -> None:
    """Write a store from so many links to a few image files: quick to write, and as large as any."""
    pictures = folder.with_name("pictures")
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir()
    few = open_data("shapes:samples=50,size=78x64,labels=shape,ratio=1")
    assert isinstance(few.images, ImageArray)
    for number, pixels in enumerate(few.images.pixels):
        Image.fromarray(pixels).save(pictures / f"{number}.bmp")
    paths = tuple(f"{n:07d}" for n in range(samples))
    for number, path in enumerate(paths):
        (pictures / path).symlink_to(pictures / f"{number % 50}.bmp")
    targets = torch.from_numpy(np.arange(samples) % 2)[:, None].repeat(1, 40)
    space = LabelSpace.from_names({f"attribute {a}": ["no", "yes"] for a in range(40)})
    ids = tuple(map(str, range(samples)))
    split = torch.zeros(samples, dtype=torch.int64)
    build_store(ImageData("many", ImageFiles(pictures, paths), targets, space, split, ids), folder, size="78x64")


def main() -> None:
    parser = measure.parser(__doc__, rounds=3)
    parser.add_argument("--data-root", type=Path)
    arguments = measure.arguments(parser)
    cuda, cores = arguments.device != "cpu", len(os.sched_getaffinity(0))
    result: dict[str, Any] = {
        "hardware": measure.hardware(cuda),
        "cores": cores,
        "commit": measure.commit(),
        "rounds": arguments.rounds,
        "data": "CIFAR-100 and CelebA" if arguments.data_root else "generated",
    }
    screen = Console()
    screen.print(f"{result['hardware']}, {cores} cores\ncommit {result['commit']}, median of {arguments.rounds}")
    with tempfile.TemporaryDirectory() as folder, quiet():
        work = Path(folder)
        cifar = cifar_data(arguments.data_root)
        result["cifar100"] = compare(cifar, cifar, arguments.device, arguments.rounds)
        faces = celeba_data(arguments.data_root, work / "faces")
        processes = (1, 2) if not cuda else (1, 2, cores)
        turns = [{p: store_seconds(faces, work / "store", p) for p in processes} for _ in range(arguments.rounds)]
        result["store_seconds"] = {p: median(turn[p] for turn in turns) for p in processes}
        result["store_speedup"] = result["store_seconds"][1] / result["store_seconds"][2]
        stored = build_store(faces, work / "store", size="78x64")
        result["celeba"] = compare(faces, stored, arguments.device, arguments.rounds)
        if not cuda:
            result["memory_mib"] = {n: memory_mib(work / "many", n) for n in (40_000, 400_000)}
    table = Table("data", "way", "images / s", "ratio to plain")
    for data in ("cifar100", "celeba"):
        for way, rate in result[data].items():
            table.add_row(data if way == "plain" else "", way, f"{rate:,.0f}", f"{rate / result[data]['plain']:.1f}")
    screen.print(table)
    listed = ", ".join(f"{p} processes {s:.1f} s" for p, s in result["store_seconds"].items())
    screen.print(f"Store: {listed}; two are {result['store_speedup']:.2f} times as fast as one.")
    for samples, added in result.get("memory_mib", {}).items():
        what = ", ".join(f"{name} {mib:.0f} MiB" for name, mib in added.items())
        screen.print(f"Resident memory added by {samples:,} images with 40 labels: {what}.")
    measure.save(arguments.json, result)


if __name__ == "__main__":
    main()
