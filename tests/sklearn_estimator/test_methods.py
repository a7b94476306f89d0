"""Methods, networks and decision rules of the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rectifier.evaluation.rules import ThresholdAdjustment
from rectifier.labels.imbalance import log_prior
from rectifier.methods import METHODS, find_method
from rectifier.networks.mlp import mlp
from rectifier.sklearn import RectifierClassifier
from rectifier.sklearn.estimator import SUPPORTED
from rectifier.sklearn.rule import rule_of
from sklearn_estimator.samples import FAST, blobs

LEAVE_PRIOR = {
    *("ce", "focal", "ldam", "mixup", "ranking", "remix", "threshold-adjustment", "posthoc-logit-adjustment"),
    *(name for name in METHODS if name.startswith("crl")),
}


@pytest.mark.parametrize("method", [*SUPPORTED, "crl+mixup", "crl+balanced-softmax"])
def test_every_method_trains(method: str) -> None:
    X, y = blobs(120, classes=2 if method == "asymmetric" else 3)
    options = {"retrain_epochs": 3} if method in ("crt", "lws") else None
    fast = {**FAST, "validation_fraction": 0.2, "method_options": options}
    found = RectifierClassifier(method, **fast).fit(X, y)
    assert np.isfinite(found.predict_log_proba(X)).all()
    assert found.score(X, y) > 0.8
    again = RectifierClassifier(method, **fast).fit(X, y)
    np.testing.assert_array_equal(again.decision_function(X), found.decision_function(X))


@pytest.mark.parametrize("method", ["crl", "balanced-softmax", "over-sampling", "remix", "crt", "tau-normalisation"])
def test_methods_train_several_labels(method: str) -> None:
    X, y = blobs(120, classes=3)
    both = np.stack([y, np.where(np.arange(120) % 3, y == 1, np.nan)], 1)
    assert RectifierClassifier(method, **FAST, validation_fraction=0.2).fit(X, both).score(X, both) > 0.8


def test_methods_that_correct_for_the_prior_are_known() -> None:
    assert {name for name in SUPPORTED if not find_method(name).moves_threshold} == LEAVE_PRIOR
    assert {rule_of(name, "auto") for name in SUPPORTED if find_method(name).moves_threshold} == {"argmax"}
    assert rule_of("crl+over-sampling", "auto") == "argmax"


def test_methods_without_a_classifier_are_refused() -> None:
    assert set(METHODS) - set(SUPPORTED) == {"hog-knn", "lmle", "svm", "triplet-knn"}
    X, y = blobs()
    with pytest.raises(ValueError, match=r"Expected method to be one of ce, crl, .*, but got 'svm', which decides by"):
        RectifierClassifier("svm", **FAST).fit(X, y)


def test_the_prior_rule_subtracts_the_log_prior() -> None:
    X, y = blobs(classes=3)
    plain = RectifierClassifier("ce", decision_rule="argmax", **FAST).fit(X, y)
    found = RectifierClassifier("ce", **FAST).fit(X, y)
    assert found.rule_.tau == 1
    difference = plain.decision_function(X) - found.decision_function(X)
    np.testing.assert_allclose(difference, np.tile(log_prior(np.bincount(y).tolist()), (80, 1)), rtol=1e-5)


def test_the_prior_is_not_corrected_twice() -> None:
    X, y = blobs()
    for method in ("balanced-softmax", "class-balanced", "over-sampling", "crl+logit-adjustment"):
        found = RectifierClassifier(method, **FAST).fit(X, y)
        assert not found.rule_.offsets.any()
        with pytest.raises(ValueError, match=r"corrects for the prior in training, but got 'prior', a second correct"):
            found.set_params(decision_rule="prior").fit(X, y)
    with pytest.raises(ValueError, match="which has its own rule, but got 'tuned'"):
        RectifierClassifier("threshold-adjustment", decision_rule="tuned", **FAST).fit(X, y)


def test_fitted_rules_use_held_out_data() -> None:
    X, y = blobs(200, classes=3)
    for method, rule in (("ce", "tuned"), ("balanced-softmax", "tuned"), ("threshold-adjustment", "auto")):
        found = RectifierClassifier(method, decision_rule=rule, validation_fraction=0.25, **FAST).fit(X, y)
        assert sum(found.class_counts_[0].tolist()) == pytest.approx(150, abs=2)
        assert found.score(X, y) > 0.9
    assert isinstance(found.rule_, ThresholdAdjustment)
    assert found.validation_scores_ == []


def test_options_reach_method_and_network() -> None:
    X, y = blobs()
    options = {"method_options": {"eta": 1.0, "kappa": 3}, "network_options": {"hidden": (7, 5)}}
    found = RectifierClassifier("crl", "mlp", **options, **FAST).fit(X, y)
    assert [weight.shape[0] for name, weight in found.network_.named_parameters() if "bias" in name] == [7, 5, 2]
    assert not np.allclose(found.decision_function(X), RectifierClassifier(**FAST).fit(X, y).decision_function(X))


class Plain(nn.Module):
    """Gives logits alone."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, vectors: Tensor) -> Tensor:
        logits: Tensor = self.layers(vectors)
        return logits


