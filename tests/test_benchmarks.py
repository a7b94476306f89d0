"""The benchmark compares like with like: its rivals compute the same loss."""

from __future__ import annotations

import pytest
import rivals
import torch

from cases import make_batch
from rectifier import class_rectification_loss


@pytest.mark.parametrize(("sizes", "samples"), [([4], 24), ([2] * 5, 60), ([5, 9, 20], 50)])
def test_dense_rivals_give_our_value_and_gradient(sizes: list[int], samples: int) -> None:
    batch = make_batch(sizes, samples, missing=0.1)
    ours = batch.logits.clone().requires_grad_()
    value = class_rectification_loss(ours, batch.targets, sizes=sizes)
    (expected,) = torch.autograd.grad(value, ours)
    for rival in (rivals.dense_per_class, rivals.dense_at_once):
        theirs = batch.logits.clone().requires_grad_()
        loss = rival(theirs, batch.targets, sizes)
        torch.testing.assert_close(loss, value)
        torch.testing.assert_close(torch.autograd.grad(loss, theirs)[0], expected)


def test_the_loop_over_triplets_gives_our_value() -> None:
    batch = make_batch([3], 12)
    torch.testing.assert_close(
        rivals.triplet_loop(batch.logits, batch.targets, [3]), class_rectification_loss(batch.logits, batch.targets)
    )
