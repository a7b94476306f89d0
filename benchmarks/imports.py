"""The time that imports take, each in a new process, after ``import torch``.

    python benchmarks/imports.py [--rounds 20] [--json FILE]

All candidates take turns. Seconds are what the import adds to torch's own; ratios are to torch's own.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

import measure
from rich.console import Console
from rich.table import Table

ADDED = {
    "the loss": "from rectifier import RectifiedCrossEntropy",
    "samplers": "import rectifier.samplers",
    "metric": "from rectifier import ClassBalancedAccuracy",
    "training": "from rectifier import train",
}
CODE = """
import time
start = time.perf_counter()
import torch
middle = time.perf_counter()
{}
print(middle - start, time.perf_counter() - middle)
"""


def seconds(statement: str) -> tuple[float, float]:
    """Return how long torch takes in a new process, and how long the statement takes after it."""
    done = subprocess.run([sys.executable, "-c", CODE.format(statement)], capture_output=True, text=True, check=True)
    torch, added = map(float, done.stdout.split())
    return torch, added


def medians(rounds: int) -> dict[str, float]:
    """Return the median time of torch and of what each candidate adds to it."""
    for statement in ADDED.values():
        seconds(statement)  # the first time reads files from disk, and may compile them
    turns = [(name, *seconds(statement)) for _ in range(rounds) for name, statement in ADDED.items()]
    own = median(torch for _, torch, _ in turns)
    return {"torch": own} | {name: median(added for one, _, added in turns if one == name) for name in ADDED}


def main() -> None:
    given = measure.arguments(measure.parser(__doc__, rounds=20, devices=["cpu"]))
    facts, found = measure.facts(cuda=False), medians(given.rounds)
    console, table = Console(), Table("import", "seconds", "ratio to torch")
    console.print(f"{facts['hardware']}\ncommit {facts['commit']}, median of {given.rounds} rounds")
    for name, taken in found.items():
        table.add_row(name, f"{taken:.3f}", f"{taken / found['torch']:.3f}")
    console.print(table)
    measure.save(given.json, facts, {"rounds": given.rounds, "seconds": found})


if __name__ == "__main__":
    main()
