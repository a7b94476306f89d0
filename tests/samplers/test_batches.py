"""What frameworks expect of batch samplers, and samplers in a process group."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from helpers.processes import in_two_processes
from helpers.samplers import REGISTRY, SAMPLERS, SIZES, TARGETS, drawn_from, loader_of, padding, plans_of
from rectifier.samplers import EpochBatchSampler, QuintupletSampler

BATCHED = {name: make for name, make in REGISTRY.items() if isinstance(make(TARGETS, SIZES), EpochBatchSampler)}
every_batch_sampler = pytest.mark.parametrize("make", BATCHED.values(), ids=BATCHED)


def test_all_samplers_of_batches_are_found() -> None:
    assert list(BATCHED) == [name for name, make in REGISTRY.items() if make(TARGETS, SIZES).plan().dim() == 2]


@every_batch_sampler
def test_it_is_a_batch_sampler_of_its_samples(make: Any) -> None:
    plans, sampler = plans_of(make(TARGETS, SIZES)), make(TARGETS, SIZES)
    assert isinstance(sampler, BatchSampler)
    again = BatchSampler(sampler.sampler, sampler.batch_size, sampler.drop_last)
    assert len(again) == len(sampler)
    assert len(sampler.sampler) == len(sampler) * sampler.batch_size
    assert [list(again) for _ in plans] == plans
    sampler.sampler.set_epoch(1)  # as Lightning and accelerate do
    assert list(sampler) == list(again) == plans[1]


@every_batch_sampler
def test_it_takes_the_shard_of_a_distributed_sampler(make: Any) -> None:
    injected = DistributedSampler(range(90), num_replicas=3, rank=1)
    sampler = make(TARGETS, SIZES)
    other = sampler._sharded_like(injected)
    assert list(other) == make(TARGETS, SIZES, num_replicas=3, rank=1).shard().tolist()
    assert list(sampler) == sampler.plan().tolist()  # whole, as before
    assert sampler._sharded_like(SequentialSampler(range(90))).num_replicas == 1
    assert make(TARGETS, SIZES, num_replicas=2, rank=1)._sharded_like(injected).num_replicas == 2


def test_shards_share_what_is_mined() -> None:
    sampler: Any = REGISTRY["quintuplets"](TARGETS, SIZES)
    other = sampler._sharded_like(DistributedSampler(range(90), num_replicas=2, rank=0))
    mined: Any = REGISTRY["quintuplets, mined"](TARGETS, SIZES)
    sampler.load(mined.state())
    assert other.rounds == sampler.rounds == 1
    assert other.shard().tolist() == sampler.plan().tolist()[::2]


def test_by_default_every_rank_has_a_batch() -> None:
    small = QuintupletSampler(TARGETS[:9], SIZES, quintuplets=3)
    assert len(small) == 1
    shards = [small._sharded_like(DistributedSampler(range(9), num_replicas=2, rank=rank)) for rank in range(2)]
    assert [list(shards[0]), list(shards[1])] == [[batch] for batch in shards[0].plan().tolist()]


CUT = {"over": 150, "down": 12, "progressive": 40, "7 class batches": 6, "8 class batches": 8, "quintuplets": 6}


def run_group() -> dict[str, list[list[list[int]]]]:
    dist.init_process_group("gloo")
    return {name: drawn_from(loader_of(make(distributed=True))) for name, make in SAMPLERS.items()}


def test_ranks_of_a_process_group_draw_the_plan_of_each_epoch(tmp_path: Any) -> None:
    ranks = in_two_processes(run_group, tmp_path)
    for name, make in SAMPLERS.items():
        plans = [plan[: CUT[name]] for plan in plans_of(make())]
        assert padding([rank[name] for rank in ranks], plans) == [[]] * len(plans)
