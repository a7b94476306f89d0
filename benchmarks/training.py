"""Speed of training, compared with plain PyTorch in the same run.

    python benchmarks/training.py [--device cuda] [--celeba DIR] [--cifar DIR] [--json FILE]

Steps: ResNet32 on CIFAR-100's shape and DeepID2 on CelebA's, batch 256, as the engine takes them: with cross-entropy
and with class rectification; on a GPU eager, captured, and captured and compiled.

Loops: the same two networks with class rectification and with their data, compared with plain PyTorch: a DataLoader
that crops and flips image by image, and eager steps of the same precision.

Files (``--celeba``, the folder of CelebA): some epochs of DeepID2 from JPEG files, compared with plain PyTorch. Ours
decodes its store first.

Runs (``--cifar``, the folder of CIFAR-100; GPU only): ``rectifier train --preset cifar100`` in a new process, from
start to scores; and several seeds together compared with one after another, both in this process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from engine_steps import (
    BATCH,
    SHAPES,
    TIMED,
    EngineStep,
    drawn_targets,
    engine_step,
    made_batch,
    make_fabric,
    step_milliseconds,
)
from lightning.fabric import Fabric
from plain import plain_loader
from rich.console import Console
from rich.table import Table

from rectifier import LabelSpace
from rectifier.data import Loader, build_store, open_data
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.data.normalise import Normalisation
from rectifier.methods import build_objective
from rectifier.networks import build_network
from rectifier.samplers import UniformSampler
from rectifier.training import many as suite
from rectifier.training import preset, quiet

KINDS: dict[str, Collection[str] | None] = {
    "eager": None,
    "captured": (),
    "captured, compiled": ("network", "loss"),
}
KNOWN = Normalisation((0.5,) * 3, (0.25,) * 3)


def made_data(network: str, samples: int) -> ImageData:
    sizes, shape = SHAPES[network]
    pixels = np.random.default_rng(0).integers(0, 256, (samples, *shape), dtype=np.uint8)
    split = torch.zeros(samples, dtype=torch.int64)
    return ImageData(network, ImageArray(pixels), drawn_targets(sizes, samples), LabelSpace.from_sizes(sizes), split)


def time_steps(fabric: Fabric, rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by network, and by method and kind of step."""
    cuda = fabric.device.type == "cuda"
    found = {}
    for network in TIMED:
        batch = made_batch(network, fabric.device)
        steps: dict[str, Callable[[], object]] = {}
        for kind in KINDS if cuda else ("eager",):
            for method in ("ce", "crl"):
                step = engine_step(fabric, network, method, KINDS[kind])
                steps[f"{method}, {kind}"] = lambda step=step, batch=batch: step([batch], 0.01)  # type: ignore[misc]
        found[network] = step_milliseconds(steps, rounds, cuda)
        torch._dynamo.reset()
    return found


def time_loops(fabric: Fabric, steps: int, workers: int) -> dict[str, dict[str, float]]:
    """Return milliseconds per step, with its data: ours (on a GPU captured, and compiled too) and plain."""
    cuda = fabric.device.type == "cuda"
    kinds = {"ours": "captured", "ours, compiled": "captured, compiled"} if cuda else {"ours": "eager"}
    found: dict[str, dict[str, float]] = {}
    for network in TIMED:
        data = made_data(network, steps * BATCH)
        epochs = {
            name: our_epoch(fabric, data, engine_step(fabric, network, "crl", KINDS[kind]))
            for name, kind in kinds.items()
        }
        epochs["plain"] = _plain_epoch(fabric, network, data, SHAPES[network][1][:2], workers)
        for epoch in epochs.values():
            epoch()  # workers start and kernels are made
        found[network] = {name: 1e3 * _seconds(fabric, epoch) / steps for name, epoch in epochs.items()}
        torch._dynamo.reset()
    return found


def our_epoch(fabric: Fabric, data: ImageData, step: EngineStep) -> Callable[[], None]:
    sampler = UniformSampler(len(data.indices("train")))
    loader = Loader(data, "train", BATCH, sampler=sampler, augment=CropAndFlip(4), device=fabric.device)

    def epoch() -> None:
        for batch in loader:
            step([batch], 0.01)

    return epoch


