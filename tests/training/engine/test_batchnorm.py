"""Batch normalisation of two processes against one process on the joined batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from rectifier.training.engine.batchnorm import GlobalBatchNorm1d, GlobalBatchNorm2d, with_global_batch_norm

WORLD, STEPS = 2, 2
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def images() -> nn.Module:
    first, second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3, stride=2)
    return nn.Sequential(
        first, nn.BatchNorm2d(4), nn.Tanh(), nn.Sequential(second, nn.BatchNorm2d(5)), nn.Flatten(), nn.Linear(20, 3)
    )


def rows(**options: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5, **options), nn.Tanh(), nn.Linear(5, 3))


def switched_off() -> nn.Module:
    network = rows()
    network[1].track_running_stats = False  # the buffers are there and must stay as they are
    return network


# name: (network, shape of one sample, rows of each rank)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], list[int]]] = {
    "images": (images, (3, 7, 7), [4, 4]),
    "images, uneven": (images, (3, 7, 7), [5, 2]),
    "rows": (rows, (6,), [6, 6]),
    "rows, uneven": (rows, (6,), [9, 1]),
    "rows on the first rank alone": (rows, (6,), [7, 0]),
    "cumulative average": (lambda: rows(momentum=None), (6,), [5, 3]),
    "other momentum and eps": (lambda: rows(momentum=0.7, eps=0.1), (6,), [5, 3]),
    "not affine": (lambda: rows(affine=False), (6,), [5, 3]),
    "no running statistics": (lambda: rows(track_running_stats=False), (6,), [5, 3]),
    "running statistics switched off": (switched_off, (6,), [5, 3]),
    "bare 1d of sequences": (lambda: nn.BatchNorm1d(3), (3, 4), [3, 2]),
    "bare 3d": (lambda: nn.BatchNorm3d(2), (2, 2, 3, 2), [1, 3]),
}


def build(name: str, dtype: torch.dtype) -> nn.Module:
    """Return the network of a case with weights that are random, those of batch normalisation too."""
    network = CASES[name][0]().to(dtype)
    generator = torch.Generator().manual_seed(1)
    for parameter in network.parameters():
        parameter.data.uniform_(-1, 1, generator=generator)
    return network


def joined_batch(name: str, step: int, dtype: torch.dtype) -> Tensor:
    _, shape, counts = CASES[name]
    generator = torch.Generator().manual_seed(step)
    return (2 * torch.randn(sum(counts), *shape, generator=generator, dtype=torch.float64) + 1).to(dtype)


def train(network: nn.Module, name: str, dtype: torch.dtype, rank: int | None = None) -> dict[str, Tensor]:
    """Return all that training leaves behind, on one rank's rows of the batch or, without a rank, on all of them.

    A rank's loss is that of its rows, times the number of ranks as ``losses/gather.py`` has it.
    """
    results: dict[str, Tensor] = {}
    for step in range(STEPS):
        batch = joined_batch(name, step, dtype)
        own = batch if rank is None else batch.split(CASES[name][2])[rank]
        x = own.clone().requires_grad_()
        network.zero_grad()
        outputs = network(x)
        loss = (outputs.sin() * (2 + outputs)).sum() / len(batch) * (1 if rank is None else WORLD)
        loss.backward()
        results |= {f"outputs {step}": outputs.detach(), f"input gradient {step}": x.grad}
    module = network.module if isinstance(network, DistributedDataParallel) else network
    results |= {f"gradient {key}": parameter.grad for key, parameter in module.named_parameters()}
    return results | {f"state {key}": value for key, value in module.state_dict().items()}


def far_rows() -> Tensor:
    """Values whose mean is 10,000 times their deviation, and not the same on both ranks."""
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(2)) + 1e4
    x[40:] += 3
    return x


def run_far(rank: int) -> dict[str, Tensor]:
    layer = with_global_batch_norm(nn.BatchNorm1d(3, momentum=1.0))
    return {"outputs": layer(far_rows().split([40, 24])[rank]).detach(), **layer.state_dict()}


def run_autocast(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return {"outputs": network(x).detach(), **network[1].state_dict()}


def autocast_case() -> tuple[nn.Module, Tensor]:
    network = rows()[:2]
    for parameter in network.parameters():
        parameter.data.uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    return network, torch.randn(12, 6, generator=torch.Generator().manual_seed(2))


def complaint(rank: int) -> str:
    with pytest.raises(ValueError, match="Expected") as caught:
        with_global_batch_norm(nn.BatchNorm1d(3))(torch.zeros(1 - rank, 3))
    return str(caught.value)


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    results: dict[Any, Any] = {}
    for dtype in TOLERANCE:
        for name in CASES:
            network = DistributedDataParallel(with_global_batch_norm(build(name, dtype)))
            results[name, dtype] = train(network, name, dtype, rank)
    results["far"] = run_far(rank)
    network, x = autocast_case()
    results["autocast"] = run_autocast(with_global_batch_norm(network), x.split([5, 7])[rank])
    results["complaint"] = complaint(rank)
    plain, x = build("rows", torch.float32).eval(), joined_batch("rows", 0, torch.float32)
    results["eval"] = torch.equal(plain(x), with_global_batch_norm(copy.deepcopy(plain))(x))
    torch.save(results, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    mp.start_processes(run_rank, (str(folder),), nprocs=WORLD, start_method="spawn")
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_what_one_process_trains_on_the_joined_batch(
    ranks: list[dict[Any, Any]], name: str, dtype: torch.dtype
) -> None:
    expected = train(build(name, dtype), name, dtype)
    for rank, results in enumerate(each[name, dtype] for each in ranks):
        assert results.keys() == expected.keys()
        for key, want in expected.items():
            got = results[key]
            if key.startswith(("outputs", "input")):
                want = want.split(CASES[name][2])[rank]
            if key.startswith("input"):  # what DDP does to the parameters' gradients
                got = got / WORLD
            torch.testing.assert_close(
                got, want, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype], msg=lambda m, k=key: f"{k}: {m}"
            )


def test_ranks_keep_bit_equal_statistics(ranks: list[dict[Any, Any]]) -> None:
    for name in CASES:
        for key, value in ranks[0][name, torch.float32].items():
            assert not key.startswith("state") or torch.equal(value, ranks[1][name, torch.float32][key])


def test_variance_is_right_far_from_zero(ranks: list[dict[Any, Any]]) -> None:
    exact = far_rows().double()
    outputs = torch.cat([each["far"]["outputs"] for each in ranks]).double()
    torch.testing.assert_close(ranks[0]["far"]["running_var"].double(), exact.var(0), atol=0, rtol=1e-6)
    torch.testing.assert_close(ranks[0]["far"]["running_mean"].double(), exact.mean(0), atol=0, rtol=1e-7)
    want = (exact - exact.mean(0)) / (exact.var(0, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(outputs, want, atol=1e-5, rtol=0)


def test_statistics_are_float32_inside_autocast(ranks: list[dict[Any, Any]]) -> None:
    network, x = autocast_case()
    expected = run_autocast(network, x)
    outputs = torch.cat([each["autocast"].pop("outputs") for each in ranks])
    torch.testing.assert_close(outputs, expected.pop("outputs"), atol=0.02, rtol=0)  # of dtype bfloat16 both
    for key, want in expected.items():
        torch.testing.assert_close(ranks[0]["autocast"][key], want, atol=1e-6, rtol=1e-6)


def test_one_value_in_all_ranks_has_no_variance(ranks: list[dict[Any, Any]]) -> None:
    sentence = "Expected the values per channel of all ranks together to be two or more in training, but got 1."
    assert [each["complaint"] for each in ranks] == [sentence, sentence]


def test_evaluation_is_bit_equal_where_there_are_ranks(ranks: list[dict[Any, Any]]) -> None:
    assert all(each["eval"] for each in ranks)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", CASES)
def test_one_process_is_bit_equal(name: str, mode: str) -> None:
    plain = build(name, torch.float32).train(mode == "train")
    changed = with_global_batch_norm(copy.deepcopy(plain))
    expected, results = (train(network, name, torch.float32) for network in (plain, changed))
    assert results.keys() == expected.keys()
    assert all(torch.equal(results[key], want) for key, want in expected.items())


@pytest.mark.parametrize("name", CASES)
def test_parameters_and_buffers_are_the_same_objects_under_the_same_names(name: str) -> None:
    network = build(name, torch.float32)
    before = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    changed = with_global_batch_norm(network)
    after = {**dict(changed.named_parameters()), **dict(changed.named_buffers())}
    assert list(before) == list(after)
    assert all(before[key] is after[key] for key in before)
    CASES[name][0]().load_state_dict(changed.state_dict())
    changed.load_state_dict(CASES[name][0]().state_dict())


def test_every_layer_is_replaced_and_keeps_its_mode_and_dtype() -> None:
    shared = nn.BatchNorm1d(2).double().eval()
    network = nn.ModuleDict({"nested": images(), "one": shared, "two": shared, "bare": nn.BatchNorm3d(2)})
    changed = with_global_batch_norm(with_global_batch_norm(network))
    assert not [m for m in changed.modules() if type(m) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)]
    assert type(changed["nested"][3][1]) is GlobalBatchNorm2d
    assert type(changed["one"]) is GlobalBatchNorm1d
    assert changed["one"] is changed["two"]
    assert (changed["one"].training, changed["nested"][1].training) == (False, True)
    assert changed["one"].weight.dtype == torch.float64


def test_a_derived_layer_is_left_alone_with_a_warning() -> None:
    class Activated(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    network = nn.Sequential(Activated(2), nn.BatchNorm2d(2))
    with pytest.warns(UserWarning, match="Activated will normalise by the rows of one rank"):
        with_global_batch_norm(network)
    assert [type(layer) for layer in network] == [Activated, GlobalBatchNorm2d]


def test_layers_on_cuda_become_those_of_torch() -> None:
    with FakeTensorMode():  # tensors that say they are on CUDA, on any machine
        shared = nn.BatchNorm2d(4, device="cuda")
        network = nn.ModuleDict({"one": shared, "two": shared, "three": nn.BatchNorm1d(4)})
        parameters = list(network.parameters())
        changed = with_global_batch_norm(network)
    assert type(changed["one"]) is nn.SyncBatchNorm
    assert changed["one"] is changed["two"]
    assert type(changed["three"]) is GlobalBatchNorm1d
    assert all(new is old for new, old in zip(changed.parameters(), parameters, strict=True))
