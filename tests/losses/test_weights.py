from __future__ import annotations

import math

import pytest
import torch

import oracles
from rectifier.losses.weights import cost_weights, effective_number_weights

COUNTS = [torch.tensor([60, 40]), torch.tensor([500, 20, 0, 1])]


def test_cost_weights() -> None:
    weights = cost_weights([torch.tensor([60, 40]), torch.tensor([0, 5])])
    torch.testing.assert_close(weights, torch.tensor([math.exp(-0.6), math.exp(-0.4), 1.0, math.exp(-1)]))


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.9999])
def test_effective_numbers_equal_the_loop_version(beta: float) -> None:
    expected = [w for label in COUNTS for w in oracles.effective_number_weights(label.tolist(), beta)]
    torch.testing.assert_close(effective_number_weights(COUNTS, beta), torch.tensor(expected))


def test_weights_have_mean_one_over_classes_that_have_samples() -> None:
    first, second = effective_number_weights(COUNTS).split([2, 4])
    torch.testing.assert_close(first.mean(), torch.tensor(1.0))
    torch.testing.assert_close(second[COUNTS[1] > 0].mean(), torch.tensor(1.0))
    assert second[2] == second[3]  # an empty class has the weight of one sample
    assert second[0] < second[1] < second[3]
    assert effective_number_weights(torch.tensor([0, 0])).tolist() == [1.0, 1.0]


def test_beta_goes_from_no_weights_to_inverse_frequency() -> None:
    counts = [torch.tensor([60, 40]), torch.tensor([500, 20, 3])]
    torch.testing.assert_close(effective_number_weights(counts, 0.0), torch.ones(5))
    inverse = [1 / label for label in counts]
    expected = torch.cat([label / label.mean() for label in inverse])
    torch.testing.assert_close(effective_number_weights(counts, 1 - 1e-9), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("beta", [1.0, -0.1, float("nan")])
def test_wrong_beta(beta: float) -> None:
    with pytest.raises(ValueError, match=r"beta to be a number from 0 and below 1, but got"):
        effective_number_weights(COUNTS, beta)
