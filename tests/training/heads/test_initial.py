"""First weights from class means decide for the nearest mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Generator

from rectifier.labels.space import LabelSpace
from rectifier.training.heads import FeatureTable, HeadSpec, train_heads
from rectifier.training.heads.bank import Bank
from rectifier.training.heads.initial import first_weights
from rectifier.training.heads.prepared import Prepared

SPACE = LabelSpace.from_sizes([4, 3])
SHAPES: list[dict[str, Any]] = [{}, {"hidden": 6}, {"branch": 6}, {"hidden": 5, "branch": 6}]


def made_data() -> Prepared:
    drawn = Generator().manual_seed(0)
    targets = torch.stack([torch.randint(size, (80,), generator=drawn) for size in SPACE.sizes], 1)
    targets[targets == 3] = 1  # absent
    targets[:5] = -1
    x = torch.randn(80, 7, generator=drawn) + 0.5 * targets.sum(1, keepdim=True)
    return Prepared(FeatureTable(x, targets, SPACE))


@pytest.mark.parametrize("classifier", ["linear", "cosine"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_untrained_head_decides_for_the_nearest_class_mean(classifier: str, shape: dict[str, Any]) -> None:
    data = made_data()
    bank = Bank([HeadSpec(classifier=classifier, init="means", **shape)], data)
    answer = bank(data.rows[None])
    features = data.rows if answer.features is None else answer.features[:, 0]
    logits = answer.logits[:, 0].split(SPACE.sizes, 1)
    for a, size in enumerate(SPACE.sizes):
        own = features[:, a] if features.dim() == 3 else features
        present = [c for c in range(size) if bool((data.table.targets[:, a] == c).any())]
        means = torch.stack([own[data.table.targets[:, a] == c].mean(0) for c in present])
        if classifier == "linear":
            nearest = torch.cdist(own, means).argmin(1)
        else:
            nearest = torch.cosine_similarity(own[:, None], means, dim=2).argmax(1)
        expected = torch.tensor(present)[nearest]
        found = logits[a].argmax(1)
        if classifier == "linear":
            assert torch.equal(found, expected)
        else:  # an absent class has the angle of a right one
            assert torch.equal(logits[a][:, present].argmax(1), nearest)


def test_first_logits_do_not_saturate() -> None:
    data = made_data()
    logits = Bank([HeadSpec(init="means")], data)(data.rows[None]).logits
    assert 0.3 < float(logits.detach().std()) < 3


def test_random_weights_are_those_of_the_seed() -> None:
    data = made_data()
    one, same, other = (first_weights(HeadSpec(seed=seed), data)["classifier.weight"] for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_hardly_trained_head_from_means_is_already_right() -> None:
    data = made_data()
    start, drawn = train_heads(
        data.table, [HeadSpec(init=init, lr=1e-9, epochs=1) for init in ("means", "random")], validation=data.table
    )
    assert start.score is not None
    assert drawn.score is not None
    assert start.score > drawn.score + 0.1
