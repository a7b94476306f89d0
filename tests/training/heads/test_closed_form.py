"""Closed-form heads equal scikit-learn's, label by label, where that has the same options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.utils.class_weight import compute_sample_weight
from torch import Generator

from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels.space import LabelSpace
from rectifier.training.heads import FeatureHead, FeatureTable, discriminant_head, ridge_head
from rectifier.training.heads.closed_form import ledoit_wolf_share

SPACE = LabelSpace.from_sizes([4, 2])


def made_table(samples: int = 80, features: int = 6, seed: int = 0) -> FeatureTable:
    drawn = Generator().manual_seed(seed)
    targets = torch.stack([(torch.rand(samples, generator=drawn) ** 2 * 3.99).long() % 3, torch.arange(samples) % 2], 1)
    targets[: samples // 8, 0] = -1
    x = torch.randn(samples, features, generator=drawn, dtype=torch.float64) + 0.7 * targets.sum(1, keepdim=True)
    return FeatureTable(4 * x + 1, targets, SPACE)


def scaled(table: FeatureTable, x: torch.Tensor | None = None) -> np.ndarray:
    given = table.x if x is None else x
    return ((given - table.x.mean(0)) / table.x.std(0, correction=0)).numpy()


@pytest.mark.parametrize("features", [6, 100])  # more features than samples, too
def test_ridge_is_the_one_of_scikit_learn(features: int) -> None:
    table = made_table(features=features)
    found = ridge_head(table, strengths=[0.3]).logits(table.x).split(SPACE.sizes, 1)
    for a, size in enumerate(SPACE.sizes):
        own = (table.targets[:, a] >= 0).numpy()
        classes = table.targets[own, a].numpy()
        oracle = Ridge(alpha=0.3 * own.sum())
        oracle.fit(scaled(table)[own], np.eye(size)[classes], compute_sample_weight("balanced", classes))
        np.testing.assert_allclose(found[a].numpy(), oracle.predict(scaled(table)), atol=1e-8)


@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
def test_discriminant_analysis_is_the_one_of_scikit_learn(shrinkage: float) -> None:
    table = made_table()
    found = discriminant_head(table, shrinkage=shrinkage, balanced=False).logits(table.x).split(SPACE.sizes, 1)
    for a in range(2):
        own = (table.targets[:, a] >= 0).numpy()
        oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage or None)
        oracle.fit(scaled(table)[own], table.targets[own, a].numpy())
        present = oracle.classes_
        expected = oracle.predict_log_proba(scaled(table))
        np.testing.assert_allclose(torch.log_softmax(found[a][:, present], 1).numpy(), expected, atol=1e-6)


def test_the_share_of_shrinkage_is_ledoit_and_wolfs() -> None:
    centred = torch.randn(30, 8, generator=Generator().manual_seed(0), dtype=torch.float64)
    share = ledoit_wolf_share(centred, centred.T @ centred / 30)
    assert share == pytest.approx(ledoit_wolf(centred.numpy(), assume_centered=True)[1])


def test_the_shrinkage_of_a_label_is_reported() -> None:
    assert all(0 < share < 1 for share in discriminant_head(made_table()).chosen)
    assert discriminant_head(made_table(), shrinkage=0.5).chosen == (0.5, 0.5)


def test_means_of_rare_classes_move_towards_the_mean_of_all() -> None:
    table = made_table()
    none, all_the_same = (discriminant_head(table, prior_samples=k, shrinkage=1.0) for k in (0.0, 1e9))
    spread = [float(head.weight.split(SPACE.sizes)[1].std(0).sum()) for head in (none, all_the_same)]
    assert spread[1] < 1e-6 * spread[0]


def test_a_class_without_samples_is_never_chosen() -> None:
    table = made_table()
    for head in (
        ridge_head(table, strengths=[0.1]),
        discriminant_head(table),
        discriminant_head(table, balanced=False),
    ):
        assert (head.logits(table.x)[:, :4].argmax(1) != 3).all()


def test_validation_chooses_the_strength_of_each_label() -> None:
    table, held_out, strengths = made_table(), made_table(60, seed=1), [1e-4, 1.0, 100.0]
    head = ridge_head(table, strengths=strengths, validation=held_out)
    alone = [ridge_head(table, strengths=[strength]) for strength in strengths]
    for a, chosen in enumerate(head.chosen):
        own = held_out.targets[:, a : a + 1]
        scores = [
            float(class_balanced_accuracy(each.logits(held_out.x).split(SPACE.sizes, 1)[a], own)) for each in alone
        ]
        assert strengths.index(chosen) == scores.index(max(scores))
        rows = slice(0, 4) if a == 0 else slice(4, 6)
        torch.testing.assert_close(head.weight[rows], alone[strengths.index(chosen)].weight[rows])


def test_the_state_fits_a_head() -> None:
    table = made_table()
    head = discriminant_head(table)
    module = FeatureHead(6, SPACE).double()
    module.load_state_dict(head.weights)
    torch.testing.assert_close(module(table.x).logits, head.logits(table.x))


def test_wrong_options_are_refused() -> None:
    table = made_table()
    with pytest.raises(ValueError, match="one number, or several together with validation"):
        ridge_head(table, strengths=[0.1, 1.0])
    with pytest.raises(ValueError, match="strengths to be a positive number"):
        ridge_head(table, strengths=[0.0])
    with pytest.raises(ValueError, match="shrinkage to be a share from 0 to 1, or None"):
        discriminant_head(table, shrinkage=2.0)
    missing = FeatureTable(torch.randn(2, 3), torch.tensor([[0, -1], [1, -1]]), SPACE)
    with pytest.raises(ValueError, match="label 'label1' to be one that some training samples have"):
        discriminant_head(missing)


def test_ridge_without_validation_has_one_strength() -> None:
    table = made_table()
    torch.testing.assert_close(ridge_head(table).weight, ridge_head(table, strengths=1.0).weight)
