from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from helpers.cases import Batch, batches
from rectifier import class_counts, imbalance_measure
from rectifier.labels import exponential_profile, imbalance_ratio, minority_classes, power_law_profile, step_profile
from rectifier.labels.imbalance import loss_weight


@settings(max_examples=200)
@given(batch=batches(), rho=st.sampled_from([0.05, 0.29, 0.3, 0.5, 0.7, 1.0]))
def test_minority_equals_the_loop_version(batch: Batch, rho: float) -> None:
    mask = minority_classes(batch.targets, batch.sizes, rho).split(batch.sizes)
    for label, size in enumerate(batch.sizes):
        expected = oracles.minority(batch.targets[:, label].tolist(), size, rho)
        assert mask[label].nonzero().flatten().tolist() == sorted(expected)


def test_the_edge_is_that_of_plain_arithmetic() -> None:
    """0.29 * 100 is a hair below 29 in Python; in float32 it would be 29, and the class would change sides."""
    targets = [0] * 71 + [1] * 29
    assert oracles.minority(targets, 2, 0.29) == []
    assert not minority_classes(torch.tensor(targets), [2], 0.29).any()


def test_minority_by_hand() -> None:
    """Counts 5, 2, 0, 2, 1: ascending 1, 2, 2 hold exactly half; ties go to the lower class."""
    targets = torch.tensor([0] * 5 + [1] * 2 + [3] * 2 + [4])
    assert minority_classes(targets, [5]).tolist() == [False, True, False, True, True]
    assert minority_classes(targets, [5], rho=0.3).tolist() == [False, True, False, False, True]
    assert minority_classes(targets, [5], rho=0.05).tolist() == [False] * 5


@given(batch=batches())
def test_counts(batch: Batch) -> None:
    for label, counts in enumerate(class_counts(batch.targets, batch.sizes)):
        assert counts.tolist() == [int((batch.targets[:, label] == c).sum()) for c in range(batch.sizes[label])]


def test_counts_of_one_label_without_sizes() -> None:
    assert class_counts(torch.tensor([0, 3, -1, 3]))[0].tolist() == [1, 0, 0, 2]
    assert class_counts(torch.tensor([-1, -1]))[0].tolist() == [0]


def test_balanced_labels_have_no_imbalance() -> None:
    assert imbalance_measure(torch.tensor([7, 7, 7])) == 0
    assert imbalance_ratio(torch.tensor([7, 7, 7])) == 1


@given(counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_omega_is_what_is_missing_to_balance(counts: list[int]) -> None:
    omega = imbalance_measure(counts).item()
    top = max(counts)
    missing = sum(top - n for n in counts)
    assert omega == pytest.approx(missing / (len(counts) * top) if top else 0.0, abs=1e-6)
    assert 0 <= omega < 1


def test_ratio_and_weight_of_several_labels() -> None:
    counts = [torch.tensor([40, 10]), torch.tensor([9, 0, 3])]
    assert imbalance_ratio(counts).tolist() == [4.0, math.inf]
    torch.testing.assert_close(imbalance_measure(counts), torch.tensor([0.375, 5 / 9]))
    torch.testing.assert_close(loss_weight(counts, 2.0), torch.tensor([0.75, 1.0]))
    assert imbalance_ratio(counts[0]).dim() == 0


@pytest.mark.parametrize("gamma", [0.2, 0.4, 0.6, 0.8, 1.0])
def test_power_law_ends_where_asked(gamma: float) -> None:
    sizes = power_law_profile(100, 500, 25, gamma)
    assert (sizes[0], sizes[-1], len(sizes)) == (500, 25, 100)
    assert sizes == sorted(sizes, reverse=True)


def test_power_law_of_the_paper() -> None:
    a, b = 2605.26, 4.2105  # gamma = 1, solved by hand from f(1) = 500 and f(100) = 25
    assert power_law_profile(100, 500, 25) == [round(a / (i + b)) for i in range(1, 101)]
    assert sum(power_law_profile(100, 500, 25)) == 8072


def test_the_long_tail_literature() -> None:
    assert sum(exponential_profile(100, 500, 5)) == 10847
    assert sum(exponential_profile(100, 500, 10)) == 12608
    assert sum(exponential_profile(10, 5000, 50)) == 12406
    assert step_profile(10, 5000, 50) == [5000] * 5 + [50] * 5
    assert [step_profile(n, 9, 1).count(1) for n in (3, 5, 7)] == [1, 2, 3]


@pytest.mark.parametrize("profile", [power_law_profile, exponential_profile, step_profile])
def test_flat_profiles(profile: object) -> None:
    assert profile(4, 9, 9) == [9] * 4  # type: ignore[operator]


def test_profiles_refuse_what_cannot_be() -> None:
    both = r"classes to be a positive integer, but got 0.\n.*smallest to be from 1 to largest \(5\), but got 9"
    with pytest.raises(ValueError, match=both):
        exponential_profile(0, 5, 9)
    with pytest.raises(ValueError, match="gamma to be a positive number, but got 0"):
        power_law_profile(10, 9, 3, gamma=0)
    with pytest.raises(ValueError, match="minority to be a share from 0 to 1, but got 2"):
        step_profile(10, 9, 3, minority=2)


def test_wrong_rho_says_so() -> None:
    with pytest.raises(ValueError, match="rho to be a number above 0 and at most 1, but got 5"):
        minority_classes(torch.tensor([0, 1]), rho=5)


def test_wrong_counts_say_which() -> None:
    with pytest.raises(
        TypeError, match="class_counts to be one count per class, or a list with one such list per label, but got 5"
    ):
        imbalance_measure(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="class_counts to be non-negative, but got nan"):
        imbalance_measure(torch.tensor([1.0, float("nan")]))
    with pytest.raises(ValueError, match=r"class_counts\[1\] to be non-negative, but got -1"):
        imbalance_measure([torch.tensor([1, 2]), torch.tensor([3, -1])])
    with pytest.raises(
        ValueError, match="class_counts to be one count per class, or a list with one such list per label"
    ):
        imbalance_measure([])
    with pytest.raises(ValueError, match=r"class_counts\[0\] to be a 1-d tensor"):
        imbalance_measure([torch.ones(2, 2)])
