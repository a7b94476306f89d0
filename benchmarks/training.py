"""Training at the speed of the hardware: ours beside the plain way, in one run.

    python benchmarks/training.py [--device cuda] [--celeba DIR] [--cifar DIR] [--json FILE]

Steps: ResNet32 on CIFAR-100's shape and DeepID2 on CelebA's, batch 256, as the engine takes them: with cross-entropy
and with class rectification, on a GPU captured (as it is and compiled) and eager.

Loops: the same two with rectification and with their data, step after step, against plain PyTorch: a DataLoader that
crops and flips image by image, and eager steps of the same precision.

Files (``--celeba``, where CelebA lies): some epochs of DeepID2 from files to the last step, against the same plain way.
Ours has to decode its store first.

Runs (``--cifar``, where CIFAR-100 lies; GPU): ``rectifier train --preset cifar100`` in a new process, from its start to
the scores; and some seeds side by side against one after another, both in this process.
"""

from __future__ import annotations

import argparse
import json
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
from lightning.fabric import Fabric
from plain import plain_loader
from rich.console import Console
from rich.table import Table

from rectifier import LabelSpace, build_network, build_store, open_data, power_law_profile
from rectifier._base import console
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.data.loader import Batch, Loader
from rectifier.data.normalise import Normalisation
from rectifier.methods import build_objective
from rectifier.samplers import UniformSampler
from rectifier.training import many as suite
from rectifier.training.engine.options import Options
from rectifier.training.engine.step import CapturedStep, EagerStep, make_optimizer
from rectifier.training.engine.tally import Tally
from rectifier.training.presets import preset

BATCH = 256
SHAPES: dict[str, tuple[list[int], tuple[int, int, int]]] = {
    "resnet32": ([100], (32, 32, 3)),
    "deepid2": ([2] * 40, (55, 47, 3)),
}
IN_A_ROW = 10  # steps that are timed at a time on a GPU, as training takes them: the host does not wait after each
KINDS: dict[str, Collection[str] | None] = {
    "eager": None,
    "captured": (),
    "captured, compiled": ("network", "loss"),
}
OPTIONS: dict[str, dict[str, Any]] = {"ce": {}, "crl": {"eta": 0.5}}
KNOWN = Normalisation((0.5,) * 3, (0.25,) * 3)  # as one would write it down


def counts_of(sizes: list[int]) -> list[torch.Tensor]:
    """Training counts: the paper's power law for one label, one to ten for binary ones."""
    return [torch.tensor(power_law_profile(size, 500, 25) if size > 2 else [30_000, 3_000]) for size in sizes]


