from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from helpers.cases import Batch, batches
from rectifier.losses.crl import mining

TIED = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=20)


@settings(max_examples=200)
@given(values=TIED, kappa=st.integers(1, 30), largest=st.booleans(), seed=st.integers(0, 999))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hardest_sorts_and_breaks_ties_by_number(
    dtype: torch.dtype, values: list[float], kappa: int, largest: bool, seed: int
) -> None:
    eligible = torch.rand(len(values), generator=torch.Generator().manual_seed(seed)) < 0.6
    idx, filled = mining.hardest(torch.tensor(values, dtype=dtype), eligible, kappa, largest=largest)
    numbers = [i for i in range(len(values)) if eligible[i]]
    expected = sorted(numbers, key=lambda i: (-values[i] if largest else values[i], i))[:kappa]
    assert idx[filled].tolist() == expected
    assert len(idx) == min(kappa, len(values))
    assert filled[: len(expected)].all()
    assert idx.min() >= 0
    assert idx.max() < len(values)


def test_hardest_tells_the_smallest_floats_apart() -> None:
    values = torch.tensor([1.0, 1.0 - 2**-24, 1e-45, 0.0])
    assert mining.hardest(values, torch.ones(4, dtype=torch.bool), 4, largest=True)[0].tolist() == [0, 1, 2, 3]
    assert mining.hardest(values, torch.ones(4, dtype=torch.bool), 4, largest=False)[0].tolist() == [3, 2, 1, 0]


def test_drawn_samples_are_eligible_different_and_hardest_first() -> None:
    g = torch.Generator().manual_seed(0)
    values, eligible = torch.rand(50, 40, generator=g), torch.rand(50, 40, generator=g) < 0.2
    idx, filled = mining.hardest(values, eligible, 6, largest=False, priority=torch.rand(50, 40, generator=g))
    for row in range(50):
        chosen = idx[row][filled[row]].tolist()
        assert len(set(chosen)) == len(chosen) == min(6, int(eligible[row].sum()))
        assert eligible[row][chosen].all()
        assert values[row][chosen].tolist() == sorted(values[row][chosen].tolist())


def test_drawn_samples_that_tie_come_in_the_order_of_their_numbers() -> None:
    priority = torch.rand(20, 30, generator=torch.Generator().manual_seed(2))
    every = torch.ones(20, 30, dtype=torch.bool)
    idx, _ = mining.hardest(torch.ones(20, 30), every, 6, largest=True, priority=priority)
    assert torch.equal(idx, idx.sort(-1).values)


def test_every_eligible_sample_is_drawn_equally_often() -> None:
    g = torch.Generator().manual_seed(1)
    values, eligible = torch.zeros(6000, 8), torch.tensor([True, False] * 4).expand(6000, 8)
    idx, _ = mining.hardest(values, eligible, 2, largest=True, priority=torch.rand(6000, 8, generator=g))
    share = torch.bincount(idx.flatten(), minlength=8) / 6000
    torch.testing.assert_close(share, torch.tensor([0.5, 0.0] * 4), atol=0.03, rtol=0)


@settings(max_examples=150)
@given(batch=batches(), rho=st.sampled_from([0.07, 0.29, 0.5, 1.0]), scope=st.sampled_from(["minority", "all"]))
def test_profile_equals_the_loop_version(batch: Batch, rho: float, scope: str) -> None:
    profile = mining.profile(batch.targets, tuple(batch.sizes), rho, scope)
    expected = []
    for label, size in enumerate(batch.sizes):
        mined = oracles.mined(batch.targets[:, label].tolist(), size, rho, scope)
        expected += [c in mined for c in range(size)]
    assert profile.mined.tolist() == expected


