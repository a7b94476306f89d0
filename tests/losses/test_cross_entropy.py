from __future__ import annotations

import pytest
import torch
from hypothesis import given

from helpers.cases import Batch, batches, make_batch
from rectifier import RectifiedCrossEntropy, class_counts
from rectifier.losses.cross_entropy import MultiLabelCrossEntropy


@given(batches())
def test_plain_is_rectified_with_alpha_zero(batch: Batch) -> None:
    counts = class_counts(batch.targets, batch.sizes)
    expected = RectifiedCrossEntropy(counts, alpha=0.0)(batch.logits, batch.targets)
    torch.testing.assert_close(MultiLabelCrossEntropy(batch.sizes)(batch.logits, batch.targets), expected)


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
    value = MultiLabelCrossEntropy(batch.sizes, weights)(logits, batch.targets)
    torch.testing.assert_close(value, expected)
    gradients = [torch.autograd.grad(loss, logits, retain_graph=True)[0] for loss in (value, expected)]
    torch.testing.assert_close(*gradients)


def test_equal_weights_are_no_weights() -> None:
    batch = make_batch([2, 5], 40, missing=0.2)
    plain = MultiLabelCrossEntropy(batch.sizes)(batch.logits, batch.targets)
    equal = MultiLabelCrossEntropy(batch.sizes, torch.full((7,), 3.0))(batch.logits, batch.targets)
    torch.testing.assert_close(plain, equal)


def test_parts_and_reductions() -> None:
    batch = make_batch([2, 5], 40, missing=0.2)
    each = MultiLabelCrossEntropy(batch.sizes, label_reduction="none")(batch.logits, batch.targets)
    parts = MultiLabelCrossEntropy(batch.sizes)(batch.logits, batch.targets, return_parts=True)
    torch.testing.assert_close(parts.loss, each.sum())
    torch.testing.assert_close(parts.base_loss, each)
    assert not parts.rectification.any()
    assert not parts.alpha.any()


@pytest.mark.parametrize("weights", [torch.ones(3), torch.tensor([1.0, -1.0])])
def test_wrong_weights(weights: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="weights to be 2 numbers of at least 0, one for each class"):
        MultiLabelCrossEntropy([2], weights)
