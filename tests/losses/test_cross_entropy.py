"""Plain and rectified cross-entropy against loops and each other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn.functional import cross_entropy

import oracles
from helpers.cases import DESIGNS, Batch, batches, make_batch
from rectifier import LabelSpace, RectifiedCrossEntropy, class_counts, class_rectification_loss, imbalance_measure
from rectifier.losses import CrossEntropyLoss, LossParts, Objective

COUNTS = [torch.tensor([900, 100]), torch.tensor([50, 30, 20]), torch.tensor([10, 10])]
SIZES = [2, 3, 2]


def batch_of_three_labels() -> Batch:
    return make_batch(SIZES, 40, seed=1, missing=0.2)


@settings(max_examples=100)
@given(batch=batches())
def test_cross_entropy_equals_the_loop_version(batch: Batch) -> None:
    ours = CrossEntropyLoss(batch.sizes, label_reduction="none")(batch.logits, batch.targets)
    torch.testing.assert_close(ours, oracles.cross_entropy(batch.logits, batch.targets, batch.sizes))


def test_eta_zero_is_cross_entropy() -> None:
    batch = make_batch([7], 50, seed=2)
    logits = batch.logits.clone().requires_grad_()
    loss = RectifiedCrossEntropy(torch.tensor([90, 30, 20, 10, 5, 2, 1]), eta=0)
    reference = batch.logits.clone().requires_grad_()
    loss(logits, batch.targets).backward()
    cross_entropy(reference, batch.targets[:, 0]).backward()
    torch.testing.assert_close(logits.grad, reference.grad, atol=1e-12, rtol=0)
    torch.testing.assert_close(loss(logits, batch.targets), cross_entropy(reference, batch.targets[:, 0]))


@pytest.mark.parametrize(("level", "comparison"), DESIGNS)
@pytest.mark.parametrize("reduction", ["sum", "mean", "none"])
def test_is_the_weighted_sum_of_both_losses(level: str, comparison: str, reduction: str) -> None:
    batch = batch_of_three_labels()
    eta = 0.7
    objective = RectifiedCrossEntropy(
        COUNTS, eta, label_reduction=reduction, level=level, comparison=comparison, kappa=4
    )
    omega = torch.tensor([1 - 500 / 900, 1 - (100 / 3) / 50, 0.0])
    crl = oracles.crl(*batch[:3], sizes=SIZES, level=level, comparison=comparison, kappa=4)
    ce = oracles.cross_entropy(*batch[:2], SIZES)
    expected = eta * omega * crl + (1 - eta * omega) * ce
    reduce = {"sum": Tensor.sum, "mean": Tensor.mean, "none": lambda x: x}[reduction]
    torch.testing.assert_close(objective(*batch[:3]), reduce(expected), atol=1e-6, rtol=1e-6)


def test_alpha_is_capped_or_given() -> None:
    assert RectifiedCrossEntropy(COUNTS, eta=100).alpha.tolist() == [1.0, 1.0, 0.0]
    assert RectifiedCrossEntropy(COUNTS, alpha=0.5).alpha.tolist() == [0.5, 0.5, 0.5]
    assert RectifiedCrossEntropy(COUNTS, alpha=[0.0, 0.5, 1.0]).alpha.tolist() == [0.0, 0.5, 1.0]
    batch = make_batch([3], 30, seed=3)
    only = RectifiedCrossEntropy(torch.tensor([5, 5, 5]), alpha=1.0)(*batch[:2])
    torch.testing.assert_close(only, class_rectification_loss(*batch[:2]))


def test_rectified_parts_come_from_the_same_pass() -> None:
    batch = batch_of_three_labels()
    objective = RectifiedCrossEntropy(COUNTS, eta=0.5)
    parts = objective(*batch[:2], return_parts=True)
    assert isinstance(parts, LossParts)
    assert parts.loss == objective(*batch[:2])
    logits = batch.logits.clone().requires_grad_()
    logged = objective(logits, batch.targets, return_parts=True)
    assert [part.requires_grad for part in logged] == [True] + [False] * 5
    combined = parts.alpha * parts.rectification + (1 - parts.alpha) * parts.base_loss
    torch.testing.assert_close(parts.loss, combined.sum())
    mined = [len(oracles.mined(batch.targets[:, a].tolist(), SIZES[a], 0.5, "minority")) for a in range(3)]
    assert parts.mined_classes.tolist() == mined
    assert (parts.comparisons > 0).tolist() == [m > 0 for m in mined]


def test_triplets_are_counted() -> None:
    """3 anchors with 2 positives and 5 negatives each."""
    targets = torch.tensor([1] * 3 + [0] * 5)
    parts = RectifiedCrossEntropy(torch.tensor([5, 3]))(torch.randn(8, 2), targets, return_parts=True)
    assert parts.comparisons.tolist() == [3 * 2 * 5]


def test_counts_and_alpha_are_buffers() -> None:
    objective = RectifiedCrossEntropy(COUNTS, eta=0.5)
    assert objective.class_counts is not None
    assert objective.class_counts.tolist() == [900, 100, 50, 30, 20, 10, 10]
    torch.testing.assert_close(objective.alpha, 0.5 * imbalance_measure(COUNTS))
    assert {name for name, _ in objective.named_buffers()} >= {"alpha", "counts.counts"}


def test_a_loaded_state_does_not_replace_the_configuration() -> None:
    """State dicts of earlier versions hold configuration; it is ignored."""
    batch = batch_of_three_labels()
    objective = RectifiedCrossEntropy(COUNTS, eta=1.0)
    expected = objective(*batch[:2])
    earlier = RectifiedCrossEntropy(COUNTS, eta=0.01)
    objective.load_state_dict(earlier.state_dict())
    objective.load_state_dict({"alpha": earlier.alpha, "class_counts": torch.ones(7), "weights": torch.ones(7)})
    assert objective(*batch[:2]) == expected
    assert "eta=1.0, alpha=[" in repr(objective)


def test_a_label_space_names_the_label_in_errors() -> None:
    space = LabelSpace.from_names({"sex": ["f", "m"], "age": [1, 2, 3], "hat": ["no", "yes"]})
    objective = RectifiedCrossEntropy(COUNTS, sizes=space)
    targets = torch.zeros(4, 3, dtype=torch.int64)
    targets[2, 1] = 3
    with pytest.raises(ValueError, match=r"targets of label 'age' to be below 3, .*, but got 3 in row 2"):
        objective(torch.zeros(4, 7), targets)


def test_float32_inside_autocast() -> None:
    objective = RectifiedCrossEntropy(torch.tensor([90, 10]), eta=0.5)
    logits = torch.randn(16, 2, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = objective(logits, torch.arange(16) % 2)
    assert value.dtype == torch.float32
    value.backward()
    assert torch.isfinite(logits.grad).all()


@given(batches())
def test_plain_is_rectified_with_alpha_zero(batch: Batch) -> None:
    counts = class_counts(batch.targets, batch.sizes)
    expected = RectifiedCrossEntropy(counts, alpha=0.0)(batch.logits, batch.targets)
    torch.testing.assert_close(CrossEntropyLoss(batch.sizes)(batch.logits, batch.targets), expected)


@given(batches(most_labels=4))
def test_weights_as_in_pytorch(batch: Batch) -> None:
    """Label by label with torch's own; a label that nobody has adds nothing."""
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(sum(batch.sizes), generator=g, dtype=torch.float64) + 0.1
    logits = batch.logits.clone().requires_grad_()
    expected = logits.sum() * 0
    first = 0
    for a, size in enumerate(batch.sizes):
        if (batch.targets[:, a] >= 0).any():
            own, weight = logits[:, first : first + size], weights[first : first + size]
            expected = expected + torch.nn.functional.cross_entropy(own, batch.targets[:, a], weight, ignore_index=-1)
        first += size
    value = CrossEntropyLoss(batch.sizes, weight=weights)(logits, batch.targets)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (value, expected)]
    torch.testing.assert_close(*gradients)


def test_equal_weights_are_no_weights() -> None:
    batch = make_batch([2, 5], 40, missing=0.2)
    plain = CrossEntropyLoss(batch.sizes)(batch.logits, batch.targets)
    equal = CrossEntropyLoss(batch.sizes, weight=torch.full((7,), 3.0))(batch.logits, batch.targets)
    torch.testing.assert_close(plain, equal)


def test_parts_and_reductions() -> None:
    batch = make_batch([2, 5], 40, missing=0.2)
    each = CrossEntropyLoss(batch.sizes, label_reduction="none")(batch.logits, batch.targets)
    parts = Objective(CrossEntropyLoss(), batch.sizes)(batch.logits, batch.targets, return_parts=True)
    torch.testing.assert_close(parts.loss, each.sum())
    torch.testing.assert_close(parts.base_loss, each)
    assert not parts.rectification.any()
    assert not parts.alpha.any()


@pytest.mark.parametrize("weights", [torch.ones(3), torch.tensor([1.0, -1.0])])
def test_wrong_weights(weights: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="weight to be 2 numbers of at least 0, one for each class"):
        CrossEntropyLoss([2], weight=weights)
