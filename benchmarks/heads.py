"""Heads on cached features: samples per second through one linear head, and 64 heads together or one after another.

    python benchmarks/heads.py [--device cuda] [--json FILE]

Speed: whole training steps of one linear head (gather, forward, loss, backward, AdamW), from the difference of a long
and a short training, so that preparing the features does not count.

Together: 64 heads in one call, against the same heads in 64 calls and against a plain loop of torch for each (the same
batches and objective, ``nn.Linear`` and ``torch.optim.AdamW``). 8 seeds with 8 weight decays share batches in eights;
64 seeds share none, unless they have one ``order_seed``. Single heads are timed on a part of the 64 and scaled up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import measure
import torch
from rich.console import Console
from rich.table import Table
from torch import Generator

from rectifier.labels.space import LabelSpace
from rectifier.methods import build_objective, build_sampler
from rectifier.training.heads import FeatureTable, HeadSpec, train_heads

FEATURES, SAMPLES = 1280, 6000
CLASSES, BATCHES = (10, 40, 100), (256, 1024, 4096)
METHODS = ("ce", "logit-adjustment", "crl")
HEADS, ALONE = 64, 4  # heads together, and how many of them are timed one by one


def made_table(classes: int, device: str, samples: int = SAMPLES, features: int = FEATURES) -> FeatureTable:
    """Return features around class means, with classes of unequal size."""
    drawn = Generator().manual_seed(0)
    targets = (torch.rand(samples, generator=drawn) ** 2 * classes).long()
    means = 0.3 * torch.randn(classes, features, generator=drawn)
    x = means[targets] + torch.randn(samples, features, generator=drawn)
    return FeatureTable(x.to(device), targets[:, None].to(device), LabelSpace.from_sizes([classes]))


def groups(method: str, epochs: int, batch_size: int = 256) -> dict[str, list[HeadSpec]]:
    """Return the lists of 64 heads."""
    common: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size}
    decays = [10.0**-power for power in range(8)]
    pairs = [(seed, decay) for seed in range(HEADS // 8) for decay in decays]
    return {
        "8 seeds x 8 decays": [HeadSpec(method, seed=seed, weight_decay=decay, **common) for seed, decay in pairs],
        "64 seeds": [HeadSpec(method, seed=seed, **common) for seed in range(HEADS)],
        "64 seeds, one order": [HeadSpec(method, seed=seed, order_seed=0, **common) for seed in range(HEADS)],
    }


def plain_training(table: FeatureTable, spec: HeadSpec) -> torch.nn.Linear:
    """Train one linear head as a plain loop of torch does."""
    device = table.x.device
    variance, mean = torch.var_mean(table.x, 0, correction=0)
    x = (table.x - mean) / variance.sqrt()
    torch.manual_seed(spec.seed)
    head = torch.nn.Linear(table.width, table.space.columns, device=device)
    objective = build_objective(spec.method, table.counts(), table.space, **spec.method_options).to(device)
    optimizer = torch.optim.AdamW(
        [{"params": [head.weight]}, {"params": [head.bias], "weight_decay": 0.0}],
        spec.lr,
        weight_decay=spec.weight_decay,
    )
    sampler = build_sampler(spec.method, table.targets.cpu(), table.space, epochs=spec.epochs, seed=spec.draws)
    number = math.ceil(len(sampler) / spec.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, spec.epochs * number)
    for epoch in range(spec.epochs):
        sampler.set_epoch(epoch)
        for rows in sampler.plan().to(device).tensor_split(number):
            optimizer.zero_grad()
            objective(head(x[rows]), table.targets[rows]).backward()
            optimizer.step()
            schedule.step()
    return head


def samples_per_second(table: FeatureTable, spec: HeadSpec, rounds: int) -> float:
    """Return how many samples a head takes per second of training, without its preparation."""
    more = 8
    runs = {
        str(epochs): lambda epochs=epochs: train_heads(table, [with_epochs(spec, epochs)]) for epochs in (1, 1 + more)
    }
    taken = measure.milliseconds(runs, rounds, table.x.is_cuda)
    return 1e3 * more * len(table) / (taken[str(1 + more)] - taken["1"])


def with_epochs(spec: HeadSpec, epochs: int) -> HeadSpec:
    return HeadSpec(spec.method, batch_size=spec.batch_size, epochs=epochs)


def time_together(table: FeatureTable, method: str, epochs: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return seconds of 64 heads together, one after another, and as plain loops, by group."""
    found = {}
    for name, specs in groups(method, epochs).items():
        some = specs[:: len(specs) // ALONE]
        runs: dict[str, Callable[[], object]] = {
            "together": lambda specs=specs: train_heads(table, specs),
            "one after another": lambda some=some: [train_heads(table, [spec]) for spec in some],
            "plain loops": lambda some=some: [plain_training(table, spec) for spec in some],
        }
        taken = measure.milliseconds(runs, rounds, table.x.is_cuda)
        scaled = {run: ms / 1e3 * (1 if run == "together" else len(specs) / len(some)) for run, ms in taken.items()}
        found[name] = scaled
    return found


def show(screen: Console, found: dict[str, Any]) -> None:
    table = Table("method", "classes", "batch", "samples/s", title=f"One linear head on {FEATURES} features")
    for method, by_classes in found["speed"].items():
        for classes, by_batch in by_classes.items():
            for batch, speed in by_batch.items():
                table.add_row(method, classes, batch, f"{speed:,.0f}")
    screen.print(table)
    table = Table("method", "heads", "together, s", "to one after another", "to plain loops", title=f"{HEADS} heads")
    for method, by_group in found["together"].items():
        for name, taken in by_group.items():
            ratios = [f"{taken['together'] / taken[other]:.3f}" for other in ("one after another", "plain loops")]
            table.add_row(method, name, f"{taken['together']:.2f}", *ratios)
    screen.print(table)


def main() -> None:
    parser = measure.parser(__doc__, rounds=3)
    parser.add_argument("--epochs", type=int, default=5, help="epochs of the trainings of 64 heads")
    given = measure.arguments(parser)
    facts = {**measure.facts(given.device == "cuda"), "rounds": given.rounds, "epochs": given.epochs}
    found: dict[str, Any] = {"speed": {}, "together": {}}
    for method in METHODS:
        speeds = found["speed"][method] = {}
        for classes in CLASSES:
            table = made_table(classes, given.device)
            speeds[str(classes)] = {
                str(size): samples_per_second(table, HeadSpec(method, batch_size=size), given.rounds)
                for size in BATCHES
            }
        found["together"][method] = time_together(made_table(10, given.device), method, given.epochs, given.rounds)
        measure.save(given.json, facts, found)  # a run that is cut off leaves what it has measured
    screen = Console()
    screen.print(f"{facts['hardware']}, commit {facts['commit']}")
    show(screen, found)


if __name__ == "__main__":
    main()