def drawn_targets(sizes: list[int], samples: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shares = [counts.double() / counts.sum() for counts in counts_of(sizes)]
    drawn = [torch.multinomial(share, samples, replacement=True, generator=generator) for share in shares]
    return torch.stack(drawn, 1)


def made_batch(sizes: list[int], shape: tuple[int, int, int], device: torch.device) -> Batch:
    height, width, channels = shape
    images = torch.randn(BATCH, channels, height, width, generator=torch.Generator().manual_seed(0))
    images = images.to(device, memory_format=torch.channels_last)
    return Batch(images, drawn_targets(sizes, BATCH).to(device), torch.arange(BATCH, device=device))


def made_data(network: str, samples: int) -> ImageData:
    sizes, shape = SHAPES[network]
    pixels = np.random.default_rng(0).integers(0, 256, (samples, *shape), dtype=np.uint8)
    split = torch.zeros(samples, dtype=torch.int64)
    return ImageData(network, ImageArray(pixels), drawn_targets(sizes, samples), LabelSpace.from_sizes(sizes), split)


def step_of(fabric: Fabric, network: str, method: str, kind: str) -> EagerStep | CapturedStep:
    return engine_step(fabric, network, method, *SHAPES[network], KINDS[kind])


def engine_step(
    fabric: Fabric,
    network: str,
    method: str,
    sizes: list[int],
    shape: tuple[int, int, int],
    compiled: Collection[str] | None,
) -> EagerStep | CapturedStep:
    """Return the engine's step on a new network: captured, some of it compiled; None is a step as it is written."""
    space = LabelSpace.from_sizes(sizes)
    bare = build_network(network, space, shape, seed=0).to(fabric.device, memory_format=torch.channels_last)
    objective = build_objective(method, counts_of(sizes), space, **OPTIONS[method]).to(fabric.device)
    wrapped, optimizer = fabric.setup(bare, make_optimizer(bare, Options(lr=0.01)))
    tally = Tally(len(sizes), fabric.device)
    eager = EagerStep(fabric, bare, wrapped, optimizer, objective, tally)
    eager.compile(compiled or ())
    return eager if compiled is None else CapturedStep(eager, may_give_up=False)


def time_steps(fabric: Fabric, rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by network and by method and kind of step."""
    cuda = fabric.device.type == "cuda"
    kinds = KINDS if cuda else ("eager",)
    found = {}
    for network, (sizes, shape) in SHAPES.items():
        batch = made_batch(sizes, shape, fabric.device)
        steps: dict[str, Callable[[], object]] = {}
        for kind in kinds:
            for method in OPTIONS:
                step = step_of(fabric, network, method, kind)
                steps[f"{method}, {kind}"] = lambda step=step, batch=batch: step([batch], 0.01)  # type: ignore[misc]
        found[network] = step_milliseconds(steps, rounds, cuda)
        torch._dynamo.reset()
    return found


def step_milliseconds(steps: dict[str, Callable[[], object]], rounds: int, cuda: bool) -> dict[str, float]:
    """Return the median time of each step: on a GPU of several in a row, for the host does not wait after each."""
    in_a_row = IN_A_ROW if cuda else 1

    def several(step: Callable[[], object]) -> Callable[[], None]:
        def take() -> None:
            for _ in range(in_a_row):
                step()

        return take

    times = measure.milliseconds({name: several(step) for name, step in steps.items()}, rounds, cuda)
    return {name: taken / in_a_row for name, taken in times.items()}


def time_loops(fabric: Fabric, steps: int, workers: int) -> dict[str, dict[str, float]]:
    """Return milliseconds a step, with its data: ours (on a GPU as it is, and compiled) and plain."""
    cuda = fabric.device.type == "cuda"
    kinds = {"ours": "captured", "ours, compiled": "captured, compiled"} if cuda else {"ours": "eager"}
    found: dict[str, dict[str, float]] = {}
    for network in SHAPES:
        data = made_data(network, steps * BATCH)
        found[network] = {}
        for name, kind in kinds.items():
            sampler = UniformSampler(len(data))
            loader = Loader(data, "train", BATCH, sampler=sampler, augment=CropAndFlip(4), device=fabric.device)
            step = step_of(fabric, network, "crl", kind)
            found[network][name] = _an_epoch(fabric, lambda loader=loader, step=step: [step([b], 0.01) for b in loader])
        found[network]["plain"] = _an_epoch(
            fabric, _plain_epoch(fabric, network, data, SHAPES[network][1][:2], workers)
        )
        found[network] = {name: 1e3 * seconds / steps for name, seconds in found[network].items()}
        torch._dynamo.reset()
    return found


def _an_epoch(fabric: Fabric, epoch: Callable[[], object]) -> float:
    """Return the seconds of a second epoch: in the first, workers start and kernels are made."""
    epoch()
    if fabric.device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    epoch()
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
    """Return the seconds of some epochs of DeepID2 on files of CelebA, ours and plain."""
    data = open_data("celeba", root=root)
    data = data.select(data.indices("train")[:images])
    times = {}
    for name in ("ours", "plain"):
        began = time.perf_counter()
        if name == "ours":
            _from_files(fabric, data, epochs)
        else:
            epoch = _plain_epoch(fabric, "deepid2", data, (55, 47), workers)
            for _ in range(epochs):
                epoch()
        if fabric.device.type == "cuda":
            torch.cuda.synchronize()
        times[name] = time.perf_counter() - began
    return times


def _from_files(fabric: Fabric, data: ImageData, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = build_store(data, folder, (55, 47))
        step = step_of(fabric, "deepid2", "crl", "captured" if fabric.device.type == "cuda" else "eager")
        sampler = UniformSampler(len(stored.indices("train")))
        loader = Loader(stored, "train", BATCH, sampler=sampler, augment=CropAndFlip(4), device=fabric.device)
        for _ in range(epochs):
            for batch in loader:
                step([batch], 0.01)


def time_runs(root: Path, epochs: int, seeds: int, seed_epochs: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds of one whole run in a new process, and of some seeds side by side and one after another."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=30, help="of the loops")
    parser.add_argument("--workers", type=int, default=2, help="of the plain DataLoader")
    parser.add_argument("--celeba", type=Path, help="where CelebA lies")
    parser.add_argument("--images", type=int, default=8_000, help="of CelebA")
    parser.add_argument("--epochs", type=int, default=3, help="of CelebA")
    parser.add_argument("--cifar", type=Path, help="where CIFAR-100 lies")
    parser.add_argument("--run-epochs", type=int, default=200, help="of the whole run")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--seed-epochs", type=int, default=200, help="of every seed")
    parser.add_argument("--parts", default="steps,loops", help="what is measured beside files and runs")
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    given = parser.parse_args()
    cuda = given.device == "cuda"
    parts = [] if given.parts == "none" else given.parts.split(",")
    if not set(parts) <= {"steps", "loops"}:
        parser.error(f"--parts: steps, loops, both with a comma, or none, not {given.parts!r}")
    if given.cifar and not cuda:
        parser.error("--cifar takes hours on a CPU: give --device cuda with it")
    torch.backends.cudnn.benchmark = True
    fabric = Fabric(accelerator=given.device, devices=1, precision="bf16-mixed" if cuda else "32-true")
    facts = {"hardware": measure.hardware(cuda=cuda), "commit": measure.commit(), "arguments": _plain_values(given)}
    found: dict[str, Any] = {"steps": {}, "loops": {}, "files": {}, "runs": {}}

    def keep() -> None:  # after every part: a long run that is cut off has given something
        if given.json:
            given.json.write_text(json.dumps({**facts, **found}, indent=1) + "\n")

    with console.quiet():
        if "steps" in parts:
            found["steps"] = time_steps(fabric, given.rounds)
            keep()
        if "loops" in parts:
            found["loops"] = time_loops(fabric, given.steps, given.workers)
            keep()
        if given.celeba:
            found["files"] = time_files(fabric, given.celeba, given.images, given.epochs, given.workers)
            keep()
        if given.cifar:
            for name, seconds in time_runs(given.cifar, given.run_epochs, given.seeds, given.seed_epochs):
                found["runs"][name] = seconds
                keep()
    screen = Console()
    screen.print(f"{facts['hardware']}, commit {facts['commit']}")
    show(screen, found)


def _plain_values(given: argparse.Namespace) -> dict[str, Any]:
    return {key: value for key, value in vars(given).items() if value is not None and not isinstance(value, Path)}


if __name__ == "__main__":
    main()