def test_a_module_is_copied_and_trained_in_its_precision() -> None:
    X, y = blobs()
    torch.manual_seed(0)
    own = Plain()
    before = {name: value.clone() for name, value in own.state_dict().items()}
    found = RectifierClassifier(network=own, **FAST).fit(X, y)
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())
    assert {weight.dtype for weight in found.network_.parameters()} == {torch.float32}
    assert found.score(X, y) > 0.85
    np.testing.assert_array_equal(RectifierClassifier(network=own, **FAST).fit(X, y).predict(X), found.predict(X))


def test_a_function_builds_a_network() -> None:
    X, y = blobs(classes=3)
    assert RectifierClassifier(network=lambda sizes, shape: Plain(sum(sizes)), **FAST).fit(X, y).score(X, y) > 0.8
    assert RectifierClassifier(network=mlp, network_options={"hidden": 64}, **FAST).fit(X, y).score(X, y) > 0.9
    assert RectifierClassifier("ldam", network=mlp, **FAST).fit(X, y).score(X, y) > 0.9  # asks for classifier="cosine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "clr"}, r"No method 'clr'\. Did you mean 'crl'\?"),
        ({"network": "mlpp"}, r"No network 'mlpp'\. Did you mean 'mlp'\?"),
        ({"network": 3}, "Expected network to be a name, a module or a function, but got 3"),
        ({"method_options": {"etta": 1}}, r"every option of method 'crl' .* got 'etta'\. Did you mean 'eta'\?"),
        ({"network": Plain(), "method": "ldam"}, "a name, so that it has the cosine classifier of ldam, but got a mod"),
        ({"network": Plain(), "method": "crt"}, "a name, so that crt can change its classifier, but got Plain"),
        ({"network": Plain(), "network_options": {"hidden": 3}}, "option of a network that is a module .*none"),
        ({"network": Plain(5)}, r"Expected logits to be of shape \(N, 2\)"),
        ({"network": Plain(), "method": "crl-instance-relative"}, "Expected features to be given"),
        ({"network": "resnet32"}, r"Expected shape to be \(height, width, channels\)"),
        ({"decision_rule": "prio"}, r"decision_rule to be one of .* got 'prio'\. Did you mean 'prior'\?"),
        ({"epochs": 0, "batch_size": 1.5}, "Expected epochs to be .*\nExpected batch_size to be a positive integer"),
        ({"learning_rate": 0}, "Expected learning_rate to be a positive number, but got 0"),
        ({"weight_decay": -1}, "Expected weight_decay to be a number of at least 0, but got -1"),
        ({"early_stopping": "yes"}, "Expected early_stopping to be True or False"),
        ({"validation_fraction": 1.0}, "Expected validation_fraction to be a number between 0 and 1, but got 1.0"),
        ({"patience": 0}, "Expected patience to be a positive integer"),
        ({"standardize": None}, "Expected standardize to be True or False"),
        ({"augment": "flip"}, "Expected augment to be a function, or None"),
        ({"device": "gpu"}, "Expected device to be 'auto' or a device of PyTorch"),
        ({"method": "crl", "method_options": {"rectify_from": 0.99}}, "Expected epochs to be enough for an epoch"),
    ],
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    X, y = blobs()
    with pytest.raises(ValueError, match=message):
        RectifierClassifier(**{**FAST, **options}).fit(X, y)


def test_a_wrong_network_option() -> None:
    with pytest.raises(TypeError, match="Did you mean 'hidden'"):
        RectifierClassifier(network_options={"hiden": 3}, **FAST).fit(*blobs())
