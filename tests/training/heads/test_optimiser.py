"""The stacked optimisers make the steps of torch.optim, head by head."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from rectifier.training.heads.optimiser import OPTIMISERS, rates
from rectifier.training.heads.spec import HeadSpec

SPECS = [
    HeadSpec(lr=0.1, weight_decay=0.0),
    HeadSpec(lr=0.01, weight_decay=0.3, momentum=0.0),
    HeadSpec(lr=0.03, weight_decay=0.1, warmup=0.5, schedule="constant"),
]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_each_head_takes_the_steps_of_torch(name: str) -> None:
    drawn = Generator().manual_seed(0)
    weights = {"x.weight": torch.randn(3, 4, 5, generator=drawn), "x.bias": torch.randn(3, 4, generator=drawn)}
    gradients = [{key: torch.randn(w.shape, generator=drawn) for key, w in weights.items()} for _ in range(6)]
    alone = []
    for head, spec in enumerate(SPECS):
        own = {key: torch.nn.Parameter(weight[head].clone()) for key, weight in weights.items()}
        groups = [
            {"params": [own["x.weight"]], "weight_decay": spec.weight_decay},
            {"params": [own["x.bias"]], "weight_decay": 0.0},
        ]
        made = {
            "adamw": lambda groups=groups: torch.optim.AdamW(groups),
            "sgd": lambda groups=groups, spec=spec: torch.optim.SGD(groups, momentum=spec.momentum),
        }
        optimizer = made[name]()
        for step, found in enumerate(gradients):
            for group in optimizer.param_groups:
                group["lr"] = float(rates(spec, 6)[step])
            for key, weight in own.items():
                weight.grad = found[key][head].clone()
            optimizer.step()
        alone.append(own)
    stacked = OPTIMISERS[name](weights, SPECS, 6)
    for found in gradients:
        stacked.step({key: gradient.clone() for key, gradient in found.items()})
    for key, weight in weights.items():
        torch.testing.assert_close(weight, torch.stack([own[key].detach() for own in alone]), rtol=1e-6, atol=1e-6)


def test_rates_rise_and_fall() -> None:
    spec = HeadSpec(lr=2.0, warmup=0.4)
    assert rates(spec, 10).tolist()[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates(spec, 10)[-1] > 0
    assert rates(HeadSpec(lr=2.0, schedule="constant"), 3).tolist() == [2.0, 2.0, 2.0]
