"""What all benchmarks share: options, facts about the machine, time and peak memory of functions that take turns."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def parser(about: str | None, rounds: int, devices: Sequence[str] = ("cpu", "cuda")) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; the first device is the default."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=devices, default=devices[0])
    made.add_argument("--rounds", type=int, default=rounds, help="measurements, of which the median counts")
    made.add_argument("--json", type=Path, help="also write every number to this file")
    return made


def arguments(made: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line. Choose the fastest kernels on a GPU, and end where there is none."""
    given = made.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        made.error("no CUDA device is available here")
    torch.backends.cudnn.benchmark = True
    return given


def save(path: Path | None, *values: Mapping[str, Any]) -> None:
    """Write facts and numbers as one JSON object, if a file is given."""
    if path is not None:
        joined = {key: value for one in values for key, value in one.items()}
        path.write_text(json.dumps(joined, indent=1) + "\n")


def milliseconds(candidates: dict[str, Callable[[], object]], rounds: int, cuda: bool) -> dict[str, float]:
    """Return the median time of each candidate.

    All take turns, so that a slow moment hits all of them. The order changes, so that none always follows the one that
    leaves the caches cold.
    """
    order = random.Random(0)
    for run in candidates.values():
        for _ in range(3):
            run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in order.sample(list(candidates.items()), len(candidates)):
            if cuda:
                torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            if cuda:
                torch.cuda.synchronize()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: median(taken) for name, taken in times.items()}


def peak_bytes(run: Callable[[], object], cuda: bool) -> int:
    """Return how far memory rises during a call."""
    if cuda:
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - held
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces every start otherwise
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    running = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        running += event.nbytes()
        highest = max(highest, running)
    return highest


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """Capture a function as a CUDA graph and return its replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def facts(cuda: bool) -> dict[str, str]:
    return {"hardware": hardware(cuda), "commit": commit()}


def hardware(cuda: bool) -> str:
    name = torch.cuda.get_device_name() if cuda else f"{torch.get_num_threads()} CPU threads, {_processor()}"
    return f"{name}, Python {platform.python_version()}, torch {torch.__version__}"


def commit() -> str:
    """Return the commit of this checkout, marked if files differ from it. RECTIFIER_COMMIT overrides it."""
    if given := os.environ.get("RECTIFIER_COMMIT"):
        return given
    here = Path(__file__).parent
    found = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
