"""Class-balanced accuracy of predictions of every kind."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sklearn.metrics import balanced_accuracy_score

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier import LabelSpace, class_balanced_accuracy
from rectifier.evaluation.metrics import count_correct


def classes_of(batch: Batch) -> torch.Tensor:
    return torch.stack([block.argmax(1) for block in batch.logits.split(batch.sizes, 1)], 1)


@settings(max_examples=150)
@given(batch=batches())
def test_equals_the_loop_version(batch: Batch) -> None:
    expected = oracles.class_balanced_accuracy(batch.logits, batch.targets, batch.sizes)
    for preds in (batch.logits, classes_of(batch)):
        value = class_balanced_accuracy(preds, batch.targets, batch.sizes).item()
        assert value == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_equals_scikit_learn_for_one_label() -> None:
    batch = make_batch([5], 200, seed=1)
    expected = balanced_accuracy_score(batch.targets[:, 0], batch.logits.argmax(1))
    assert class_balanced_accuracy(batch.logits, batch.targets).item() == pytest.approx(expected)
    assert class_balanced_accuracy(batch.logits.argmax(1), batch.targets[:, 0]).item() == pytest.approx(expected)


def test_arrays_and_lists_count_as_tensors_do() -> None:
    batch = make_batch([2, 3], 50, seed=2, missing=0.2)
    expected = class_balanced_accuracy(batch.logits, batch.targets, [2, 3])
    for preds in (batch.logits, classes_of(batch)):
        assert class_balanced_accuracy(preds.numpy(), batch.targets.numpy(), [2, 3]) == expected
        assert class_balanced_accuracy(preds.tolist(), batch.targets.tolist(), [2, 3]) == expected
    assert class_balanced_accuracy(np.array([True, False]), [1, 1]) == 0.5


def test_half_precision() -> None:
    batch = make_batch([4], 50, seed=3)
    for dtype in (torch.float16, torch.bfloat16):
        found = class_balanced_accuracy(batch.logits.to(dtype), batch.targets)
        assert found.dtype == torch.float32
        assert found == class_balanced_accuracy(batch.logits.to(dtype).float(), batch.targets)


def test_a_negative_prediction_is_wrong_and_a_missing_target_does_not_count() -> None:
    assert class_balanced_accuracy([-1, 1, -1], [0, 1, -1]) == 0.5


def test_a_class_that_is_only_predicted_does_not_count() -> None:
    assert class_balanced_accuracy([3, 1], [0, 1]) == 0.5
    assert class_balanced_accuracy([3, 1], [0, 1], [7]) == 0.5


@pytest.mark.parametrize("preds", [torch.zeros(2, 3), torch.tensor([0, 1]), torch.zeros(0, 3), torch.zeros(0).long()])
def test_nothing_counted_is_nan(preds: Any) -> None:
    assert class_balanced_accuracy(preds, torch.full((len(preds),), -1)).isnan()


def test_counts_are_integers() -> None:
    for found in count_correct(torch.eye(3), torch.arange(3), (3,)):
        assert found.dtype == torch.int64
        assert found.tolist() == [1, 1, 1]


def test_wrong_input_says_so() -> None:
    space = LabelSpace.from_names({"hat": ["no", "yes"]})
    with pytest.raises(ValueError, match="targets of label 'hat' to be below 2"):
        class_balanced_accuracy([0], [2], space)
    with pytest.raises(ValueError, match="preds to be below 2, the number of classes, but got 2 in row 1"):
        class_balanced_accuracy([0, 2], [0, 1], space)
    with pytest.raises(ValueError, match=r"class indices as preds to be of shape \(N,\), but got shape \(2, 2\)"):
        class_balanced_accuracy([[0, 1], [1, 0]], [0, 1], space)
    with pytest.raises(ValueError, match=r"class indices as preds to be of shape \(N, 2\), one column per label"):
        class_balanced_accuracy([0, 1], [[0, 1], [1, 0]], [2, 2])
    with pytest.raises(ValueError, match=r"target to be as long as preds \(1 samples\), but got 2"):
        class_balanced_accuracy([0], [0, 1])
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 2\) for sizes \[2\]"):
        class_balanced_accuracy(torch.zeros(1, 3), [1], space)
    with pytest.raises(TypeError, match="preds to be a tensor, an array or lists of numbers, but got str"):
        class_balanced_accuracy("cat", [1])


def test_functions_need_no_torchmetrics() -> None:
    code = (
        "import sys, rectifier.evaluation.metrics as m\nm.class_balanced_accuracy([0], [0])\n"
        "assert 'torchmetrics' not in sys.modules\nm.ClassBalancedAccuracy\nassert 'torchmetrics' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_an_unknown_name() -> None:
    from rectifier.evaluation import metrics

    with pytest.raises(AttributeError, match=r"module 'rectifier.evaluation.metrics' has no attribute 'Accuracy'"):
        metrics.Accuracy  # type: ignore[attr-defined]  # noqa: B018
