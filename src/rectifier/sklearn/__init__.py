"""A scikit-learn estimator: every trainable method on vectors, image arrays and image files."""

from rectifier.sklearn.estimator import RectifierClassifier

__all__ = ["RectifierClassifier"]
