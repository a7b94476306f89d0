"""Cost of each method: its training step compared with cross-entropy's, and whole trainings with CRL and LMLE.

    python benchmarks/methods.py [--device cuda] [--json FILE]

Steps: forward, loss, backward and optimizer on a fixed batch, as in training (captured on a GPU), for every method
whose step can differ from cross-entropy's. Samplers, decision rules and work after training do not change the step.

Trainings: cross-entropy, CRL and LMLE for the same number of batches of the same size, from the first step to the
scores. LMLE's time includes clustering and the search for quintuplets.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import measure
from engine_steps import BATCH, SHAPES, TIMED, engine_step, made_batch, make_fabric, step_milliseconds
from lightning.fabric import Fabric
from rich.console import Console
from rich.table import Table

from rectifier import Config, train
from rectifier.methods import METHODS, Method
from rectifier.training import quiet

OF_A_STEP = ("loss", "weights", "rectification", "objective", "mixing", "classifier")
TRAINED = ("ce", "crl", "lmle")
DATA = "shapes:samples=6000,size=64,ratio=20"


def changes_the_step(method: Method) -> bool:
    return any(getattr(method, slot) is not None for slot in OF_A_STEP)


def step_of(fabric: Fabric, network: str, name: str) -> Callable[[], object]:
    """Return the engine's step with a method, on a fixed batch."""
    step = engine_step(fabric, network, name, () if fabric.device.type == "cuda" else None, may_give_up=True)
    samples = BATCH // 5 * 5 if name == "lmle" else BATCH  # a quintuplet has five samples
    batch = made_batch(network, fabric.device)
    batch = type(batch)(*(tensor[:samples] for tensor in batch))
    return lambda: step([batch], 0.01)


def time_steps(fabric: Fabric, rounds: int) -> dict[str, dict[str, float]]:
    """Return milliseconds by network and method."""
    names = ["ce", *(name for name, method in METHODS.items() if changes_the_step(method))]
    found = {}
    for network in TIMED:
        fitting = [name for name in names if name != "asymmetric" or set(SHAPES[network][0]) == {2}]
        steps = {name: step_of(fabric, network, name) for name in fitting}
        found[network] = step_milliseconds(steps, rounds, fabric.device.type == "cuda")
    return found


def time_trainings(device: str, epochs: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds of whole trainings of DeepID2 with equally many batches."""
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
        screen.print(f"training with {name}: {taken / times['crl']:.2f} times CRL")


def main() -> None:
    parser = measure.parser(__doc__, rounds=10)
    parser.add_argument("--epochs", type=int, default=10, help="epochs of the whole trainings")
    given = measure.arguments(parser)
    facts = {**measure.facts(given.device == "cuda"), "rounds": given.rounds, "epochs": given.epochs}
    found: dict[str, Any] = {"steps": {}, "trainings": {}}
    with quiet():
        found["steps"] = time_steps(make_fabric(given.device), given.rounds)
        for name, seconds in time_trainings(given.device, given.epochs):
            found["trainings"][name] = seconds
            measure.save(given.json, facts, found)  # a run that is cut off leaves what it has measured
    screen = Console()
    screen.print(f"{facts['hardware']}, commit {facts['commit']}")
    show(screen, found)


if __name__ == "__main__":
    main()
