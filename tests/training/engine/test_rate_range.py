"""The rate range test: its rates, its smoothed losses against loops, and that nothing given to it changes."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch import nn

from oracles_finetune import smoothed
from rectifier._base import console
from rectifier.data import Loader, open_data
from rectifier.data.loader import Batch
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.objective import Objective
from rectifier.methods import build_objective
from rectifier.networks.head import Output
from rectifier.networks.registry import build_network
from rectifier.training.engine import rate_range
from rectifier.training.engine.options import Options
from rectifier.training.engine.rate_range import RateCurve, find_rate

DIGITS = open_data("digits")
FABRIC = Fabric(accelerator="cpu", devices=1)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with console.quiet():
        yield


def parts(**options: Any) -> tuple[Any, ...]:
    network = build_network("mlp", DIGITS.space, (8, 8, 1), seed=0)
    loader = Loader(DIGITS, "train", 64, shuffle=True)
    return FABRIC, network, Objective(CrossEntropyLoss(), DIGITS.space), loader, Options(**options)


def plain_losses(rates: tuple[float, ...]) -> list[float]:
    """Train with plain SGD at these rates, and return the loss before each step."""
    _, network, objective, loader, _ = parts()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=0.9, weight_decay=5e-4)
    batches = [batch for _ in range(20) for batch in loader]
    losses = []
    for rate, batch in zip(rates, batches, strict=False):
        optimizer.param_groups[0]["lr"] = rate
        loss = objective(network(batch.images).logits, batch.targets)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def test_the_curve_is_a_plain_loop_at_rising_rates() -> None:
    curve = find_rate(*parts(), lowest=1e-5, highest=1.0, steps=41)
    assert curve.rates == pytest.approx([10 ** (-5 + i / 8) for i in range(len(curve.rates))])
    assert curve.losses == pytest.approx(smoothed(plain_losses(curve.rates), rate_range._BETA), rel=1e-5)
    assert curve.suggestion in curve.rates
    assert 1e-4 < curve.suggestion < 0.5


def test_a_rate_of_the_suggested_size_learns() -> None:
    curve = find_rate(*parts())
    assert plain_losses((curve.suggestion,) * 60)[-1] < 0.5 * curve.losses[0]
    assert curve.fall > 0.3


def test_the_test_ends_where_the_loss_diverges() -> None:
    curve = find_rate(*parts(), highest=1e6)
    assert len(curve.rates) == len(curve.losses) < 100
    assert all(math.isfinite(loss) for loss in curve.losses)
    assert curve.losses[-1] <= 4 * min(curve.losses)


def test_whatever_is_given_stays_as_it_is() -> None:
    fabric, network, _, loader, options = parts(ema=0.9, freeze_norm=True, optimizer="adamw", clip=1.0, accumulate=2)
    objective = build_objective("crl", DIGITS.counts("train"), DIGITS.space, rectify_from=0.5)
    network.eval()
    kept = copy.deepcopy((network.state_dict(), objective.state_dict()))
    progress, random, epoch = vars(objective).copy(), torch.get_rng_state(), loader.epoch
    curves = [find_rate(fabric, network, objective, loader, options, steps=20) for _ in range(2)]
    assert curves[0] == curves[1]
    for before, now in zip(kept, (network.state_dict(), objective.state_dict()), strict=True):
        assert all(torch.equal(before[name], value) for name, value in now.items())
    assert not network.training
    assert all(weight.grad is None for weight in network.parameters())
    assert repr(vars(objective)) == repr(progress)
    assert torch.equal(torch.get_rng_state(), random)
    assert loader.epoch == epoch == 0


class Head(nn.Linear):
    def forward(self, features: torch.Tensor) -> Output:
        return Output(super().forward(features), features)


def test_vectors_in_a_list_of_batches_do_as_well() -> None:
    g = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 10, (320, 1), generator=g)
    vectors = nn.functional.one_hot(targets[:, 0], 10).float() + 0.1 * torch.randn(320, 10, generator=g)
    batches = [Batch(vectors[i : i + 32], targets[i : i + 32], torch.arange(i, i + 32)) for i in range(0, 320, 32)]
    objective = Objective(CrossEntropyLoss(), DIGITS.space)
    curve = find_rate(FABRIC, Head(10, 10), objective, batches, Options(), steps=60)
    assert curve.fall > 0.3


def test_the_valley_is_halfway_down_the_fall() -> None:
    falling = [2.0] * 20 + [2 - 0.05 * i for i in range(1, 31)] + [0.6, 0.9, 3.0]
    assert rate_range._valley(falling) == 20 + 30 - 1 - 31 // 2
    assert rate_range._valley([1.0] * 5) == 0


def test_the_fall_is_a_share_of_the_first_loss() -> None:
    assert RateCurve((0.1, 0.2, 0.3), (2.0, 0.5, 4.0), 0.1).fall == 0.75


def test_a_loss_that_is_never_finite() -> None:
    fabric, network, objective, loader, options = parts()
    with torch.no_grad():
        next(network.parameters()).fill_(math.nan)
    with pytest.raises(ValueError, match=r"the loss to be finite .*, from 1e-06, but got diverging at 1e-06"):
        find_rate(fabric, network, objective, loader, options)


def test_wrong_bounds_are_complained_about_together() -> None:
    with pytest.raises(ValueError, match=r"lowest to be a positive number(?s:.*)highest to be.*(?s:.*)steps to be an"):
        find_rate(*parts(), lowest=0, highest=-1, steps=3)
