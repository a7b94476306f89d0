"""What a run is computed on: Fabric, set up as the config says, and the processes that it needs."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from rectifier._base import check
from rectifier.data.store import available_cores
from rectifier.training.config import Config
from rectifier.training.engine.interrupt import Stopped

T = TypeVar("T")

# Which precision and processes it uses is no news to a user; nor that processes end when one of them failed.
for _name, _level in (
    ("lightning.fabric", logging.WARNING),
    ("lightning.pytorch", logging.WARNING),
    ("torch.multiprocessing.spawn", logging.ERROR),
):
    logging.getLogger(_name).setLevel(_level)


def make_fabric(config: Config, *, alone: bool = False) -> Fabric:
    """Return Fabric for this machine, or say what the machine lacks. ``alone`` is one process, whoever started it."""
    kind = accelerator_of(config)
    processes = config.devices * config.nodes
    if kind == "cpu" and config.precision == "16":
        check.fail("precision", "32, bf16 or 64 on a CPU", "'16', which a GPU alone has")
    if config.batch_size % processes:
        check.fail("batch_size", f"a multiple of the {processes} devices that share it", config.batch_size)
    started = _started_by_launcher() and not alone
    world = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
    if started and world != processes:
        check.fail("--devices times --nodes", f"{world}, the processes that were started", processes)
    if config.nodes > 1 and not started:
        remedy = "torchrun --nnodes N --nproc-per-node M ... $(which rectifier) train ..., or srun"
        check.fail("a run on several nodes", f"started once for each device ({remedy})", "a single process")
    strategy = "auto" if processes == 1 else "ddp" if started else "ddp_spawn"
    return Fabric(
        accelerator=kind,
        devices=config.devices,
        num_nodes=config.nodes,
        strategy=strategy,
        precision=_PRECISIONS[resolved_precision(config)],  # type: ignore[arg-type]
    )


@contextmanager
def shared_cores(fabric: Fabric, config: Config) -> Iterator[None]:
    """Let processes on one machine's CPU share its cores; each would take all of them. OMP_NUM_THREADS overrides."""
    before = torch.get_num_threads()
    if fabric.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(before, available_cores() // config.devices)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolved_precision(config: Config) -> str:
    """Return the precision that ``auto`` stands for on this machine."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if accelerator_of(config) == "cuda" and torch.cuda.is_bf16_supported() else "32"


def launch(fabric: Fabric, config: Config, work: Callable[..., T], *arguments: Any) -> T:
    """Run ``work(fabric, *arguments)`` in every process; return what the first gives."""
    if config.devices * config.nodes == 1 or _started_by_launcher():
        fabric.launch()
        return work(fabric, *arguments)
    with _passed_on() as passed, TemporaryDirectory() as box:
        # As bytes, since Fabric would look into the arguments and stumble over a frozen dataclass.
        job = pickle.dumps((work, arguments, box))
        try:
            result: T = fabric.launch(_boxed, job)  # type: ignore[arg-type]
        except (ProcessRaisedException, ProcessExitedException):
            left = [pickle.loads(path.read_bytes()) for path in sorted(Path(box).iterdir(), key=lambda p: int(p.name))]
            if passed:  # processes that were not training yet, or any more, just ended
                where = next((error.where for error in left if isinstance(error, Stopped)), "a point outside training")
                raise Stopped(passed[0], where) from None
            if left:  # the first process's error before all others
                raise left[0] from None
            raise
    return result


def _boxed(fabric: Fabric, job: bytes) -> Any:
    """Work, and leave an error in the box as it is: from another process it would come as the text of a traceback."""
    work, arguments, box = pickle.loads(job)
    try:
        return work(fabric, *arguments)
    except (ValueError, TypeError, OSError, ImportError, ArithmeticError, Stopped) as error:
        (Path(box) / str(fabric.global_rank)).write_bytes(pickle.dumps(error))
        raise


def is_first_process() -> bool:
    """Say whether this is the process that speaks: of those that a launcher started, the first."""
    return not _started_by_launcher() or int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) == 0


def gather_all(fabric: Fabric, own: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return what every process has, in the order of their ranks."""
    if fabric.world_size == 1:
        return [own]
    everyone: list[dict[str, Tensor]] = [{} for _ in range(fabric.world_size)]
    dist.all_gather_object(everyone, own)
    return everyone


_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed", "64": "64-true"}


def accelerator_of(config: Config) -> str:
    """Return the kind of device that a config means on this machine, or say what the machine lacks."""
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    kind = config.accelerator
    if kind == "auto":
        kind = "cuda" if there["cuda"] else "cpu"
    if not there[kind]:
        check.fail("accelerator", "one that this machine has", f"{kind!r}, of which there is none here")
    if kind != "cpu" and config.devices > there[kind]:
        check.fail("devices", f"at most {there[kind]}, the {kind} devices of this machine", config.devices)
    return kind


def _started_by_launcher() -> bool:
    """Say whether torchrun or SLURM has started one process for each device already."""
    # A script that sbatch runs has SLURM_NTASKS too, but only what srun starts is a step.
    by_slurm = "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1
    return "LOCAL_RANK" in os.environ or by_slurm


@contextmanager
def _passed_on() -> Iterator[list[int]]:
    """Hand SIGTERM and Ctrl-C to the processes that train, and note it; this one only waits for them."""
    noted: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        for process in multiprocessing.active_children():
            process.terminate()

    if threading.current_thread() is not threading.main_thread():  # only that one can listen
        yield noted
        return
    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
