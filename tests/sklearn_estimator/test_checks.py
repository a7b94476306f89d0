"""scikit-learn's own checks of an estimator, all of them, on the default estimator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from rectifier.sklearn import RectifierClassifier


@parametrize_with_checks([RectifierClassifier()])
def test_scikit_learn_accepts_the_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
