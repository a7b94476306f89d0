"""The devices of a training: Fabric, and the processes that it needs."""

from __future__ import annotations

import atexit
import gc
import logging
import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from rectifier._base import check, console
from rectifier.data.store import available_cores
from rectifier.training.engine.interrupt import Interrupt, Stopped
from rectifier.training.engine.options import Options

T = TypeVar("T")

# Users need not read which precision and processes Fabric uses, nor that processes end when one of them fails.
logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)


def make_fabric(options: Options, *, alone: bool = False) -> Fabric:
    """Return Fabric for this machine, or say what the machine lacks. ``alone``: one process, without launcher."""
    kind, processes = accelerator_of(options), options.processes
    if kind == "cpu" and options.precision == "16":
        check.fail("precision", "32, bf16 or 64 on a CPU", "'16', which only a GPU has")
    if options.batch_size % processes:
        check.fail("batch_size", f"a multiple of the {processes} devices that share it", options.batch_size)
    started = _started_by_launcher() and not alone
    world = int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1)
    if started and world != processes:
        check.fail("devices times nodes", f"{world}, the number of started processes", processes)
    if options.nodes > 1 and not started:
        remedy = "torchrun --nnodes N --nproc-per-node M ... $(which rectifier) train ..., or srun"
        check.fail("a run on several nodes", f"started once for each device ({remedy})", "a single process")
    strategy = "auto" if processes == 1 else "ddp" if started else "ddp_spawn"
    return Fabric(
        accelerator=kind,
        devices=options.devices,
        num_nodes=options.nodes,
        strategy=strategy,
        precision=_PRECISIONS[resolved_precision(options)],  # type: ignore[arg-type]
    )


@contextmanager
def set_up(fabric: Fabric, options: Options) -> Iterator[None]:
    """Set PyTorch up for training. Afterwards its settings and random state are the caller's again.

    Processes on one CPU share its cores, unless OMP_NUM_THREADS is set. cuDNN searches for its fastest convolutions,
    unless the user wants deterministic ones. Only the first process prints messages.
    """
    cudnn, on_gpu = torch.backends.cudnn, fabric.device.type == "cuda"
    threads, benchmark = torch.get_num_threads(), cudnn.benchmark
    if fabric.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(threads, available_cores() // options.devices)))
    cudnn.benchmark = (on_gpu and not cudnn.deterministic) or benchmark
    quiet = nullcontext() if fabric.is_global_zero else console.quiet()
    try:
        with torch.random.fork_rng([fabric.device] if on_gpu else []), quiet:
            yield
    finally:
        torch.set_num_threads(threads)
        cudnn.benchmark = benchmark


def resolved_precision(options: Options) -> str:
    """Return the precision that ``auto`` stands for on this machine."""
    if options.precision != "auto":
        return options.precision
    return "bf16" if accelerator_of(options) == "cuda" and torch.cuda.is_bf16_supported() else "32"


def launch(fabric: Fabric, options: Options, work: Callable[..., T], *arguments: Any) -> T:
    """Run ``work(fabric, *arguments)`` in every process; return the result of the first."""
    if options.processes == 1 or _started_by_launcher():
        fabric.launch()
        if options.processes > 1:  # at the end of the program, because a later run uses the same group
            atexit.unregister(leave_group)
            atexit.register(leave_group)
        return work(fabric, *arguments)
    with Interrupt(_end_children) as interrupt, TemporaryDirectory() as box:
        # As bytes, because Fabric would look into the arguments and fail on a frozen dataclass.
        job = pickle.dumps((work, arguments, box))
        try:
            result: T = fabric.launch(_boxed, job)  # type: ignore[arg-type]
        except (ProcessRaisedException, ProcessExitedException):
            left = [pickle.loads(path.read_bytes()) for path in sorted(Path(box).iterdir(), key=lambda p: int(p.name))]
            if interrupt.signal is not None:  # processes that were not training just ended
                where = next((error.where for error in left if isinstance(error, Stopped)), "a point outside training")
                raise Stopped(interrupt.signal, where) from None
            if left:  # the error of the first process comes first
                raise left[0] from None
            raise
    return result


def _boxed(fabric: Fabric, job: bytes) -> Any:
    """Work, and put an error itself into the box: from another process only the text of its traceback arrives."""
    work, arguments, box = pickle.loads(job)
    try:
        return work(fabric, *arguments)
    except BaseException as error:
        if isinstance(error, ValueError | TypeError | OSError | ImportError | ArithmeticError | Stopped):
            (Path(box) / str(fabric.global_rank)).write_bytes(pickle.dumps(error))
        traceback.clear_frames(error.__traceback__)  # they hold networks that use the process group
        raise
    finally:
        leave_group()


def leave_group() -> None:
    """Free what uses the process group, then destroy the group.

    In the other order this process can wait forever. The group's destructor waits for threads that may need Python's
    lock to free their share of a wrapped network, and the destructor holds that lock.
    """
    gc.collect()  # wrapped networks are part of reference cycles
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def is_first_process() -> bool:
    """Say whether this process writes messages: the first of those that a launcher started."""
    return not _started_by_launcher() or int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0) == 0


def gather_all(fabric: Fabric, own: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Return the values of all processes, in the order of their ranks."""
    if fabric.world_size == 1:
        return [own]
    everyone: list[dict[str, Tensor]] = [{} for _ in range(fabric.world_size)]
    dist.all_gather_object(everyone, own)
    return everyone


_PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed", "64": "64-true"}


def accelerator_of(options: Options) -> str:
    """Return the kind of device to use on this machine, or say what the machine lacks."""
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    kind = options.accelerator
    if kind == "auto":
        kind = "cuda" if there["cuda"] else "cpu"
    if not there[kind]:
        raise ValueError(f"This machine has no {kind.upper()} GPU. Use accelerator='cpu'.")
    if kind != "cpu" and options.devices > there[kind]:
        check.fail("devices", f"at most {there[kind]}, the {kind} devices of this machine", options.devices)
    return kind


def _started_by_launcher() -> bool:
    """Say whether torchrun or SLURM has started one process for each device."""
    # A script that sbatch runs has SLURM_NTASKS too, but only what srun starts is a step.
    by_slurm = "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1
    return "LOCAL_RANK" in os.environ or by_slurm


def _end_children() -> None:
    """Pass a signal on to the processes that train. This process only waits for them."""
    for process in multiprocessing.active_children():
        process.terminate()
