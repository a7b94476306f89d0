"""Losses, samplers and searches in skorch."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from skorch import NeuralNetClassifier
from skorch.dataset import ValidSplit
from torch.utils.data import DataLoader

from helpers.frameworks import COUNTS, Samples
from rectifier.losses import FocalLoss, LDAMLoss, LogitAdjustedLoss, RectifiedCrossEntropy
from rectifier.samplers import OverSampler

DATA = Samples()
X, Y = DATA.inputs.numpy(), DATA.classes.numpy()


def net(criterion: Any = RectifiedCrossEntropy, **options: Any) -> NeuralNetClassifier:
    settings: dict[str, Any] = {"predict_nonlinearity": torch.nn.Softmax(dim=1), "verbose": 0, "max_epochs": 2}
    return NeuralNetClassifier(torch.nn.Linear(4, 3), criterion=criterion, batch_size=8, **settings, **options)


def test_a_grid_search_over_the_options_of_a_loss() -> None:
    grid = {"criterion__eta": [0.0, 0.9], "criterion__comparison": ["relative", "absolute"]}
    options = {"criterion__class_counts": COUNTS, "train_split": None}
    search = GridSearchCV(net(**options), grid, scoring="balanced_accuracy", cv=2, error_score="raise").fit(X, Y)
    best = search.best_estimator_.criterion_
    assert len(search.cv_results_["params"]) == 4
    assert (best.eta, best.design.comparison) == tuple(search.best_params_[name] for name in grid)


def test_options_reach_the_loss_and_survive_a_clone() -> None:
    first = net(criterion__class_counts=COUNTS, criterion__eta=0.9)
    again = clone(first).set_params(criterion__eta=0.0)
    losses = [fitted.fit(X, Y).criterion_ for fitted in (first, clone(first), again)]
    assert [loss.alpha.item() > 0 for loss in losses] == [True, True, False]
    assert torch.equal(losses[0].alpha, losses[1].alpha)


@pytest.mark.parametrize("counts", [DATA.classes, COUNTS, np.array(COUNTS)])
@pytest.mark.parametrize("criterion", [RectifiedCrossEntropy, LogitAdjustedLoss, LDAMLoss])
def test_counts_in_any_form_can_be_cloned(criterion: Any, counts: Any) -> None:
    given = torch.bincount(counts) if counts is DATA.classes else counts
    fitted = clone(net(criterion, criterion__class_counts=given)).fit(X, Y)
    assert fitted.criterion_.counts.counts.tolist() == COUNTS


def test_counts_of_each_fold() -> None:
    seen = []
    for train, _ in StratifiedKFold(2).split(X, Y):
        fitted = net(criterion__class_counts="auto", criterion__sizes=3, train_split=None).fit(X[train], Y[train])
        seen.append(fitted.criterion_.class_counts.tolist())
        epochs = fitted.max_epochs  # without validation, every epoch is counted
        assert seen[-1] == (epochs * np.bincount(Y[train])).tolist()
    assert [sum(counts) for counts in zip(*seen, strict=True)] == [2 * n for n in COUNTS]


def test_a_sampler_for_each_fold() -> None:
    drawn: list[list[int]] = []

    def balanced(dataset: Any, **options: Any) -> DataLoader[Any]:
        targets = torch.tensor([int(target) for _, target in dataset])
        sampler = OverSampler(targets)
        drawn.append(targets[sampler.plan()].bincount().tolist())
        return DataLoader(dataset, sampler=sampler, **options)

    made = net(FocalLoss, iterator_train=balanced, train_split=ValidSplit(2, stratified=True))
    GridSearchCV(made, {"lr": [0.1]}, cv=2, error_score="raise").fit(X, Y)
    assert len(drawn) == 3  # two folds, then all data; each without the half that train_split holds out
    assert all(len(set(counts)) == 1 for counts in drawn)


@pytest.mark.parametrize("criterion", [FocalLoss, FocalLoss(gamma=1.0)])
def test_probabilities_add_up_to_one(criterion: Any) -> None:
    fitted = net(criterion).fit(X, Y)
    found = fitted.predict_proba(X)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    logits = fitted.forward(X)
    torch.testing.assert_close(torch.from_numpy(found), logits.softmax(1))


def test_a_fitted_net_can_be_pickled() -> None:
    fitted = net(criterion__class_counts=COUNTS, criterion__memory=8).fit(X, Y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
