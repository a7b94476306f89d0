"""The example on digits, with few epochs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import digits
import pytest
import torch

ROOT = Path(__file__).parents[2]


def test_digits_have_the_requested_imbalance() -> None:
    split = digits.imbalanced_digits(100, 5, seed=1)
    assert torch.bincount(split.train_targets).tolist() == digits.power_law_profile(10, 100, 5)
    assert torch.bincount(split.test_targets).tolist() == [digits.TEST_PER_CLASS] * 10
    # No image is in both parts.
    joined = torch.cat([split.train_images, split.test_images]).flatten(1)
    assert len(joined.unique(dim=0)) == len(joined)


def test_training_learns_and_rectification_changes_it() -> None:
    split = digits.imbalanced_digits(100, 20, seed=0)
    plain, rectified = (digits.train(split, eta, epochs=15, seed=0) for eta in (0.0, 0.9))
    assert plain.mean() > 0.5
    assert not torch.equal(plain, rectified)
    assert torch.equal(plain, digits.train(split, 0.0, epochs=15, seed=0))


def test_mean_and_interval() -> None:
    mean, half = digits.mean_and_interval(torch.tensor([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert half == pytest.approx(4.3027 / 3**0.5, abs=1e-3)


def test_the_example_prints_both_scores_and_their_difference() -> None:
    command = [sys.executable, str(ROOT / "examples" / "digits.py"), "--seeds", "2", "--epochs", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for wanted in ("class-balanced accuracy, cross-entropy", "class-balanced accuracy, with CRL", "difference"):
        assert wanted in printed
