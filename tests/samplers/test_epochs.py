"""Samplers advance by themselves, stay where they are told to, and resume."""

from __future__ import annotations

import copy
import pickle
from itertools import chain, islice
from typing import Any

import pytest
import torch

from helpers.samplers import SAMPLERS, SIZES, TARGETS, every_sampler, loader_of, plans_of, shuffled_classes
from rectifier.samplers import CurriculumSampler, DownSampler, ProgressiveSampler


@every_sampler
def test_every_iteration_is_the_next_epoch(make: Any) -> None:
    plans, sampler = plans_of(make(TARGETS, SIZES)), make(TARGETS, SIZES)
    assert sampler.epoch == 0
    for epoch, plan in enumerate(plans):
        assert list(sampler) == plan
        assert sampler.epoch == epoch
        assert sampler.plan().tolist() == plan
        assert len(sampler) == len(plan)


@every_sampler
def test_ranks_advance_alike(make: Any) -> None:
    plans = plans_of(make(TARGETS, SIZES, num_replicas=2, rank=0))
    ranks = [make(TARGETS, SIZES, num_replicas=2, rank=rank) for rank in range(2)]
    for plan in plans:
        assert [list(sampler) for sampler in ranks] == [plan[0::2], plan[1::2]]


@every_sampler
def test_an_epoch_starts_with_its_first_entry(make: Any) -> None:
    plans, sampler = plans_of(make(TARGETS, SIZES)), make(TARGETS, SIZES)
    iter(sampler)  # as PyTorch's loader with workers does
    assert next(iter(sampler)) == plans[0][0]  # and then a break
    second, third = iter(sampler), iter(sampler)
    firsts = [next(second), next(third)]
    assert [firsts[0], *second] == plans[1]
    assert [firsts[1], *third] == plans[2]


@every_sampler
def test_set_epoch_pins_the_epoch(make: Any) -> None:
    plans, sampler = plans_of(make(TARGETS, SIZES)), make(TARGETS, SIZES)
    list(sampler)
    for epoch in (2, 0, 1):
        sampler.set_epoch(epoch)
        assert list(sampler) == list(sampler) == plans[epoch]
        assert sampler.epoch == epoch


@pytest.mark.parametrize("name", ["over", "7 class batches"])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_loaders_with_and_without_workers(name: str, workers: dict[str, Any]) -> None:
    loader = loader_of(SAMPLERS[name](), **workers)
    for plan in plans_of(SAMPLERS[name]()):
        drawn = [batch.tolist() for batch in loader]
        assert drawn == plan if isinstance(plan[0], list) else list(chain.from_iterable(drawn)) == plan


@every_sampler
@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, lambda sampler: pickle.loads(pickle.dumps(sampler))])
def test_copies_go_on_from_the_same_epoch(make: Any, twin: Any) -> None:
    plans, sampler = plans_of(make(TARGETS, SIZES)), make(TARGETS, SIZES)
    list(sampler)
    other = twin(sampler)
    assert list(other) == list(sampler) == plans[1]
    sampler.set_epoch(0)
    assert list(twin(sampler)) == list(twin(sampler)) == plans[0]
    assert list(other) == plans[2]


@every_sampler
@pytest.mark.parametrize(("epochs", "drawn"), [(0, 0), (0, 3), (1, 0), (1, 5), (2, 0)])
def test_a_loaded_state_draws_the_rest(make: Any, epochs: int, drawn: int) -> None:
    plans, sampler = plans_of(make(TARGETS, SIZES, seed=4)), make(TARGETS, SIZES, seed=4)
    for _ in range(epochs):
        list(sampler)
    assert list(islice(sampler, drawn)) == plans[epochs][:drawn]
    state = pickle.loads(pickle.dumps(sampler.state_dict()))
    other = make(TARGETS, SIZES, seed=9)
    other.load_state_dict(state)
    assert all(other.state_dict()[name] == state[name] for name in ("seed", "epoch", "drawn"))
    for plan in [plans[epochs][drawn:], *plans[epochs + 1 :]]:
        assert list(other) == plan


@every_sampler
def test_set_epoch_after_a_loaded_state(make: Any) -> None:
    """A framework that counts epochs tells the sampler the epoch that it resumes, or another."""
    plans, sampler = plans_of(make(TARGETS, SIZES)), make(TARGETS, SIZES)
    for epoch, rest in ((0, plans[0][4:]), (1, plans[1])):
        sampler.load_state_dict(sampler.state_dict() | {"epoch": 0, "drawn": 4})
        sampler.set_epoch(epoch)
        assert list(sampler) == rest
        assert list(sampler) == plans[epoch]


def test_epochs_of_a_down_sampler_show_other_samples() -> None:
    sampler = DownSampler(shuffled_classes([990, 10]))
    seen = [set(sampler) for _ in range(3)]
    assert [len(samples) for samples in seen] == [20] * 3
    assert len(set.union(*seen)) > 35  # ten of the rare class, and thirty of the others less a few seen twice


@pytest.mark.parametrize("make", [ProgressiveSampler, CurriculumSampler])
def test_frequencies_progress_without_set_epoch(make: Any) -> None:
    targets = shuffled_classes([900, 100])
    sampler = make(targets, epochs=3, samples=5000)
    rare = [targets[torch.tensor(list(sampler))].double().mean().item() for _ in range(4)]
    assert rare[0] == pytest.approx(0.1, abs=0.02)
    assert 0.15 < rare[1] < 0.45
    assert rare[2:] == pytest.approx([0.5, 0.5], abs=0.03)
