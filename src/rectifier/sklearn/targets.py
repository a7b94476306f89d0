"""y as targets ``(N, A)``: what is missing, which classes there are, and the way back to their own values."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from torch import Tensor

from rectifier._base import check
from rectifier.labels.space import LabelSpace, is_missing

Column = NDArray[Any]


class Labels(NamedTuple):
    """The columns of y, one per label, and their names."""

    columns: list[Column]
    names: list[str]

    def at(self, rows: NDArray[np.bool_]) -> Labels:
        return Labels([column[rows] for column in self.columns], self.names)

    def labelled(self) -> NDArray[np.bool_]:
        """Say which samples have any label."""
        found: NDArray[np.bool_] = np.any([~_missing(column) for column in self.columns], axis=0)
        return found

    def check_length(self, samples: int) -> None:
        """Check that there is a row for each sample of X."""
        if len(self.columns[0]) != samples:
            check.fail("y", f"as long as X ({check.amount(samples, 'sample')})", len(self.columns[0]))


def read_labels(y: Any) -> Labels:
    """Bring y to columns: ``(N,)`` values, or ``(N, A)`` as lists, an array or a DataFrame with label names.

    >>> read_labels([["a", 1], [None, 0]]).columns
    [array(['a', None], dtype=object), array([1, 0], dtype=object)]
    """
    if y is None:
        raise ValueError("RectifierClassifier requires y to be passed, but the target y is None.")
    if hasattr(y, "toarray"):
        raise TypeError("y is sparse. Pass y.toarray().")
    if hasattr(y, "iloc") and y.ndim == 2:  # a DataFrame, whose columns have types of their own
        flat, columns = False, [np.asarray(y.iloc[:, a]) for a in range(y.shape[1])]
        names = [str(name) for name in y.columns]
    else:
        array = np.asarray(y)
        if array.dtype.kind == "U" and not hasattr(y, "dtype"):  # NumPy makes the string "nan" of a NaN in a list
            array = np.asarray(y, dtype=object)
        if array.ndim not in (1, 2):
            check.fail("y", "of shape (N,) or (N, labels)", f"shape {array.shape}")
        flat, columns = array.ndim == 1, list(array.T) if array.ndim == 2 else [array]
        named = flat and getattr(y, "name", None) is not None  # a Series
        names = [str(y.name)] if named else [f"label{a}" for a in range(len(columns))]
    if len(set(names)) < len(names):
        check.fail("the columns of y", "of different names", names)
    if len(columns) == 1 and not flat:
        message = "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (N,)."
        warnings.warn(message, DataConversionWarning, stacklevel=4)
    return Labels(columns, names)


def find_classes(labels: Labels) -> list[Column]:
    """Return the classes of each label in ascending order, in their own type.

    >>> find_classes(read_labels([["b", 1], ["a", None], ["", 0]]))
    [array(['a', 'b'], dtype=object), array([0, 1])]
    """
    found = []
    for column, name in zip(labels.columns, labels.names, strict=True):
        present = column[~_missing(column)]
        if not len(present):
            raise ValueError(f"Label {name!r} has no class: all its values are missing.")
        if present.dtype == object:
            if len({isinstance(value, str) for value in present}) > 1:
                check.fail(f"label {name!r}", "all strings or all numbers", "both")
            present = present if isinstance(present[0], str) else np.array(present.tolist())
        if present.dtype.kind == "f" and not np.isfinite(present).all():
            check.fail(f"label {name!r}", "of finite values", "infinity")
        check_classification_targets(present)
        found.append(np.unique(present))
    return found


def encode(labels: Labels, classes: list[Column]) -> Tensor:
    """Return targets: int64 ``(N, A)``, -1 where a value is missing or none of the classes."""
    return torch.stack([torch.from_numpy(_places(*both)) for both in zip(labels.columns, classes, strict=True)], 1)


def decode(targets: Tensor, classes: list[Column]) -> Column:
    """Return classes ``(N,)`` or ``(N, A)`` in their own type; of labels with different types, as objects."""
    columns: list[Column] = [own[column] for own, column in zip(classes, targets.numpy().T, strict=True)]
    if len(columns) == 1:
        return columns[0]
    alike = len({column.dtype.kind for column in columns}) == 1
    return np.stack(columns if alike else [column.astype(object) for column in columns], 1)


def label_space(labels: Labels, classes: list[Column]) -> LabelSpace:
    return LabelSpace.from_names(dict(zip(labels.names, (own.tolist() for own in classes), strict=True)))


def balanced_accuracy(predicted: Tensor, labels: Labels, classes: list[Column], weights: Column) -> float:
    """Return the mean over labels of the mean recall of their classes. A class that fit did not see has recall 0."""
    if len(labels.columns) != len(classes):
        check.fail("y", f"of {check.amount(len(classes), 'label')}, as in fit", len(labels.columns))
    recalls = []
    for column, own, guess in zip(labels.columns, classes, predicted.numpy().T, strict=True):
        counted = ~_missing(column) & (weights > 0)
        if counted.any():
            hit, weight, values = (_places(column, own) == guess)[counted], weights[counted], column[counted].tolist()
            number = {value: k for k, value in enumerate(dict.fromkeys(values))}
            true = np.array([number[value] for value in values])
            recalls.append((np.bincount(true, weight * hit) / np.bincount(true, weight)).mean())
    if not recalls:
        raise ValueError("y has no label to score: all its values are missing.")
    return float(np.mean(recalls))


def _missing(column: Column) -> NDArray[np.bool_]:
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "OU":
        return np.array([is_missing(value) for value in column], bool)
    return np.zeros(len(column), bool)


def _places(column: Column, classes: Column) -> NDArray[np.int64]:
    """Return the number of each value among the classes, -1 where it is none of them."""
    number = {value: k for k, value in enumerate(classes.tolist())}
    return np.array([-1 if is_missing(value) else number.get(value, -1) for value in column.tolist()], np.int64)
