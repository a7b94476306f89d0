"""From how many steps on compiling pays: what the engine's ``COMPILE_FROM`` is taken from.

    python benchmarks/compiling.py [--rounds 20] [--json FILE]

For networks and shapes of the experiments with class rectification, on a GPU: how long the first step is waited for,
and how long a step takes after that, as it is, with the network compiled, and with the loss compiled too. The wait that
is added over the time that is saved are the steps from which on compiling pays. Nothing compiled before is used.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import measure
import torch
from lightning.fabric import Fabric
from rich.console import Console
from rich.table import Table

from training import engine_step, made_batch, step_milliseconds

SHAPES: dict[str, tuple[list[int], tuple[int, int, int]]] = {
    "cifarnet": ([100], (32, 32, 3)),
    "resnet32": ([100], (32, 32, 3)),
    "densenet": ([100], (32, 32, 3)),
    "deepid2": ([2] * 40, (55, 47, 3)),
    "mtct": ([5, 6, 43, 132, 46, 4, 12, 7], (96, 72, 3)),
}
COMPILED = {"as it is": (), "network": ("network",), "network and loss": ("network", "loss")}


def time_network(fabric: Fabric, network: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the seconds until the first step is done, and the milliseconds of those after it."""
    sizes, shape = SHAPES[network]
    batch = made_batch(sizes, shape, fabric.device)
    waits, steps = {}, {}
    engine_step(fabric, network, "crl", sizes, shape, ())([batch], 0.01)  # cuDNN and its libraries are loaded once
    for name, compiled in COMPILED.items():
        torch._dynamo.reset()
        step = engine_step(fabric, network, "crl", sizes, shape, compiled)
        began = time.perf_counter()
        step([batch], 0.01)
        torch.cuda.synchronize()
        waits[name] = time.perf_counter() - began
        steps[name] = lambda step=step: step([batch], 0.01)  # type: ignore[misc]
    return {"wait_s": waits, "step_ms": step_milliseconds(steps, rounds, cuda=True)}


def pays_from(found: dict[str, dict[str, float]], before: str, after: str) -> float | None:
    """Return the steps whose saved time makes up for the longer wait; None: never.

    >>> found = {"wait_s": {"slow": 1.0, "fast": 11.0}, "step_ms": {"slow": 3.0, "fast": 2.0}}
    >>> pays_from(found, "slow", "fast"), pays_from(found, "fast", "slow")
    (10000.0, None)
    """
    waited = found["wait_s"][after] - found["wait_s"][before]
    saved = found["step_ms"][before] - found["step_ms"][after]
    return 1e3 * max(0.0, waited) / saved if saved > 0 else None


def as_table(found: dict[str, dict[str, dict[str, float]]]) -> Table:
    table = Table("network", "compiled", "first step (s)", "a step (ms)", "pays from (steps)")
    for network, own in found.items():
        before = ""
        for name in COMPILED:
            steps = pays_from(own, before, name) if before else 0
            texts = [f"{own[what][name]:.2f}" for what in ("wait_s", "step_ms")]
            table.add_row(network, name, *texts, "never" if steps is None else f"{steps:,.0f}")
            before = name
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--networks", default=",".join(SHAPES), help="of these, with commas between")
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("steps are compiled on a CUDA device, and none is available here")
    torch.backends.cudnn.benchmark = True
    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        found = {name: time_network(fabric, name, arguments.rounds) for name in arguments.networks.split(",")}
    console = Console()
    console.print(f"{measure.hardware(cuda=True)}, commit {measure.commit()}")
    console.print(as_table(found))
    if arguments.json:
        header = {"hardware": measure.hardware(cuda=True), "commit": measure.commit(), "rounds": arguments.rounds}
        arguments.json.write_text(json.dumps(header | {"networks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
