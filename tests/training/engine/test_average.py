"""The average of weights against its formula, weight by weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oracles_finetune import averaged
from rectifier.training.engine.average import Average


def trained(network: nn.Module, average: Average, steps: int) -> list[torch.Tensor]:
    """Walk the weight randomly, and return it before the first step and after each."""
    g, weight = torch.Generator().manual_seed(0), network.get_parameter("weight").detach()
    path = [weight.clone()]
    for step in range(1, steps + 1):
        weight += torch.randn(weight.shape, generator=g, dtype=weight.dtype)
        average.update(step)
        path.append(weight.clone())
    return path


@pytest.mark.parametrize("keep", [0.1, 0.9, 0.999])
@pytest.mark.parametrize("steps", [0, 1, 40])
def test_the_average_is_its_formula(keep: float, steps: int) -> None:
    network = nn.Linear(3, 2).double()
    average = Average(network, keep)
    path = [weight.flatten().tolist() for weight in trained(network, average, steps)]
    expected = [averaged(weight, keep) for weight in zip(*path, strict=True)]
    assert average.weights["weight"].flatten().tolist() == pytest.approx(expected, abs=1e-12)


def test_the_average_of_constant_weights_is_these_weights() -> None:
    network = nn.Sequential(nn.Linear(50, 50), nn.BatchNorm1d(50))
    average = Average(network, 0.97)
    for step in range(1, 30):
        average.update(step)
    assert all(torch.equal(weight, average.weights[name]) for name, weight in network.named_parameters())


def test_the_network_holds_the_average_only_inside_the_block() -> None:
    network = nn.Linear(3, 2)
    average = Average(network, 0.9)
    last = trained(network, average, 5)[-1]
    where = network.weight.data_ptr()

    def failing_validation() -> None:
        with average.in_place():
            assert torch.equal(network.weight, average.weights["weight"])
            assert not torch.equal(network.weight, last)
            assert network.weight.data_ptr() == where  # a captured graph reads this memory
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        failing_validation()
    assert torch.equal(network.weight, last)


def test_buffers_and_frozen_weights_are_the_networks_own() -> None:
    network = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.BatchNorm1d(2))
    average = Average(network, 0.9)
    assert set(average.weights) == {"1.weight", "1.bias"}
    network[1].running_mean.fill_(3.0)
    with average.in_place():
        assert network[1].running_mean.tolist() == [3.0, 3.0]


def test_without_averaging_nothing_is_kept() -> None:
    network = nn.Linear(2, 2)
    average = Average(network, 0.0)
    average.update(1)
    with average.in_place():
        assert average.weights == {}


def test_a_saved_average_loads_into_its_own_memory() -> None:
    network = nn.Linear(2, 2)
    one, two = Average(network, 0.9), Average(network, 0.9)
    trained(network, one, 3)
    before = two.weights["weight"]
    two.load(one.weights)
    assert two.weights["weight"] is before
    assert torch.equal(before, one.weights["weight"])
