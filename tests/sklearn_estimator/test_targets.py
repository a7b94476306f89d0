"""What y may be: one label or several, of any type, with values missing; and how it is scored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.exceptions import DataConversionWarning
from sklearn.metrics import balanced_accuracy_score

from rectifier.sklearn import RectifierClassifier
from rectifier.sklearn.targets import encode, find_classes, read_labels
from sklearn_estimator.samples import FAST, blobs


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([3, 1, 3]), [1, 3]),
        (np.array([-1, 1, -1]), [-1, 1]),
        (np.array([True, False, True]), [False, True]),
        (np.array(["b", "a", "b"]), ["a", "b"]),
        (np.array(["b", "a", "b"], object), ["a", "b"]),
        (["b", "a", None], ["a", "b"]),
        (["b", "a", float("nan")], ["a", "b"]),
        (["b", "a", " "], ["a", "b"]),
        (np.array([1.0, 0.0, np.nan]), [0.0, 1.0]),
        ([1, 0, None], [0, 1]),
        (pd.Series(["b", "a", None], dtype="category"), ["a", "b"]),
        (pd.Series([1, 0, pd.NA], dtype="Int64"), [0, 1]),
        (pd.Series(["b", "a", pd.NA], dtype="string"), ["a", "b"]),
    ],
)
def test_classes_keep_their_type(y: Any, classes: list[Any]) -> None:
    labels = read_labels(y)
    (found,) = find_classes(labels)
    assert found.tolist() == classes
    if isinstance(y, np.ndarray):
        assert found.dtype == y.dtype
    else:
        assert found.dtype.kind in "ifO"
    targets = encode(labels, [found])[:, 0].tolist()
    values = [None if pd.isna(value) or value == " " else value for value in list(y)]
    assert targets == [-1 if value is None else classes.index(value) for value in values]


def test_predictions_have_the_type_of_y() -> None:
    X, y = blobs(classes=3)
    for own in (np.array(["a", "bb", "c"]), np.array([5, 1, 9], np.int16), np.array(["a", "b", "c"], object)):
        found = RectifierClassifier(**FAST).fit(X, own[y])
        assert found.predict(X).dtype == own.dtype
        assert balanced_accuracy_score(own[y], found.predict(X)) > 0.9


def test_a_sample_without_label_has_no_effect() -> None:
    X, y = blobs()
    expected = RectifierClassifier(**FAST).fit(X, y).decision_function(X)
    more, unlabelled = np.vstack([X, X[:5] + 9]), np.append(y.astype(float), [np.nan] * 5)
    np.testing.assert_array_equal(RectifierClassifier(**FAST).fit(more, unlabelled).decision_function(X), expected)


def several() -> tuple[Any, pd.DataFrame]:
    """Return vectors and three labels of different types, two of them with values missing."""
    X, y = blobs(120, classes=3)
    animal = np.array(["ant", "bee", "cat"], object)[y]
    animal[::7] = None
    return X, pd.DataFrame({"animal": animal, "first": y == 0, "size": np.where(np.arange(120) % 5, y * 10.0, np.nan)})


def test_several_labels_with_missing_values() -> None:
    X, y = several()
    found = RectifierClassifier(**FAST).fit(X, y)
    assert [own.tolist() for own in found.classes_] == [["ant", "bee", "cat"], [False, True], [0.0, 10.0, 20.0]]
    assert found.label_space_.names == ("animal", "first", "size")
    assert [counts.tolist() for counts in found.class_counts_] == [
        y[name].value_counts().sort_index().tolist() for name in y
    ]
    predicted = found.predict(X)
    assert predicted.shape == (120, 3)
    assert predicted.dtype == object
    assert {type(value) for value in predicted[0]} == {str, bool, float}
    assert found.score(X, y) > 0.9
    probabilities = found.predict_proba(X)
    assert [own.shape for own in probabilities] == [(120, 3), (120, 2), (120, 3)]
    for a, own in enumerate(probabilities):
        np.testing.assert_allclose(own.sum(1), 1)
        np.testing.assert_array_equal(found.classes_[a][own.argmax(1)], predicted[:, a])
        np.testing.assert_allclose(np.exp(found.predict_log_proba(X)[a]), own)


def test_labels_of_one_type_are_predicted_in_it() -> None:
    X, y = blobs(classes=3)
    both = np.stack([y, y == 0], 1).astype(np.int64)
    assert RectifierClassifier(**FAST).fit(X, both).predict(X).dtype == np.int64


def test_several_labels_have_no_decision_function() -> None:
    X, y = several()
    found = RectifierClassifier(**FAST)
    assert hasattr(found, "decision_function")
    found.fit(X, y)
    with pytest.raises(AttributeError, match="no attribute 'decision_function'") as error:
        found.decision_function(X)
    assert "predict_log_proba gives the same" in str(error.value.__cause__)
    assert hasattr(found.fit(X, blobs(120)[1]), "decision_function")


def test_the_decision_function_is_the_logarithm_of_odds() -> None:
    X, y = blobs()
    found = RectifierClassifier(**FAST).fit(X, y)
    assert found.decision_function(X).shape == (80,)
    p = found.predict_proba(X)
    np.testing.assert_allclose(found.decision_function(X), np.log(p[:, 1] / p[:, 0]))


def test_the_score_is_the_mean_recall_over_classes_and_labels() -> None:
    X, y = several()
    found = RectifierClassifier(**{**FAST, "epochs": 2}).fit(X, y)
    predicted, weights = found.predict(X), np.random.RandomState(0).rand(120)
    for weight in (None, weights):
        recalls = []
        for a, name in enumerate(y):
            known = y[name].notna().to_numpy()
            true, guess = y[name][known].tolist(), predicted[known, a].tolist()
            own = None if weight is None else weight[known]
            recalls.append(balanced_accuracy_score(true, guess, sample_weight=own))
        assert found.score(X, y, weight) == pytest.approx(np.mean(recalls))


def test_a_class_that_was_not_in_training_is_never_recalled() -> None:
    X, y = blobs()
    found = RectifierClassifier(**FAST).fit(X, y)
    recall = balanced_accuracy_score(y, found.predict(X))
    strange = np.where(np.arange(len(y)) < 2, 7, y)  # two of class 0 become a new class
    others = np.arange(len(y)) >= 2
    kept = balanced_accuracy_score(y[others], found.predict(X)[others])
    assert found.score(X, y) == pytest.approx(recall)
    assert found.score(X, strange) == pytest.approx(kept * 2 / 3)


def test_a_column_warns_and_counts_as_one_label() -> None:
    X, y = blobs()
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        found = RectifierClassifier(**FAST).fit(X, pd.DataFrame({"kind": y}))
    assert found.predict(X).shape == (80,)
    assert found.label_space_.names == ("kind",)
    assert RectifierClassifier(**FAST).fit(X, pd.Series(y, name="kind")).label_space_.names == ("kind",)


def test_one_class_is_always_predicted() -> None:
    X, _ = blobs()
    found = RectifierClassifier(**FAST).fit(X, ["only"] * 80)
    assert set(found.predict(X)) == {"only"}
    assert (found.predict_proba(X) == 1).all()
    assert found.n_iter_ == 0


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([None] * 4, "Label 'label0' has no class: all its values are missing"),
        ([[1, None], [0, None], [1, None], [0, None]], "Label 'label1' has no class"),
        ([0.5, 1.2, 3.4, 5.1], "Unknown label type: continuous"),
        ([0, 1, np.inf, 1], "Expected label 'label0' to be of finite values, but got infinity"),
        (["a", 1, "b", 2], "Expected label 'label0' to be all strings or all numbers, but got both"),
        (np.zeros((4, 2, 2)), r"Expected y to be of shape \(N,\) or \(N, labels\), but got shape \(4, 2, 2\)"),
        ([0, 1], r"Expected y to be as long as X \(4 samples\), but got 2"),
        (pd.DataFrame([[0, 1]] * 4, columns=["a", "a"]), "Expected the columns of y to be of different names"),
    ],
)
def test_wrong_y(y: Any, message: str) -> None:
    if isinstance(y, list) and y[0] == "a":
        y = np.array(y, object)
    with pytest.raises(ValueError, match=message):
        RectifierClassifier(**FAST).fit(blobs()[0][:4], y)


def test_wrong_y_of_score() -> None:
    X, y = several()
    found = RectifierClassifier(**FAST).fit(X, y)
    with pytest.raises(ValueError, match="Expected y to be of 3 labels, as in fit, but got 1"):
        found.score(X, y["animal"])
    with pytest.raises(ValueError, match="y has no label to score"):
        found.score(X, pd.DataFrame(None, index=y.index, columns=y.columns, dtype=object))
    with pytest.raises(TypeError, match=r"y is sparse\. Pass y\.toarray\(\)"):
        found.fit(X, csr_array(np.eye(120)))


def test_targets_of_unknown_values_are_missing() -> None:
    assert torch.equal(encode(read_labels(["a", "z"]), [np.array(["a", "b"])]), torch.tensor([[0], [-1]]))