def _seconds(fabric: Fabric, work: Callable[[], object]) -> float:
    """Return the seconds of some work, until the device has done it."""
    if fabric.device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if fabric.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _plain_epoch(fabric: Fabric, network: str, data: ImageData, size: Any, workers: int) -> Callable[[], None]:
    """Return an epoch in plain PyTorch, as tutorials write it."""
    bare = build_network(network, data.space, (*size, 3), seed=0).to(fabric.device)
    objective = build_objective("crl", data.counts("train"), data.space, eta=0.5).to(fabric.device)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    loader = plain_loader(data, size, KNOWN, batch=BATCH, workers=workers, pin=fabric.device.type == "cuda")

    def epoch() -> None:
        for images, targets in loader:
            with fabric.autocast():
                output = bare(images.to(fabric.device, non_blocking=True))
            loss = objective(output.logits, targets.to(fabric.device, non_blocking=True), output.features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def time_files(fabric: Fabric, root: Path, images: int, epochs: int, workers: int) -> dict[str, float]:
    """Return the seconds of some epochs of DeepID2 on JPEG files of CelebA, ours and plain."""
    data = open_data("celeba", root=root)
    data = data.select(data.indices("train")[:images])
    kind = "captured" if fabric.device.type == "cuda" else "eager"

    def ours() -> None:
        with tempfile.TemporaryDirectory() as folder:
            stored = build_store(data, folder, (55, 47))
            epoch = our_epoch(fabric, stored, engine_step(fabric, "deepid2", "crl", KINDS[kind]))
            for _ in range(epochs):
                epoch()

    def plain() -> None:
        epoch = _plain_epoch(fabric, "deepid2", data, (55, 47), workers)
        for _ in range(epochs):
            epoch()

    return {"ours": _seconds(fabric, ours), "plain": _seconds(fabric, plain)}


def time_runs(root: Path, epochs: int, seeds: int, seed_epochs: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds of one run in a new process, and of several seeds together and one after another."""
    settings = {"data_root": str(root), "epochs": seed_epochs}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rectifier", "train", "--preset", "cifar100", "--data-root", str(root)]
        began = time.perf_counter()
        subprocess.run([*command, "--epochs", str(epochs), "--out", f"{folder}/run"], check=True, capture_output=True)
        yield f"one run of {epochs} epochs, from start to scores", time.perf_counter() - began
        for together in (seeds, 1):
            planned = suite.plan(preset("cifar100").with_settings(settings), ["crl"], seeds, f"{folder}/{together}")
            began = time.perf_counter()
            suite.train_missing(planned, together)
            how = "side by side" if together > 1 else "one after another"
            yield f"{seeds} runs of {seed_epochs} epochs, {how}", time.perf_counter() - began


def show(screen: Console, found: dict[str, Any]) -> None:
    for network, times in found["steps"].items():
        table = Table("step", "ms", "to cross-entropy", title=f"{network}, batch {BATCH}")
        for name, taken in times.items():
            kind = name.partition(", ")[2]
            table.add_row(name, f"{taken:.3f}", f"{taken / times[f'ce, {kind}']:.3f}")
        screen.print(table)
    for network, times in found["loops"].items():
        table = Table("step with its data", "ms", "plain is slower", title=f"{network}, batch {BATCH}")
        for name, taken in times.items():
            table.add_row(name, f"{taken:.3f}", f"{times['plain'] / taken:.2f}")
        screen.print(table)
    for name, taken in {**found["files"], **found["runs"]}.items():
        screen.print(f"{name}: {taken:.1f} s")


def main() -> None:
    parser = measure.parser(__doc__, rounds=20)
    parser.add_argument("--steps", type=int, default=30, help="steps in a loop")
    parser.add_argument("--workers", type=int, default=2, help="workers of the plain DataLoader")
    parser.add_argument("--celeba", type=Path, help="folder of CelebA")
    parser.add_argument("--images", type=int, default=8_000, help="images of CelebA")
    parser.add_argument("--epochs", type=int, default=3, help="epochs on CelebA")
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-100")
    parser.add_argument("--run-epochs", type=int, default=200, help="epochs of the whole run")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seed-epochs", type=int, default=200, help="epochs of every seed")
    parser.add_argument("--parts", default="steps,loops", help="steps, loops, both with a comma, or none")
    given = measure.arguments(parser)
    parts = set() if given.parts == "none" else set(given.parts.split(","))
    if not parts <= {"steps", "loops"}:
        parser.error(f"--parts is steps, loops, both with a comma, or none, but got {given.parts!r}")
    if given.cifar and given.device == "cpu":
        parser.error("--cifar takes hours on a CPU: give --device cuda with it")
    facts = {**measure.facts(given.device == "cuda"), "arguments": _plain_values(given)}
    found: dict[str, Any] = {"steps": {}, "loops": {}, "files": {}, "runs": {}}
    fabric = make_fabric(given.device)
    with quiet():
        if "steps" in parts:
            found["steps"] = time_steps(fabric, given.rounds)
            measure.save(
                given.json, facts, found
            )  # after every part: a run that is cut off leaves what it has measured
        if "loops" in parts:
            found["loops"] = time_loops(fabric, given.steps, given.workers)
            measure.save(given.json, facts, found)
        if given.celeba:
            found["files"] = time_files(fabric, given.celeba, given.images, given.epochs, given.workers)
            measure.save(given.json, facts, found)
        if given.cifar:
            for name, seconds in time_runs(given.cifar, given.run_epochs, given.seeds, given.seed_epochs):
                found["runs"][name] = seconds
                measure.save(given.json, facts, found)
    screen = Console()
    screen.print(f"{facts['hardware']}, commit {facts['commit']}")
    show(screen, found)


def _plain_values(given: argparse.Namespace) -> dict[str, Any]:
    return {key: value for key, value in vars(given).items() if value is not None and not isinstance(value, Path)}


if __name__ == "__main__":
    main()