def test_mined_columns_are_different_and_hold_every_mined_class() -> None:
    g = torch.Generator().manual_seed(0)
    for most in (1, 5, 9, 20):
        mined = torch.zeros(20, dtype=torch.bool)
        mined[torch.randperm(20, generator=g)[: most // 2 + 1]] = True
        rows = mining.mined_columns(mined, most).tolist()
        assert len(set(rows)) == len(rows) == most
        assert set(mined.nonzero().flatten().tolist()) <= set(rows)


@settings(max_examples=200)
@given(values=TIED, kappa=st.integers(1, 30), negative=st.booleans(), seed=st.integers(0, 999))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_highest_ascend_and_prefer_the_first_of_ties(
    dtype: torch.dtype, values: list[float], kappa: int, negative: bool, seed: int
) -> None:
    row = torch.tensor([values], dtype=dtype) - (1 if negative else 0)
    row[torch.rand(row.shape, generator=torch.Generator().manual_seed(seed)) < 0.4] = -torch.inf
    found, idx = mining.highest(row, kappa, negative)
    expected = sorted(range(len(values)), key=lambda i: (-row[0, i].item(), i))[:kappa]
    assert found.tolist() == row[:, expected[::-1]].tolist()
    finite = int(row.isfinite().sum())
    chosen = [i for i in idx[0].tolist() if row[0, i] > -torch.inf]
    assert set(chosen) == set(expected[:finite])
    if kappa < len(values):
        assert chosen == expected[:finite][::-1]


@settings(max_examples=100)
@given(batch=batches(most_labels=1), kappa=st.sampled_from([1, 3, 25]))
def test_class_level_equals_the_loop_version(batch: Batch, kappa: int) -> None:
    p, labels = batch.logits.softmax(1), batch.targets[:, 0]
    classes = torch.arange(batch.sizes[0])[:, None]
    hard = mining.class_level(p.t(), labels == classes, (labels >= 0) & (labels != classes), kappa)
    for c in range(batch.sizes[0]):
        own, other = oracles.hard_of_class(p, labels.tolist(), c, kappa)
        assert hard.positive_idx[c][hard.positive[c]].tolist() == own
        assert hard.negative_idx[c][hard.negative[c]].tolist() == other


@pytest.mark.parametrize("kappa", [1, 4, 40])
def test_one_sort_mines_as_two_do(kappa: int) -> None:
    g = torch.Generator().manual_seed(kappa)
    for _ in range(30):
        scores = torch.randint(0, 6, (7, 20), generator=g) / 5  # 0 and 1 among them, and many ties
        scores[:, :3] *= 1e-30
        own = torch.randint(-1, 2, (7, 20), generator=g)
        own[0], own[1] = 0, -1  # a row of others alone, and one of nobody
        found = mining._by_one_sort(scores, own == 1, own == 0, kappa)
        wanted = mining.class_level(scores, own == 1, own == 0, kappa)
        for idx, filled, its, there in (
            (found.positive_idx, found.positive, wanted.positive_idx, wanted.positive),
            (found.negative_idx, found.negative, wanted.negative_idx, wanted.negative),
        ):
            assert torch.equal(filled, there)
            assert torch.equal(idx[filled], its[there])


@settings(max_examples=100)
@given(batch=batches(most_labels=1), kappa=st.sampled_from([1, 3, 25]))
def test_instance_level_equals_the_loop_version(batch: Batch, kappa: int) -> None:
    labels, features = batch.targets[:, 0], batch.features.flatten(1)
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")
    same = (labels[:, None] == labels) & ~torch.eye(len(labels), dtype=torch.bool)
    other = (labels[:, None] != labels) & (labels >= 0)
    hard = mining.instance_level(distances[None], same[None], other[None], kappa)
    for a in [i for i in range(len(labels)) if labels[i] >= 0]:
        own, others = oracles.hard_of_anchor(distances[a].tolist(), labels.tolist(), a, kappa)
        assert hard.positive_idx[0, a][hard.positive[0, a]].tolist() == own
        assert hard.negative_idx[0, a][hard.negative[0, a]].tolist() == others
