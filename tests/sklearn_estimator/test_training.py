"""How the estimator trains: weights, early stopping, random numbers."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rectifier.labels.space import LabelSpace
from rectifier.methods import build_objective
from rectifier.sklearn import RectifierClassifier
from rectifier.sklearn.loop import Training, copies, train, training_order
from sklearn_estimator.samples import FAST, blobs


@pytest.mark.parametrize("method", ["crl", "ce", "balanced-softmax", "class-balanced", "focal", "crl-class-absolute"])
def test_whole_weights_repeat_samples(method: str) -> None:
    X, y = blobs(60, classes=3)
    weights = np.random.RandomState(0).randint(0, 4, 60)
    weights[y == 2] = 1
    options = {**FAST, "batch_size": 1000}  # one batch: in several, the order of the samples matters
    weighted = RectifierClassifier(method, **options).fit(X, y, sample_weight=weights)
    repeated = RectifierClassifier(method, **options).fit(X.repeat(weights, 0), y.repeat(weights))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), rtol=1e-7)
    assert weighted.class_counts_[0].tolist() == repeated.class_counts_[0].tolist()
    plain = RectifierClassifier(method, **options).fit(X, y)
    assert not np.allclose(weighted.decision_function(X), plain.decision_function(X))


def test_equal_weights_are_no_weights() -> None:
    X, y = blobs()
    expected = RectifierClassifier(**FAST).fit(X, y).decision_function(X)
    for weight in (np.ones(80), np.full(80, 0.3), 1, np.full(80, 5000)):
        found = RectifierClassifier(**FAST).fit(X, y, sample_weight=weight)
        np.testing.assert_allclose(found.decision_function(X), expected, rtol=1e-12)


def test_fractions_are_drawn_around_their_value() -> None:
    torch.manual_seed(0)
    weights, targets = torch.rand(20, dtype=torch.float64), torch.zeros(20, 1, dtype=torch.int64)
    order = training_order("ce", targets, weights, LabelSpace.from_sizes([1]), seed=0)
    drawn = torch.stack([order(epoch).bincount(minlength=20) for epoch in range(2000)]).double()
    wanted = copies(weights)
    assert bool(((drawn - wanted).abs() < 1).all())
    torch.testing.assert_close(drawn.mean(0), wanted, atol=0.04, rtol=0)
    assert wanted.mean() == pytest.approx(1)


def test_weights_of_classes_move_the_boundary() -> None:
    X, y = blobs(200)
    X[np.arange(200), y] -= 2.5  # classes that overlap
    options = {**FAST, "method": "ce", "decision_rule": "argmax"}
    shares = []
    for weight in (0.25, 1.0, 4.0):
        found = RectifierClassifier(**options).fit(X, y, sample_weight=np.where(y == 1, weight, 1.0))
        shares.append(found.predict(X).mean())
    assert shares[0] < shares[1] - 0.05
    assert shares[1] < shares[2] - 0.05


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"Expected sample_weight to be of shape \(80,\), but got shape \(3,\)"),
        (-np.ones(80), "Expected sample_weight to be numbers of at least 0"),
        (np.full(80, np.nan), "Expected sample_weight to be numbers of at least 0"),
        (np.zeros(80), "All weights in sample_weight are zero"),
    ],
)
def test_wrong_weights(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RectifierClassifier(**FAST).fit(*blobs(), sample_weight=weights)


def test_training_stops_early_and_restores_the_best_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    X, y = (torch.from_numpy(part) for part in blobs())
    scores, seen = iter([0.9, 0.1, 0.5, 0.4, 0.3, 0.99]), list[Tensor]()

    def score() -> float:
        seen.append(model[0].weight.detach().clone())
        return next(scores)

    how = Training(20, 30, 0.1, 0.0, torch.device("cpu"))
    objective = build_objective("ce", [torch.tensor([1, 1])], LabelSpace.from_sizes([2]))
    order = lambda epoch: torch.arange(80)  # noqa: E731
    curves = train(model, objective, X, y[:, None], order, how, score, patience=2, choose_from=0.05)
    assert curves.scores == [0.9, 0.1, 0.5, 0.4, 0.3]  # the first epoch does not count
    assert len(curves.losses) == 5
    assert torch.equal(model[0].weight, seen[2])
    assert not torch.equal(model[0].weight, seen[-1])


def test_early_stopping_keeps_the_best_epoch() -> None:
    X, y = blobs(300, classes=3)
    X[:, :3] /= 3  # classes that overlap
    found = RectifierClassifier(early_stopping=True, patience=3, epochs=60, random_state=0).fit(X, y)
    assert found.n_iter_ == len(found.loss_curve_) == len(found.validation_scores_) < 60
    assert int(np.argmax(found.validation_scores_)) == found.n_iter_ - 1 - 3
    assert found.class_counts_[0].sum() == 270


def test_a_class_of_one_sample_stays_in_training() -> None:
    X, y = blobs(60, classes=2)
    y = np.append(y[:-1], 2)
    for seed in range(5):
        found = RectifierClassifier(early_stopping=True, epochs=3, random_state=seed).fit(X, y)
        assert found.class_counts_[0][2] == 1


def test_too_few_samples_to_hold_out() -> None:
    with pytest.raises(ValueError, match="Expected validation_fraction to be enough to hold out one of 2 samples"):
        RectifierClassifier(early_stopping=True, **FAST).fit([[0.0], [1.0]], [0, 1])


def test_a_seed_fixes_everything() -> None:
    X, y = blobs()
    options = {"method": "crl+mixup", "epochs": 3, "network_options": {"dropout": 0.5}, "early_stopping": True}

    def found(seed: Any) -> Any:
        return RectifierClassifier(**options, random_state=seed).fit(X, y).decision_function(X)

    np.testing.assert_array_equal(found(1), found(1))
    np.testing.assert_array_equal(found(np.random.RandomState(3)), found(np.random.RandomState(3)))
    assert not np.array_equal(found(1), found(2))
    assert not np.array_equal(found(None), found(None))
    state = np.random.RandomState(3)
    assert not np.array_equal(found(state), found(state))


def test_global_random_states_stay() -> None:
    X, y = blobs()
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    for seed in (None, 0):
        options = {"epochs": 2, "network_options": {"dropout": 0.5}, "early_stopping": True, "random_state": seed}
        RectifierClassifier("crl+mixup", **options).fit(X, y, sample_weight=np.linspace(0.1, 1, 80)).predict(X)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_fits_in_threads_do_not_disturb_each_other() -> None:
    X, y = blobs()

    def found(seed: int) -> Any:
        options = {"epochs": 5, "network_options": {"dropout": 0.5}}
        return RectifierClassifier(random_state=seed, **options).fit(X, y).decision_function(X)

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(found, range(4)))
    for seed, own in enumerate(together):
        np.testing.assert_array_equal(own, found(seed))


def test_the_number_of_threads_stays() -> None:
    before = torch.get_num_threads()
    RectifierClassifier(**FAST).fit(*blobs())
    assert torch.get_num_threads() == before


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    X, y = blobs()
    with pytest.raises(FloatingPointError, match=r"not finite in epoch \d+\. A smaller learning_rate often helps"):
        RectifierClassifier("ce", learning_rate=1e200, **FAST).fit(X, y)


def test_progress_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = blobs()
    RectifierClassifier(epochs=2, random_state=0).fit(X, y)
    assert capsys.readouterr().err == ""
    RectifierClassifier(epochs=2, random_state=0, verbose=1, early_stopping=True).fit(X, y)
    assert "Epoch 2 of 2: loss 0." in (shown := capsys.readouterr().err)
    assert "validation" in shown
