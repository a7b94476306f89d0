"""The devices of a training: an error says what the machine lacks before anything starts."""

from __future__ import annotations

import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rectifier.training.engine import devices
from rectifier.training.engine.devices import gather_all, launch, leave_group, make_fabric, resolved_precision
from rectifier.training.engine.options import Options


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "SLURM_NTASKS", "SLURM_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)


def with_gpus(monkeypatch: pytest.MonkeyPatch, count: int, bf16: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


def options(**settings: Any) -> Options:
    return Options(**{"accelerator": "cpu", **settings})


# What the machine lacks


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_a_gpu_asked_for_and_absent(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with_gpus(monkeypatch, 0)
    message = f"This machine has no {kind.upper()} GPU. Use accelerator='cpu'."
    for ask in (make_fabric, resolved_precision):
        with pytest.raises(ValueError, match=message):
            ask(options(accelerator=kind))


@pytest.mark.parametrize("kind", ["cuda", "auto"])
def test_more_gpus_than_there_are(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with_gpus(monkeypatch, 2)
    with pytest.raises(ValueError, match="devices to be at most 2, the cuda devices of this machine, but got 4"):
        make_fabric(options(accelerator=kind, devices=4))


@pytest.mark.parametrize(
    ("settings", "processes"), [({"devices": 2}, 2), ({"devices": 3, "nodes": 2}, 6), ({"nodes": 5}, 5)]
)
def test_a_batch_that_the_devices_cannot_share(settings: dict[str, int], processes: int) -> None:
    message = rf"batch_size to be a multiple of the {processes} devices that share it, but got {7 * processes + 1}\."
    with pytest.raises(ValueError, match=message):
        make_fabric(options(batch_size=7 * processes + 1, **settings))


@pytest.mark.parametrize("tasks", [None, "1"])
def test_several_nodes_without_a_launcher(monkeypatch: pytest.MonkeyPatch, tasks: str | None) -> None:
    if tasks is not None:  # an allocation of SLURM in which nothing was started by srun
        monkeypatch.setenv("SLURM_NTASKS", tasks)
    with pytest.raises(ValueError, match=r"several nodes to be started once for each device \(torchrun .* or srun\)"):
        make_fabric(options(nodes=2))


# What it has


def test_the_cpu_is_always_there() -> None:
    fabric = make_fabric(options())
    assert (fabric.device.type, fabric.world_size) == ("cpu", 1)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("auto", torch.float32), ("32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_products_have_the_precision_that_was_asked_for(precision: str, dtype: torch.dtype) -> None:
    fabric = make_fabric(options(precision=precision))
    with fabric.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


@pytest.mark.parametrize(
    ("gpus", "bf16", "accelerator", "expected"),
    [(0, True, "auto", "32"), (1, True, "auto", "bf16"), (1, False, "auto", "32"), (1, True, "cpu", "32")],
)
def test_auto_is_bf16_on_a_gpu_that_has_it(
    monkeypatch: pytest.MonkeyPatch, gpus: int, bf16: bool, accelerator: str, expected: str
) -> None:
    with_gpus(monkeypatch, gpus, bf16)
    assert resolved_precision(options(accelerator=accelerator)) == expected


@pytest.mark.parametrize("precision", ["32", "bf16", "16"])
def test_a_precision_that_is_named_is_left_alone(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    with_gpus(monkeypatch, 1)
    assert resolved_precision(options(accelerator="cuda", precision=precision)) == precision


def test_half_precision_that_a_cpu_cannot_do_is_refused_and_not_exchanged() -> None:
    with pytest.raises(ValueError, match=r"Expected precision to be .* but got '16'"):
        make_fabric(options(precision="16"))


# Work in every process


def test_one_process_does_the_work_itself() -> None:
    one = options()
    found = launch(make_fabric(one), one, lambda fabric, *given: (fabric.world_size, given), 3, "x")
    assert found == (1, (3, "x"))


class TwoProcesses:
    """As Fabric starts them: all do the work, what the first returns comes back, what any raises is raised."""

    def launch(self, function: Callable[..., Any], *arguments: Any) -> Any:
        found = [function(SimpleNamespace(global_rank=rank, is_global_zero=rank == 0), *arguments) for rank in (1, 0)]
        return found[-1]


def rank_of(fabric: Any) -> int:
    return int(fabric.global_rank)


def fail_in(fabric: Any, rank: int) -> str:
    if fabric.global_rank == rank:
        raise ValueError(f"process {rank} fails")
    return "done"


def test_what_the_first_of_several_processes_gives() -> None:
    assert launch(TwoProcesses(), options(devices=2), rank_of) == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_in_any_process_comes_home(rank: int) -> None:
    with pytest.raises(Exception, match=f"process {rank} fails"):
        launch(TwoProcesses(), options(devices=2), fail_in, rank)


@pytest.mark.parametrize("rank", [0, 2])
def test_the_handler_of_sigterm_is_as_before_when_the_processes_are_done(rank: int) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        launch(TwoProcesses(), options(devices=2), fail_in, rank)
    except ValueError:
        assert rank == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_one_process_has_is_all() -> None:
    own = {"cpu": torch.arange(3)}
    assert gather_all(make_fabric(options()), own) == [own]


# The end of a process group


class Held:
    """Stands for a wrapped network."""


HELD: list[weakref.ref[Held]] = []


def fail_and_hold(fabric: Any) -> None:
    held = Held()
    HELD.append(weakref.ref(held))
    raise ValueError("it fails")


def test_an_error_keeps_no_network_alive_when_the_group_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[bool] = []
    monkeypatch.setattr(devices, "leave_group", lambda: freed.append(HELD[-1]() is None))
    with pytest.raises(ValueError, match="it fails"):
        launch(TwoProcesses(), options(devices=2), fail_and_hold)
    assert freed == [True]


def test_a_group_ends_after_the_networks_that_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    wrapped = DistributedDataParallel(nn.Linear(2, 1))
    cycle: list[Any] = [wrapped]
    cycle.append(cycle)
    alive, destroy, order = weakref.ref(wrapped), dist.destroy_process_group, []
    monkeypatch.setattr(dist, "destroy_process_group", lambda: (order.append(alive() is None), destroy()))
    del wrapped, cycle
    for _ in range(2):  # the second time there is nothing to leave
        leave_group()
    assert order == [True]
    assert not dist.is_initialized()
