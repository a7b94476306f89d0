"""A merged head gives the mean of the logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator

from rectifier.labels.space import LabelSpace
from rectifier.training.heads import FeatureTable, HeadSpec, TrainedHead, merged, train_heads

SPACE = LabelSpace.from_sizes([3, 2])


def made_heads(number: int = 3, **shape: Any) -> tuple[torch.Tensor, list[TrainedHead]]:
    drawn = Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(30, 5, generator=drawn, dtype=torch.float64)
    targets = torch.stack([torch.randint(size, (30,), generator=drawn) for size in SPACE.sizes], 1)
    specs = [HeadSpec(seed=seed, epochs=2, lr=0.1, **shape) for seed in range(number)]
    return x, train_heads(FeatureTable(x, targets, SPACE), specs)


@pytest.mark.parametrize("shape", [{}, {"hidden": 4}, {"branch": 3}, {"hidden": 4, "branch": 3}], ids=str)
def test_the_merged_head_is_the_mean(shape: dict[str, Any]) -> None:
    x, heads = made_heads(**shape)
    one = merged(heads)
    torch.testing.assert_close(one.logits(x), torch.stack([head.logits(x) for head in heads]).mean(0))
    assert one.spec.hidden == 3 * shape.get("hidden", 0)
    assert one.spec.branch == 3 * shape.get("branch", 0)
    twice = merged([merged(heads[:2]), merged(heads[:2])])
    torch.testing.assert_close(twice.logits(x), merged(heads[:2]).logits(x))


def test_one_head_stays() -> None:
    _, heads = made_heads(1)
    assert merged(heads) is heads[0]


def test_what_has_no_mean_is_refused() -> None:
    _, heads = made_heads()
    _, cosines = made_heads(classifier="cosine")
    _, deep = made_heads(hidden=2)
    with pytest.raises(ValueError, match="at least one head"):
        merged([])
    with pytest.raises(ValueError, match="cosines of several heads are not those of one"):
        merged(cosines)
    with pytest.raises(ValueError, match="one shape"):
        merged([heads[0], deep[0]])
    with pytest.raises(ValueError, match="the width of merged heads"):
        merged([heads[0], replace(heads[1], width=7)])
