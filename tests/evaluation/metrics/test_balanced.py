from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from sklearn.metrics import balanced_accuracy_score

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier import ClassBalancedAccuracy, LabelSpace, class_balanced_accuracy


@settings(max_examples=150)
@given(batch=batches())
def test_equals_the_loop_version(batch: Batch) -> None:
    value = class_balanced_accuracy(batch.logits, batch.targets, batch.sizes).item()
    expected = oracles.class_balanced_accuracy(batch.logits, batch.targets, batch.sizes)
    assert value == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_equals_scikit_learn_for_one_label() -> None:
    batch = make_batch([5], 200, seed=1)
    expected = balanced_accuracy_score(batch.targets[:, 0], batch.logits.argmax(1))
    assert class_balanced_accuracy(batch.logits, batch.targets).item() == pytest.approx(expected)


def test_batches_add_up() -> None:
    batch = make_batch([2, 7, 3], 100, seed=2, missing=0.2)
    metric = ClassBalancedAccuracy(batch.sizes)
    for rows in torch.arange(100).split(17):
        metric.update(batch.logits[rows], batch.targets[rows])
    torch.testing.assert_close(metric.compute(), class_balanced_accuracy(batch.logits, batch.targets, batch.sizes))
    metric.reset()
    assert metric.total.sum() == 0


def test_absent_classes_are_left_out_and_counted() -> None:
    metric = ClassBalancedAccuracy(LabelSpace.from_sizes([3, 2]))
    metric.update(torch.tensor([[9.0, 0, 0, 9, 0], [9, 0, 0, 9, 0]]), torch.tensor([[0, -1], [2, -1]]))
    assert metric.compute() == 0.5  # class 0 found, class 2 missed; class 1 and the second label do not count
    assert metric.absent == 3
    assert [math.isnan(share) for share in metric.sensitivity.tolist()] == [False, True, False, True, True]


def test_nothing_counted_is_nan() -> None:
    assert class_balanced_accuracy(torch.zeros(2, 3), torch.tensor([-1, -1])).isnan()


def test_without_sizes_the_first_batch_decides() -> None:
    batch = make_batch([5], 60, seed=3)
    metric = ClassBalancedAccuracy()
    for rows in torch.arange(60).split(20):
        metric.update(batch.logits[rows], batch.targets[rows])
    torch.testing.assert_close(metric.compute(), class_balanced_accuracy(batch.logits, batch.targets))


def test_without_sizes_every_way_to_call_works() -> None:
    batch = make_batch([5], 60, seed=3)
    metric = ClassBalancedAccuracy()
    for rows in torch.arange(60).split(20):
        value = metric(batch.logits[rows], batch.targets[rows])
        torch.testing.assert_close(value, class_balanced_accuracy(batch.logits[rows], batch.targets[rows]))
    torch.testing.assert_close(metric.compute(), class_balanced_accuracy(batch.logits, batch.targets))
    metric.reset()
    metric.update(torch.zeros(2, 3), torch.tensor([0, 1]))  # another number of classes
    assert metric.sensitivity.shape == (3,)


def test_forward_gives_the_batch_value() -> None:
    """torchmetrics calls update and merges states; integers stay integers."""
    batch = make_batch([4], 40, seed=4)
    metric = ClassBalancedAccuracy([4])
    value = metric(batch.logits, batch.targets)
    torch.testing.assert_close(value, class_balanced_accuracy(batch.logits, batch.targets))
    assert metric.total.dtype == torch.int64


def test_wrong_input_says_so() -> None:
    metric = ClassBalancedAccuracy(LabelSpace.from_names({"hat": ["no", "yes"]}))
    with pytest.raises(ValueError, match="targets of label 'hat' to be below 2"):
        metric.update(torch.zeros(1, 2), torch.tensor([2]))
    with pytest.raises(ValueError, match=r"logits to be of shape \(N, 2\) for sizes \[2\]"):
        metric.update(torch.zeros(1, 3), torch.tensor([1]))
    with pytest.raises(TypeError, match="logits to be a floating point tensor, but got list"):
        class_balanced_accuracy([[0.5, 0.5]], torch.tensor([1]))  # type: ignore[arg-type]
