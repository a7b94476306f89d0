"""Distances between features: exact, flat at 0, and not hiding what is no number."""

from __future__ import annotations

import pytest
import torch

from rectifier.losses.crl.pairs import euclidean


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
