"""Find the number of steps from which compiling pays: the source of the engine's ``COMPILE_FROM``.

    python benchmarks/compiling.py [--rounds 20] [--json FILE]

For the networks of the experiments, with class rectification, on a GPU: the wait for the first step and the time of the
steps after it, without compiling, with the network compiled, and with the loss compiled too. Compiling pays when the
time saved exceeds the longer wait. The compiler's cache starts empty.
"""

from __future__ import annotations

import os
import tempfile
import time

import measure
import torch
from engine_steps import SHAPES, engine_step, made_batch, make_fabric, step_milliseconds
from lightning.fabric import Fabric
from rich.console import Console
from rich.table import Table

COMPILED = {"as it is": (), "network": ("network",), "network and loss": ("network", "loss")}


def time_network(fabric: Fabric, network: str, rounds: int) -> dict[str, dict[str, float]]:
    """Return the seconds until the first step is done, and the milliseconds of a later one."""
    batch = made_batch(network, fabric.device)
    waits, steps = {}, {}
    engine_step(fabric, network, "crl", ())([batch], 0.01)  # cuDNN and its libraries are loaded once
    for name, compiled in COMPILED.items():
        torch._dynamo.reset()
        step = engine_step(fabric, network, "crl", compiled)
        began = time.perf_counter()
        step([batch], 0.01)
        torch.cuda.synchronize()
        waits[name] = time.perf_counter() - began
        steps[name] = lambda step=step: step([batch], 0.01)  # type: ignore[misc]
    return {"wait_s": waits, "step_ms": step_milliseconds(steps, rounds, cuda=True)}


def pays_from(found: dict[str, dict[str, float]], before: str, after: str) -> float | None:
    """Return the steps after which the time saved exceeds the longer wait, or None if it never does.

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
    parser = measure.parser(__doc__, rounds=20, devices=["cuda"])
    parser.add_argument("--networks", default=",".join(SHAPES), help="networks to time, separated by commas")
    given = measure.arguments(parser)
    fabric, facts = make_fabric("cuda"), measure.facts(cuda=True)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        found = {name: time_network(fabric, name, given.rounds) for name in given.networks.split(",")}
    console = Console()
    console.print(f"{facts['hardware']}, commit {facts['commit']}")
    console.print(as_table(found))
    measure.save(given.json, facts, {"rounds": given.rounds, "networks": found})


if __name__ == "__main__":
    main()
