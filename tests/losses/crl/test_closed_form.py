"""The triplets that are never listed, against the same triplets listed."""

from __future__ import annotations

import pytest
import torch

from helpers.cases import make_batch
from rectifier.labels import columns
from rectifier.losses.crl import comparison, mining
from rectifier.losses.crl.closed_form import hard_triplet_sums
from rectifier.losses.crl.pairs import ScorePairs, euclidean, scored_classes


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("kappa", [1, 2, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counting_equals_listing(kappa: int, ties: bool, dtype: torch.dtype) -> None:
    sizes = (2, 2, 5)
    for seed in range(20):
        batch = make_batch(list(sizes), 40, seed, ties=ties, missing=0.1, dtype=dtype)
        profile = mining.profile(batch.targets, sizes, 0.5, "all")
        margin = torch.tensor([0.5, 0.2, 0.9], dtype=dtype)
        results = []
        for listed in (False, True):
            logits = batch.logits.clone().requires_grad_()
            scores = columns.log_softmax(logits, sizes).exp()
            classes = scored_classes(scores, profile, sizes, kappa, None)
            if listed:
                pairs = ScorePairs(scores, classes, profile)(slice(0, 40))
                sums, triplets = comparison.relative_sums(pairs, margin)
            else:
                by_class = hard_triplet_sums(scores, classes, margin[classes.label])
                sums, triplets = (columns.sum_by_label(part, sizes, classes.label) for part in by_class)
            (sums / triplets).sum().backward()
            results.append((sums, triplets.to(dtype), logits.grad))
        for counted, expected in zip(*results, strict=True):
            torch.testing.assert_close(counted, expected, atol=1e-9 if dtype == torch.float64 else 1e-3, rtol=1e-5)


def test_listed_by_hand() -> None:
    """Two anchors, each the other's positive, one negative: max(0, m + |p_a - p_+| - (p_a - p_-))."""
    scores = torch.tensor([[0.7, 0.3], [0.4, 0.6], [0.6, 0.4]])
    profile = mining.profile(torch.tensor([[0], [0], [1]]), (2,), 0.5, "all")
    classes = scored_classes(scores, profile, (2,), 25, None)
    total, triplets = hard_triplet_sums(scores, classes, torch.full((2,), 0.5)[classes.label])
    by_hand = (0.5 + 0.3 - (0.7 - 0.6)) + (0.5 + 0.3 - (0.4 - 0.6))
    assert total.sum().item() == pytest.approx(by_hand)
    assert triplets.sum().item() == 2


def test_distances_are_exact_and_flat_at_zero() -> None:
    g = torch.Generator().manual_seed(0)
    x = 1e6 + torch.randn(2, 30, 64, generator=g, dtype=torch.float64)  # far out, where the product form cancels
    x[:, 1] = x[:, 0]
    expected = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    x.requires_grad_()
    distances = euclidean(x, x)
    torch.testing.assert_close(distances, expected, atol=1e-6, rtol=1e-6)
    assert distances[:, 0, 1].tolist() == [0.0, 0.0]
    near = torch.tensor([[[0.0], [1.0], [1.0 + 1e-5]]], dtype=torch.float64)
    assert euclidean(near, near)[0, 1, 2].item() == pytest.approx(1e-5, rel=1e-4)  # small, but not 0
    distances.diagonal(dim1=1, dim2=2).sum().backward()
    assert x.grad is not None
    assert not x.grad.any()


def test_features_that_are_no_numbers_stay_visible() -> None:
    features = torch.zeros(1, 3, 2)
    features[0, 1] = float("nan")
    assert euclidean(features, features)[0, 0, 1].isnan()
