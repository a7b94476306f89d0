"""A rate per stage, decay where it belongs, and one group where a network has no stages."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oracles_finetune import rates
from rectifier.networks.registry import build_network
from rectifier.training.engine.course import _load_optimizer
from rectifier.training.engine.groups import weight_groups
from rectifier.training.engine.options import Options
from rectifier.training.engine.step_modes import make_optimizer, set_rate


class Staged(nn.Sequential):
    """Three stages; the last one is the head."""

    def __init__(self) -> None:
        layers = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
        super().__init__(*layers, nn.Linear(4, 3))

    def stages(self) -> list[list[nn.Parameter]]:
        return [list(stage.parameters()) for stage in self]


OPTIMIZERS = pytest.mark.parametrize("optimizer", ["sgd", "adamw"])


@OPTIMIZERS
@pytest.mark.parametrize("decay", [1.0, 0.3])
@pytest.mark.parametrize("frozen", [False, True])
def test_rates_fall_with_the_distance_from_the_head(optimizer: str, decay: float, frozen: bool) -> None:
    network = Staged()
    network[0].requires_grad_(not frozen)
    made = make_optimizer(network, Options(lr=0.2, rate_decay=decay, optimizer=optimizer))
    for lr in (0.2, 0.05):
        set_rate(made, lr)
        found = {weight: group["lr"] for group in made.param_groups for weight in group["params"]}
        named = {name: found[weight] for name, weight in network.named_parameters() if weight in found}
        assert named == pytest.approx(rates(network, 3, lr, decay))


def test_rates_that_are_tensors_stay_the_same_tensors() -> None:
    made = make_optimizer(Staged(), Options(rate_decay=0.5))
    tensors = [torch.tensor(0.0) for _ in made.param_groups]
    for group, tensor in zip(made.param_groups, tensors, strict=True):
        group["lr"] = tensor
    set_rate(made, 0.4)
    assert all(group["lr"] is tensor for group, tensor in zip(made.param_groups, tensors, strict=True))
    assert [float(tensor) for tensor in tensors] == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.4, 0.4])


def test_only_products_decay() -> None:
    network = Staged()
    groups = weight_groups(network, Options(weight_decay=0.1))
    decays = {weight: group["weight_decay"] for group in groups for weight in group["params"]}
    named = {name: decays[weight] for name, weight in network.named_parameters()}
    assert {name for name, decay in named.items() if decay} == {"0.0.weight", "1.0.weight", "2.weight"}
    assert set(named.values()) == {0.1, 0.0}
    assert len(groups) == 2  # equal rates share a group


@OPTIMIZERS
def test_a_network_without_stages_is_one_group_whose_old_state_still_loads(optimizer: str) -> None:
    network = build_network("mlp", [3], (4,), seed=0)
    options = Options(lr=0.2, rate_decay=0.1, optimizer=optimizer)
    old = torch.optim.AdamW(network.parameters()) if optimizer == "adamw" else torch.optim.SGD(network.parameters())
    made = make_optimizer(network, options)
    assert len(made.param_groups) == 1
    assert len(made.param_groups[0]["params"]) == len(list(network.parameters()))
    state = old.state_dict()
    assert "scale" not in state["param_groups"][0]
    _load_optimizer(made, state)
    set_rate(made, 0.3)
    assert made.param_groups[0]["lr"] == 0.3


def test_a_network_whose_layers_are_called_stages_has_no_stages() -> None:
    network = nn.Module()
    network.stages = nn.Sequential(nn.Linear(2, 2))
    assert len(weight_groups(network, Options())) == 1


@pytest.mark.parametrize("listed", [slice(1, 3), [0, 1, 2, 2]])
def test_stages_must_hold_every_weight_once(listed: slice | list[int]) -> None:
    network = Staged()
    every = network.stages()
    network.stages = lambda: every[listed] if isinstance(listed, slice) else [every[i] for i in listed]  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"stages\(\) of the network to be lists that hold each .* once, but got"):
        weight_groups(network, Options())
