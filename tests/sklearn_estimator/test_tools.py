"""The estimator in scikit-learn's tools: pipelines, searches, copies and files."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from rectifier.sklearn import RectifierClassifier
from sklearn_estimator.samples import FAST, blobs


def table() -> tuple[pd.DataFrame, pd.Series[str]]:
    X, y = blobs(90, classes=3)
    index = [f"row {number}" for number in range(90)]
    kinds = pd.Series(np.array(["ant", "bee", "cat"])[y], index=index, dtype="category", name="kind")
    return pd.DataFrame(X, columns=list("abcd"), index=index), kinds


def test_tables_of_pandas() -> None:
    X, y = table()
    found = RectifierClassifier(**FAST).fit(X, y)
    assert found.feature_names_in_.tolist() == list("abcd")
    assert found.classes_.tolist() == ["ant", "bee", "cat"]
    assert found.score(X, y) > 0.9
    with pytest.raises(ValueError, match="feature names should match"):
        found.predict(X[list("dcba")])


def test_a_pipeline_that_gives_tables() -> None:
    X, y = table()
    pipeline = make_pipeline(StandardScaler(), RectifierClassifier(**FAST)).set_output(transform="pandas").fit(X, y)
    assert pipeline[-1].feature_names_in_.tolist() == list("abcd")
    assert pipeline.score(X, y) > 0.9
    weight = {"rectifierclassifier__sample_weight": np.ones(90)}
    np.testing.assert_array_equal(clone(pipeline).fit(X, y, **weight).predict(X), pipeline.predict(X))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_grid_search(n_jobs: int) -> None:
    if n_jobs == 2:  # in a process of its own: other tests share and kill the workers of this one
        code = "import sklearn_estimator.test_tools as tools; tools.search(2)"
        paths = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
        subprocess.run([sys.executable, "-c", code], check=True, timeout=200, env=paths)
    else:
        search(n_jobs)


def search(n_jobs: int) -> None:
    X, y = table()
    grid = {"method": ["ce", "balanced-softmax"], "learning_rate": [1e-6, 0.01], "method_options": [None]}
    found = GridSearchCV(RectifierClassifier(**{**FAST, "epochs": 5}), grid, cv=2, n_jobs=n_jobs).fit(X, y)
    assert found.best_params_["learning_rate"] == 0.01
    assert found.best_score_ > 0.8
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


def test_cross_validation_scores_as_the_estimator() -> None:
    X, y = table()
    estimator = RectifierClassifier(**FAST)
    expected = cross_val_score(estimator, X, y, cv=3, scoring="balanced_accuracy")
    np.testing.assert_allclose(cross_val_score(estimator, X, y, cv=3), expected)
    assert cross_val_score(estimator, X, y, cv=3, scoring="roc_auc_ovr").min() > 0.9


def test_cross_validation_of_several_labels() -> None:
    X, y = blobs(120, classes=3)
    both = np.stack([y == 0, y == 1], 1).astype(int)
    shuffled = KFold(3, shuffle=True, random_state=0)
    assert cross_val_score(RectifierClassifier(**FAST), X, both, cv=shuffled, scoring="roc_auc").min() > 0.9


def test_weights_through_other_estimators() -> None:
    X, y = blobs()
    bagged = BaggingClassifier(RectifierClassifier(**FAST), n_estimators=3, random_state=0).fit(X, y)
    assert bagged.score(X, y) > 0.9
    calibrated = CalibratedClassifierCV(RectifierClassifier(**FAST), cv=3).fit(
        X, y, sample_weight=np.linspace(1, 2, 80)
    )
    assert calibrated.score(X, y) > 0.9


@pytest.mark.parametrize("network", ["auto", nn.Sequential(nn.Linear(4, 2))])
def test_copies_and_files(network: Any, tmp_path: Path) -> None:
    X, y = blobs()
    found = RectifierClassifier(network=network, **FAST).fit(X, y)
    joblib.dump(found, tmp_path / "estimator")
    for other in (pickle.loads(pickle.dumps(found)), joblib.load(tmp_path / "estimator"), clone(found).fit(X, y)):
        np.testing.assert_array_equal(other.predict_proba(X), found.predict_proba(X))
        assert other.label_space_ == found.label_space_
    assert not hasattr(clone(found), "network_")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["crl", "remix", "crt", "tau-normalisation"])
def test_a_gpu(method: str) -> None:
    X, y = blobs()
    before = torch.cuda.get_rng_state()
    found = RectifierClassifier(method, device="cuda", validation_fraction=0.2, **FAST).fit(X, y)
    assert next(found.network_.parameters()).is_cuda
    assert found.score(X, y) > 0.8
    other = pickle.loads(pickle.dumps(found)).set_params(device="cpu")
    np.testing.assert_allclose(other.predict_proba(X), found.predict_proba(X), atol=1e-3)
    images = RectifierClassifier(method, **{**FAST, "epochs": 5}).fit(X.reshape(80, 2, 2).repeat(4, 1).repeat(4, 2), y)
    assert next(images.network_.parameters()).is_cuda
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_it_shows_its_parameters() -> None:
    assert repr(RectifierClassifier("ce", epochs=3)) == "RectifierClassifier(epochs=3, method='ce')"


def test_vectors_need_only_torch_and_scikit_learn() -> None:
    code = (
        "import sys\n"
        "for name in ('lightning', 'pydantic', 'rich', 'skimage', 'tensorboard', 'typer', 'rectifier.data.decode'):\n"
        "    sys.modules[name] = None\n"
        "from rectifier.sklearn import RectifierClassifier\n"
        "assert RectifierClassifier(epochs=2, early_stopping=True).fit([[0.0], [1.0]] * 9, [0, 1] * 9).n_iter_ == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
