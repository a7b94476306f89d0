"""Run a function in two processes, as torchrun would start it."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2


def in_two_processes(function: Callable[[], Any], folder: Path) -> list[Any]:
    """Return what the function returns in each process. It stands at the top of a module."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(_run, (function, port, str(folder)), nprocs=WORLD, start_method="spawn")
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(WORLD)]


def _run(rank: int, function: Callable[[], Any], port: int, folder: str) -> None:
    torch.set_num_threads(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": WORLD, "LOCAL_WORLD_SIZE": WORLD}
    own = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "TORCHELASTIC_RUN_ID": "tests"}
    os.environ.update({name: str(value) for name, value in (shared | own).items()})
    (Path(folder) / str(rank)).write_bytes(pickle.dumps(function()))
    if dist.is_initialized():
        dist.destroy_process_group()
