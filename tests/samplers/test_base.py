"""What every sampler keeps: seed, epoch, ranks, length; and the uniform sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from helpers.samplers import REGISTRY, SIZES, TARGETS, every_sampler
from rectifier import LabelSpace
from rectifier.samplers import UniformSampler


@every_sampler
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_shards_are_equal_and_together_exactly_the_plan(make: Any, ranks: int) -> None:
    alone = make(TARGETS, SIZES, seed=4)
    ranked = [make(TARGETS, SIZES, seed=4, num_replicas=ranks, rank=rank) for rank in range(ranks)]
    for epoch in range(3):
        for sampler in (alone, *ranked):
            sampler.set_epoch(epoch)
        plan = ranked[0].plan()
        assert plan.dtype == torch.int64
        assert 0 <= len(alone.plan()) - len(plan) < ranks
        assert torch.equal(plan, alone.plan()[: len(plan)])
        together = torch.empty_like(plan)
        for rank, sampler in enumerate(ranked):
            assert torch.equal(sampler.plan(), plan)
            assert len(sampler) == len(sampler.shard()) == len(plan) // ranks
            assert list(sampler) == sampler.shard().tolist()
            together[rank::ranks] = sampler.shard()
        assert torch.equal(together, plan)


@every_sampler
def test_the_plan_follows_seed_and_epoch_alone(make: Any) -> None:
    def plan(seed: int, epoch: int) -> list[Any]:
        sampler = make(TARGETS, SIZES, seed=seed)
        sampler.set_epoch(epoch)
        assert torch.equal(sampler.plan(), sampler.plan())
        return sampler.plan().tolist()

    plans = {(seed, epoch): plan(seed, epoch) for seed in range(4) for epoch in range(4)}
    torch.manual_seed(77)
    assert all(plan(*key) == order for key, order in plans.items())
    assert len(set(map(str, plans.values()))) == len(plans)


@every_sampler
def test_the_length_is_that_of_every_epoch(make: Any) -> None:
    sampler = make(TARGETS, SIZES)
    for epoch in range(20):
        sampler.set_epoch(epoch)
        assert len(sampler.draw(torch.Generator().manual_seed(epoch))) == sampler.total == len(sampler)


@every_sampler
def test_the_global_random_state_is_left_alone(make: Any) -> None:
    before = torch.get_rng_state()
    list(make(TARGETS, SIZES))
    assert torch.equal(before, torch.get_rng_state())


@every_sampler
def test_every_way_of_giving_the_labels(make: Any) -> None:
    plan = make(TARGETS, SIZES).plan()
    assert torch.equal(make(TARGETS.int(), np.array(SIZES)).plan(), plan)
    assert torch.equal(make(TARGETS, LabelSpace.from_sizes(SIZES)).plan(), plan)
    assert torch.equal(make(TARGETS.tolist(), SIZES).plan(), plan)
    assert torch.equal(make(TARGETS.numpy(), tuple(SIZES)).plan(), plan)
    one = TARGETS[:, 2]
    assert torch.equal(make(one).plan(), make(one[:, None], [9]).plan())
    assert torch.equal(make(one).plan(), make(one.tolist(), 9).plan())
    assert torch.equal(make(one).plan(), make(torch.where(one < 0, -100, one), [12]).plan())  # and absent classes


@every_sampler
def test_the_default_device_does_not_matter(make: Any) -> None:
    with torch.device("meta"):
        plan = make(TARGETS, SIZES).plan()
    assert torch.equal(plan, make(TARGETS, SIZES).plan())


@every_sampler
def test_it_drives_a_loader(make: Any) -> None:
    sampler = make(TARGETS, SIZES)
    batched = sampler.plan().dim() == 2
    loader = DataLoader(range(90), **({"batch_sampler": sampler} if batched else {"sampler": sampler}))  # type: ignore
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected = sampler.plan().tolist() if batched else [[i] for i in sampler.plan().tolist()]
        assert [batch.tolist() for batch in loader] == expected
        assert len(loader) == len(expected)


@every_sampler
def test_a_process_group_counts_only_if_asked(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ValueError, match=r"distributed=True needs a process group. Call torch.distributed.init_process"
    ):
        make(TARGETS, SIZES, distributed=True)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    assert (make(TARGETS, SIZES).num_replicas, make(TARGETS, SIZES).rank) == (1, 0)
    asked = make(TARGETS, SIZES, distributed=True)
    assert (asked.num_replicas, asked.rank) == (3, 2)
    assert torch.equal(asked.shard(), make(TARGETS, SIZES, num_replicas=3, rank=2).shard())
    with pytest.raises(ValueError, match=r"num_replicas and rank to be None with distributed=True, but got \(3, 2\)"):
        make(TARGETS, SIZES, num_replicas=3, rank=2, distributed=True)


@every_sampler
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"seed": -1}, "seed to be an integer from 0, but got -1"),
        ({"seed": 0.5}, "seed to be an integer from 0, but got 0.5"),
        ({"num_replicas": 0}, "num_replicas to be a positive integer, but got 0"),
        ({"num_replicas": "two", "rank": 0}, "num_replicas to be a positive integer, but got 'two'"),
        ({"num_replicas": 2, "rank": 2}, r"rank to be .* below num_replicas \(2\), but got 2"),
        ({"num_replicas": 2, "rank": -1}, r"rank to be .* below num_replicas \(2\), but got -1"),
        ({"num_replicas": 2}, r"rank to be .* below num_replicas \(2\), but got None"),
        ({"num_replicas": 2}, "Pass both num_replicas and rank, or distributed=True"),
        ({"rank": 1}, "num_replicas to be a positive integer, but got None.*Pass both num_replicas and rank"),
        ({"distributed": 1}, "distributed to be True or False, but got 1"),
        ({"num_replicas": 2, "rank": 5, "seed": True}, "seed to be .*\n.*rank to be"),
        ({"num_replicas": 10**6, "rank": 3}, "epoch to be of at least one entry for each of the 1000000 ranks"),
    ],
)
def test_wrong_options(make: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){complaint}"):
        make(TARGETS, SIZES, **options)


@every_sampler
def test_wrong_epoch_and_unknown_option(make: Any) -> None:
    with pytest.raises(ValueError, match="epoch to be an integer from 0, but got -1"):
        make(TARGETS, SIZES).set_epoch(-1)
    with pytest.raises(TypeError, match="shuffle"):
        make(TARGETS, SIZES, shuffle=True)


@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "uniform"])
def test_wrong_targets(name: str) -> None:
    make = REGISTRY[name]
    with pytest.raises(ValueError, match="at least one sample with a label, but got 2 samples without"):
        make(torch.full((2, 2), -1), [2, 2])
    with pytest.raises(ValueError, match="at least one sample with a label, but got 0 samples without"):
        make(torch.empty(0, dtype=torch.int64))
    with pytest.raises(TypeError, match="integer tensor of class indices"):
        make([0.0, 1.0])
    with pytest.raises(ValueError, match="below 2, its number of classes"):
        make(torch.tensor([[0, 2]]), [2, 2])


@pytest.mark.parametrize("seeds", [range(1000), range(10**9, 10**9 + 1000)])
def test_no_epoch_of_one_seed_is_an_epoch_of_another(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds up to a thousand apart stay more than a million epochs apart, on the circle of 32 bits."""
    seen = []
    sampler = UniformSampler(1)
    monkeypatch.setattr(sampler, "draw", lambda generator: seen.append(generator.initial_seed()) or torch.zeros(1))
    for sampler.seed in seeds:
        sampler.plan()
    steps = sorted(seen)
    assert min(b - a for a, b in zip(steps, [*steps[1:], steps[0] + 2**32], strict=True)) > 10**6
    sampler.epoch = 1
    sampler.plan()
    assert seen[-1] == (seen[-2] + 1) % 2**32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_sampler
def test_targets_on_a_gpu(make: Any) -> None:
    assert torch.equal(make(TARGETS.cuda(), SIZES).plan(), make(TARGETS, SIZES).plan())


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_uniform_shards_share_no_sample(ranks: int) -> None:
    shards = [set(UniformSampler(91, num_replicas=ranks, rank=rank)) for rank in range(ranks)]
    assert len(set.union(*shards)) == sum(map(len, shards)) == 91 // ranks * ranks


def test_uniform_takes_targets_or_their_number() -> None:
    for given in (TARGETS, TARGETS.tolist(), np.int64(90)):
        assert torch.equal(UniformSampler(given).plan(), UniformSampler(90).plan())  # type: ignore[arg-type]
    for wrong in (0, -2, 1.5, [], torch.empty(0), torch.tensor(3)):
        with pytest.raises(ValueError, match="targets to be those of at least one sample, or a positive number"):
            UniformSampler(wrong)  # type: ignore[arg-type]
