"""The rate range test of a config is that of the parts its run trains."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.training import SHAPES, config
from rectifier._base import console
from rectifier.training.lr_find import find_rate_of


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with console.quiet():
        yield


@pytest.mark.parametrize("settings", [{"method": "ce"}, {"method": "crl", "ema": 0.9}, {"method": "mixup"}])
def test_a_config_has_a_curve_and_its_lr_has_no_effect(settings: dict[str, Any]) -> None:
    random = torch.get_rng_state()
    one, two = (find_rate_of(config(SHAPES, **settings, lr=lr), steps=30) for lr in (0.1, 1e-7))
    assert one == two
    assert len(one.rates) >= 10
    assert one.suggestion in one.rates
    assert torch.equal(torch.get_rng_state(), random)


def test_devices_do_not_matter() -> None:
    one, two = (find_rate_of(config(SHAPES, devices=devices), steps=12) for devices in (1, 2))
    assert one == two


def test_the_optimizer_matters() -> None:
    sgd, adamw = (find_rate_of(config(optimizer=name, method="ce")) for name in ("sgd", "adamw"))
    assert adamw.suggestion < sgd.suggestion


def test_a_method_that_trains_no_network() -> None:
    with pytest.raises(ValueError, match="hog-knn trains no network, so it has no learning rate"):
        find_rate_of(config(method="hog-knn"))
