"""Which batch-norm layers keep their statistics, and that evaluation leaves each module's mode as it was."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rectifier.training.engine.modes import evaluating, set_training


def network() -> nn.Sequential:
    trunk = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False), nn.BatchNorm1d(3), nn.Dropout())
    return nn.Sequential(trunk, nn.Linear(3, 3), nn.BatchNorm1d(3))


def statistics(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in network.named_buffers()}


@pytest.mark.parametrize("freeze_norm", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
def test_fixed_statistics_do_not_change(freeze_norm: bool, frozen: bool) -> None:
    made = network()
    made[0].requires_grad_(not frozen)
    before = statistics(made)
    set_training(made, freeze_norm)
    made(torch.randn(16, 3, generator=torch.Generator().manual_seed(0)))
    changed = {name for name, buffer in made.named_buffers() if not torch.equal(buffer, before[name])}
    moving = set() if freeze_norm else {"2"} if frozen else {"2", "0.1", "0.2"}
    assert {name.rpartition(".")[0] for name in changed} == moving
    assert all(module.training for module in made.modules() if isinstance(module, (nn.Dropout, nn.Linear)))


def test_a_layer_of_its_own_is_frozen_with_its_weights() -> None:
    made = network()
    made[2].requires_grad_(False)
    set_training(made)
    assert [made[2].training, made[0][1].training, made[0][2].training] == [False, True, True]


def test_evaluation_gives_every_module_its_mode_back() -> None:
    made = network()
    made[0][2].eval()
    before = {name: module.training for name, module in made.named_modules()}
    with evaluating(made):
        assert not any(module.training for module in made.modules())
    assert {name: module.training for name, module in made.named_modules()} == before
