"""Wrong specs and tables are refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rectifier.labels.space import LabelSpace
from rectifier.training.heads import FeatureTable, HeadSpec

SPACE = LabelSpace.from_sizes([2])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "crll"}, "Did you mean 'crl'"),
        ({"method": "hog-knn"}, "one that trains a network, but got 'hog-knn'"),
        ({"method": "ldam"}, "classifier to be cosine for method 'ldam', but got 'linear'"),
        ({"method": "ldam", "classifier": "cosine", "scale": 10.0}, "scale to be 30 and not learned for 'ldam'"),
        ({"method": "mixup", "mixup": 0.5}, "mixup to be 0 for 'mixup', which mixes"),
        ({"method": "lmle", "mixup": 0.5}, "mixup to be 0 for 'lmle', whose objective"),
        ({"scale": 10.0}, "scale to be the default for a linear classifier"),
        ({"hidden": -1}, "hidden to be a width, or 0 for none"),
        ({"dropout": 1.0}, "dropout to be a number from 0 and below 1"),
        ({"optimizer": "adam"}, "Did you mean 'adamw'"),
        ({"lr": 0.0, "epochs": 0}, "epochs to be a positive integer"),
        ({"noise": -0.5}, "noise to be a number of at least 0"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadSpec(**given)


@pytest.mark.parametrize(
    ("x", "targets", "message"),
    [
        (torch.zeros(2, 3).long(), torch.zeros(2, 1).long(), "x to be floating point of shape"),
        (torch.zeros(0, 3), torch.zeros(0, 1).long(), "x to be floating point of shape"),
        (torch.zeros(2, 3), torch.zeros(3, 1).long(), "targets to be as long as x"),
        (torch.zeros(2, 3), torch.tensor([[0], [2]]), "targets of label 'label0' to be below 2"),
    ],
)
def test_wrong_tables_are_refused(x: torch.Tensor, targets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureTable(x, targets, SPACE)


def test_a_table_knows_its_views() -> None:
    table = FeatureTable(torch.arange(12.0).view(2, 3, 2), torch.zeros(3, 1).long(), SPACE)
    assert (table.views, len(table), table.width) == (2, 3, 2)
    assert table.first_view.tolist() == [[0, 1], [2, 3], [4, 5]]
