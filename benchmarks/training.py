"""Training steps and whole trainings, ours beside the plain way, in one run.

    python benchmarks/training.py [--device cuda] [--data-root DIR] [--json FILE]

Steps: ResNet32 on CIFAR-100's shape and DeepID2 on CelebA's, batch 256, as the engine takes them: with cross-entropy
and with class rectification, on a GPU captured (as it is and compiled) and eager.

Whole trainings (with ``--data-root``, where CelebA lies): some images for some epochs, from files to the last step,
against a loop of plain PyTorch with a DataLoader that decodes, crops and flips image by image. Ours has to decode its
store first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import torch
from lightning.fabric import Fabric
from plain import plain_loader
from rich.console import Console
from rich.table import Table

from rectifier import LabelSpace, build_network, build_store, console, open_data, power_law_profile
from rectifier.config import Config
from rectifier.data.augment import CropAndFlip
from rectifier.data.loader import Batch, Loader
from rectifier.data.normalise import Normalisation
from rectifier.engine.step import CapturedStep, EagerStep, Trained, make_optimizer
from rectifier.engine.tally import Tally
from rectifier.methods import build_objective
from rectifier.samplers import UniformSampler

BATCH = 256
SHAPES: dict[str, tuple[list[int], tuple[int, int, int]]] = {
    "resnet32": ([100], (32, 32, 3)),
    "deepid2": ([2] * 40, (55, 47, 3)),
}
OPTIONS: dict[str, dict[str, Any]] = {"ce": {}, "crl": {"eta": 0.5}}


def counts_of(sizes: list[int]) -> list[torch.Tensor]:
    """Training counts: the paper's power law for one label, one to ten for binary ones."""
    return [torch.tensor(power_law_profile(size, 500, 25) if size > 2 else [30_000, 3_000]) for size in sizes]


def made_batch(sizes: list[int], shape: tuple[int, int, int], device: torch.device) -> Batch:
    generator = torch.Generator().manual_seed(0)
    height, width, channels = shape
    images = torch.randn(BATCH, channels, height, width, generator=generator)
    shares = [counts.double() / counts.sum() for counts in counts_of(sizes)]
    drawn = [torch.multinomial(share, BATCH, replacement=True, generator=generator) for share in shares]
    images = images.to(device, memory_format=torch.channels_last)
    return Batch(images, torch.stack(drawn, 1).to(device), torch.arange(BATCH, device=device))


def step_of(fabric: Fabric, network: str, method: str, kind: str) -> Callable[[], object]:
    """Return one step of the engine on a fixed batch."""
    sizes, shape = SHAPES[network]
    space, config = LabelSpace.from_sizes(sizes), Config("digits")
    bare = build_network(network, space, shape, seed=0).to(fabric.device, memory_format=torch.channels_last)
    objective = build_objective(method, counts_of(sizes), space, **OPTIONS[method]).to(fabric.device)
    wrapped, optimizer = fabric.setup(bare, make_optimizer(bare, config, 0.01))
    tally = Tally(len(sizes), fabric.device)
    eager = EagerStep(fabric, Trained(bare, wrapped, optimizer, objective), None, tally, "compiled" in kind)
    step = CapturedStep(eager, may_give_up=False) if "captured" in kind else eager
    batch = made_batch(sizes, shape, fabric.device)
    return lambda: step([batch], 0.01)


