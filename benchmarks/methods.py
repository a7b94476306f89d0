"""What each method costs: its training step beside that of cross-entropy, and rectification beside LMLE.

    python benchmarks/methods.py [--device cuda] [--json FILE]

Steps: forward, loss, backward and optimizer on a fixed batch, as the engine takes them (captured on a GPU), for every
method whose step can differ from cross-entropy's. Samplers, decision rules and what is done after training leave the
step as it is and are not listed.

Trainings: cross-entropy, rectification and LMLE for the same number of batches of the same size, from the first step to
the scores; LMLE's time holds its rounds of clustering and the search for quintuplets.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure
import torch
from lightning.fabric import Fabric
from rich.console import Console
from rich.table import Table

from rectifier import LabelSpace, build_network
from rectifier._base import console
from rectifier.methods import METHODS, Method, build_mixing, build_objective, needed_of_network
from rectifier.training import train
from rectifier.training.config import Config
from rectifier.training.engine.options import Options
from rectifier.training.engine.step import CapturedStep, EagerStep, make_optimizer
from rectifier.training.engine.tally import Tally
from training import BATCH, SHAPES, counts_of, made_batch, step_milliseconds

OF_A_STEP = ("loss", "weights", "rectification", "objective", "mixing", "classifier")
TRAINED = ("ce", "crl", "lmle")
DATA = "shapes:samples=6000,size=64,ratio=20"


def changes_the_step(method: Method) -> bool:
    return any(getattr(method, slot) is not None for slot in OF_A_STEP)


def step_of(fabric: Fabric, network: str, name: str) -> Callable[[], object]:
    """Return the engine's step with a method, on a fixed batch."""
    sizes, shape = SHAPES[network]
    space, counts, device = LabelSpace.from_sizes(sizes), counts_of(sizes), fabric.device
    options = {"eta": 0.5} if METHODS[name].rectification else {}
    bare = build_network(network, space, shape, seed=0, **needed_of_network(name, {}))
    bare = bare.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    objective = build_objective(name, counts, space, **options).to(device)
    if hasattr(objective, "set_progress"):
        objective.set_progress(0.9)  # LMLE begins with cross-entropy
    mixing = build_mixing(name, counts, space, {})
    wrapped, optimizer = fabric.setup(bare, make_optimizer(bare, Options(lr=0.01)))
    mixing = None if mixing is None else mixing.to(device)
    eager = EagerStep(fabric, bare, wrapped, optimizer, objective, Tally(len(sizes), device), mixing)
    step = CapturedStep(eager, may_give_up=True) if device.type == "cuda" else eager
    batch = made_batch(sizes, shape, device)
    if name == "lmle":  # five samples a quintuplet
        batch = type(batch)(*(tensor[: BATCH // 5 * 5] for tensor in batch))
    return lambda: step([batch], 0.01)


def time_steps(fabric: Fabric, rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by network and method."""
    names = ["ce", *(name for name, method in METHODS.items() if changes_the_step(method))]
    found = {}
    for network, (sizes, _) in SHAPES.items():
        fitting = [name for name in names if name != "asymmetric" or set(sizes) == {2}]
        steps = {name: step_of(fabric, network, name) for name in fitting}
        found[network] = step_milliseconds(steps, rounds, fabric.device.type == "cuda")
    return found


def time_trainings(device: str, epochs: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds of whole trainings of DeepID2 that see as many batches."""
    settings = {"network": "deepid2", "batch_size": 255, "epochs": epochs, "accelerator": device, "tensorboard": False}
    with tempfile.TemporaryDirectory() as folder:
        for name in TRAINED:
            config = Config(DATA).with_settings({**settings, "method": name, "drop_last": True})
            began = time.perf_counter()
            train(config, f"{folder}/{name}")
            yield name, time.perf_counter() - began


def show(screen: Console, found: dict[str, Any]) -> None:
    for network, times in found["steps"].items():
        table = Table("method", "to cross-entropy", title=f"A step of {network}, batch {BATCH}")
        for name, taken in sorted(times.items(), key=lambda each: each[1]):
            table.add_row(name, f"{taken / times['ce']:.3f}")
        screen.print(table)
    times = found["trainings"]
    for name, taken in times.items():
        screen.print(f"training with {name}: {taken / times['crl']:.2f} times rectification")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10, help="of the whole trainings")
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    given = parser.parse_args()
    cuda = given.device == "cuda"
    torch.backends.cudnn.benchmark = True
    fabric = Fabric(accelerator=given.device, devices=1, precision="bf16-mixed" if cuda else "32-true")
    facts = {"hardware": measure.hardware(cuda=cuda), "commit": measure.commit(), "rounds": given.rounds}
    found: dict[str, Any] = {"steps": {}, "trainings": {}}

    def keep() -> None:  # after every part: a long run that is cut off has given something
        if given.json:
            given.json.write_text(json.dumps({**facts, "epochs": given.epochs, **found}, indent=1) + "\n")

    with console.quiet():
        found["steps"] = time_steps(fabric, given.rounds)
        keep()
        for name, seconds in time_trainings(given.device, given.epochs):
            found["trainings"][name] = seconds
            keep()
    screen = Console()
    screen.print(f"{facts['hardware']}, commit {facts['commit']}")
    show(screen, found)


if __name__ == "__main__":
    main()