def time_steps(fabric: Fabric, rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by network and by method and kind of step."""
    cuda = fabric.device.type == "cuda"
    kinds = ("eager", "captured", "captured, compiled") if cuda else ("eager",)
    found = {}
    for network in SHAPES:
        steps = {f"{method}, {kind}": step_of(fabric, network, method, kind) for kind in kinds for method in OPTIONS}
        found[network] = measure.milliseconds(steps, rounds, cuda)
        torch._dynamo.reset()
    return found


def time_trainings(fabric: Fabric, root: Path, images: int, epochs: int, workers: int) -> dict[str, float]:
    """Return the seconds of some epochs of DeepID2 on files of CelebA, ours and plain."""
    data = open_data("celeba", root=root)
    data = data.select(data.indices("train")[:images])
    times = {}
    for name, run in (("ours", _ours), ("plain", _plain)):
        began = time.perf_counter()
        run(fabric, data, epochs, workers)
        if fabric.device.type == "cuda":
            torch.cuda.synchronize()
        times[name] = time.perf_counter() - began
    return times


def _deepid2(fabric: Fabric, data: Any) -> tuple[Any, Any]:
    network = build_network("deepid2", data.space, (55, 47, 3), seed=0)
    return network.to(fabric.device), build_objective("crl", data.counts("train"), data.space).to(fabric.device)


def _ours(fabric: Fabric, data: Any, epochs: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = build_store(data, folder, (55, 47))
        bare, objective = _deepid2(fabric, data)
        bare = bare.to(memory_format=torch.channels_last)
        wrapped, optimizer = fabric.setup(bare, make_optimizer(bare, Config("digits"), 0.01))
        eager = EagerStep(
            fabric, Trained(bare, wrapped, optimizer, objective), None, Tally(len(data.space), fabric.device), False
        )
        step = CapturedStep(eager, may_give_up=False) if fabric.device.type == "cuda" else eager
        sampler = UniformSampler(len(stored.indices("train")))
        loader = Loader(stored, "train", BATCH, sampler=sampler, augment=CropAndFlip(4), device=fabric.device)
        for _ in range(epochs):
            for batch in loader:
                step([batch], 0.01)


def _plain(fabric: Fabric, data: Any, epochs: int, workers: int) -> None:
    bare, objective = _deepid2(fabric, data)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    known = Normalisation((0.5,) * 3, (0.25,) * 3)  # as one would write it down
    cuda = fabric.device.type == "cuda"
    loader = plain_loader(data, (55, 47), known, batch=BATCH, workers=workers, pin=cuda)
    for _ in range(epochs):
        for images, targets in loader:
            with fabric.autocast():
                output = bare(images.to(fabric.device, non_blocking=True))
            loss = objective(output.logits, targets.to(fabric.device, non_blocking=True), output.features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def show(screen: Console, steps: dict[str, dict[str, float]], trainings: dict[str, float]) -> None:
    for network, times in steps.items():
        table = Table("step", "ms", "to cross-entropy", title=f"{network}, batch {BATCH}")
        for name, taken in times.items():
            kind = name.partition(", ")[2]
            table.add_row(name, f"{taken:.3f}", f"{taken / times[f'ce, {kind}']:.3f}")
        screen.print(table)
    if trainings:
        ratio = trainings["plain"] / trainings["ours"]
        screen.print(f"whole trainings: ours {trainings['ours']:.1f} s, plain {trainings['plain']:.1f} s: {ratio:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--data-root", type=Path, help="where CelebA lies")
    parser.add_argument("--images", type=int, default=8_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2, help="of the plain DataLoader")
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    arguments = parser.parse_args()
    cuda = arguments.device == "cuda"
    torch.backends.cudnn.benchmark = True
    fabric = Fabric(accelerator=arguments.device, devices=1, precision="bf16-mixed" if cuda else "32-true")
    screen = Console()
    with console.quiet():
        steps = time_steps(fabric, arguments.rounds)
        root = arguments.data_root
        trainings = time_trainings(fabric, root, arguments.images, arguments.epochs, arguments.workers) if root else {}
    screen.print(f"{measure.hardware(cuda=cuda)}, commit {measure.commit()}")
    show(screen, steps, trainings)
    if arguments.json:
        asked = {key: getattr(arguments, key) for key in ("device", "rounds", "images", "epochs", "workers")}
        facts = {"hardware": measure.hardware(cuda=cuda), "commit": measure.commit(), "arguments": asked}
        arguments.json.write_text(json.dumps({**facts, "steps": steps, "trainings": trainings}, indent=1) + "\n")


if __name__ == "__main__":
    main()
