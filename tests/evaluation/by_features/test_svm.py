from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC
from torch import Generator, Tensor

from helpers.cases import make_batch
from rectifier import LabelSpace, class_balanced_accuracy
from rectifier.evaluation.by_features import svm as support
from rectifier.evaluation.by_features.svm import NEVER, SVMDecision
from rectifier.labels.columns import argmax


def separable(sizes: list[int], samples: int = 120, shared: bool = True) -> tuple[Tensor, Tensor]:
    g = Generator().manual_seed(0)
    targets = torch.stack([torch.randint(0, size, (samples,), generator=g) for size in sizes], 1)
    blocks = [torch.eye(size)[targets[:, a]] * 3 for a, size in enumerate(sizes)]
    width = sum(sizes) if shared else max(sizes)
    if shared:
        features = torch.cat(blocks, 1)
    else:
        features = torch.stack([torch.nn.functional.pad(b, (0, width - b.shape[1])) for b in blocks], 1)
    return features + 0.1 * torch.randn(features.shape, generator=g), targets


def fitted(features: Tensor, targets: Tensor, sizes: list[int], strength: float = 1.0) -> SVMDecision:
    return SVMDecision.fit(features, targets, LabelSpace.from_sizes(sizes), features, targets, strength=strength)


def fitted_scores(features: Tensor, targets: Tensor, queries: Tensor, sizes: list[int], strength: float = 1) -> Tensor:
    return fitted(features, targets, sizes, strength)(queries)


def scaled(features: Tensor) -> Tensor:
    deviation = features.double().std(0, correction=0)
    return (features - features.double().mean(0)) / torch.where(deviation > 0, deviation, 1.0)


@pytest.mark.parametrize("sizes", [[2], [5], [2, 4, 3]])
@pytest.mark.parametrize("shared", [True, False])
def test_what_can_be_separated_is(sizes: list[int], shared: bool) -> None:
    features, targets = separable(sizes, shared=shared)
    known = targets.clone()
    known[::7, 0] = -1
    scores = fitted_scores(features[:80], known[:80], features[80:], sizes)
    assert scores.shape == (40, sum(sizes))
    assert scores.dtype == torch.float32
    assert class_balanced_accuracy(scores, targets[80:], sizes) == 1
    assert torch.equal(argmax(scores, tuple(sizes)), targets[80:])


@settings(max_examples=30)
@given(
    st.sampled_from([[2], [4], [2, 5, 2, 3]]),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.001, 0.3, 1.0, 30.0]),
)
def test_machines_are_scikit_learns(sizes: list[int], seed: int, shared: bool, missing: float, strength: float) -> None:
    """Label by label, on the samples that have it: liblinear makes the same sum least, in another way."""
    batch = make_batch(sizes, 90, seed, skew=1.0, missing=missing, shared=shared, dtype=torch.float32)
    scores = fitted_scores(batch.features[:70], batch.targets[:70], batch.features[70:], sizes, strength=strength)
    for a, block in enumerate(scores.split(sizes, 1)):
        features = batch.features if shared else batch.features[:, a]
        own = batch.targets[:70, a]
        x = (features - features[:70].mean(0)) / features[:70].std(0, correction=0)
        present = own[own >= 0].unique()
        if len(present) < 2:
            continue
        machine = LinearSVC(C=strength, dual=False, tol=1e-8, max_iter=10_000)
        machine.fit(x[:70][own >= 0].double().numpy(), own[own >= 0].numpy())
        values = torch.from_numpy(machine.decision_function(x[70:].double().numpy())).float()
        shown = block[:, present]
        torch.testing.assert_close(
            shown[:, 1] - shown[:, 0] if len(present) == 2 else shown, values, atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("seed", range(20))
def test_few_samples_whose_errors_count_much(seed: int) -> None:
    """Newton's whole steps go round in circles here, for one seed in four."""
    g = Generator().manual_seed(seed)
    features = torch.randn(9, 4, generator=g)
    targets = (features[:, :1] + 0.5 * torch.randn(9, 1, generator=g) > 0.3).long()
    weight = fitted(features, targets, [2], 1000.0).weight
    machine = LinearSVC(C=1000.0, dual=False, tol=1e-10, max_iter=10_000).fit(scaled(features).numpy(), targets[:, 0])
    theirs = torch.from_numpy(machine.coef_[0]) / features.double().std(0, correction=0)
    torch.testing.assert_close(2 * weight[1].double(), theirs, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("rare", [3, 200])
def test_nothing_is_left_of_the_gradient(rare: int) -> None:
    """What the sum's minimum is known by, where features are alike and a class is rare."""
    g = Generator().manual_seed(0)
    common = torch.randn(2000, 1, generator=g)
    features = 5 * common + 0.1 * torch.randn(2000, 12, generator=g) + 3
    targets = (torch.arange(2000) < rare).long()[:, None]
    features[:rare, 0] += 0.1
    found = fitted(features, targets, [2], 2.0)
    weight, bias = found.weight[1] * 2, found.bias[1] * 2  # half of the difference
    x = scaled(features)
    w = torch.cat([weight.double() * features.double().std(0, correction=0), torch.zeros(1)])
    w[-1] = bias + features.double().mean(0) @ weight.double()
    x = torch.cat([x, torch.ones(2000, 1)], 1)
    side = 2.0 * targets[:, 0] - 1
    pull = 4 * x * (side * (1 - side * (x @ w)).clamp(min=0))[:, None]
    left = (w - pull.sum(0)).norm()
    assert left < 1e-4 * (4 * x * side[:, None]).sum(0).norm()
    assert pull.norm(dim=1).max() > 100 * left  # of one sample alone


def test_machines_know_nothing_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch([2, 4, 3], 60, skew=1.0, shared=True, dtype=torch.float32)
    together = fitted(batch.features, batch.targets, [2, 4, 3])
    at_once = []
    least = support._least
    monkeypatch.setattr(support, "_NUMBERS", 120)
    monkeypatch.setattr(support, "_least", lambda x, sides, c: at_once.append(sides.shape) or least(x, sides, c))
    apart = fitted(batch.features, batch.targets, [2, 4, 3])
    torch.testing.assert_close(apart.weight, together.weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(apart.bias, together.bias, atol=1e-5, rtol=1e-5)
    assert at_once == [(60, 2)] * 4  # the label of two classes needs one machine


def test_units_and_places_of_features_do_not_matter() -> None:
    batch = make_batch([3], 60, skew=1.0, shared=True, dtype=torch.float64)
    features = torch.cat([batch.features, torch.tensor([[7.0, 0.1]]).expand(60, 2)], 1)  # two that say nothing
    scores = fitted_scores(features, batch.targets, features, [3])
    moved = 1000 * features + torch.arange(features.shape[1])
    torch.testing.assert_close(fitted_scores(moved, batch.targets, moved, [3]), scores, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(("offset", "deviation"), [(1e6, 1.0), (1e4, 1e-2), (0.0, 1e-200), (0.0, 1e200)])
def test_features_far_from_0_lose_nothing(offset: float, deviation: float) -> None:
    batch = make_batch([3], 200, skew=1.0, shared=True, dtype=torch.float64)
    x = offset + deviation * batch.features
    scores = fitted_scores(batch.features, batch.targets, batch.features, [3])
    torch.testing.assert_close(fitted_scores(x, batch.targets, x, [3]), scores, atol=1e-4, rtol=1e-4)


def test_errors_count_as_much_as_asked_for() -> None:
    batch = make_batch([2], 80, skew=1.0, shared=True, dtype=torch.float32)
    weights = [fitted(batch.features, batch.targets, [2], c).weight.norm() for c in (0.001, 0.1, 10)]
    assert weights == sorted(weights)
    assert weights[0] < 0.5 * weights[-1]


def test_machines_that_are_not_at_their_minimum_tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = make_batch([2], 80, skew=1.0, shared=True, dtype=torch.float32)
    fitted(batch.features, batch.targets, [2])
    assert not capsys.readouterr().err
    monkeypatch.setattr(support, "_NEWTON_STEPS", 1)
    fitted(batch.features, batch.targets, [2])
    assert "did not converge fully" in capsys.readouterr().err


def test_classes_without_samples() -> None:
    features, _ = separable([3])
    targets = torch.stack([torch.arange(120) % 2 * 2, torch.full((120,), 1), torch.full((120,), -1)], 1)
    scores = fitted_scores(features, targets, features[:10], [4, 2, 2])
    assert (scores[:, [1, 3]] == NEVER).all()
    assert (scores[:, [0, 2]].abs() < 100).all()
    assert torch.equal(scores[:, 0], -scores[:, 2])
    assert scores[:, 4:].tolist() == [[NEVER, 0.0, 0.0, 0.0]] * 10
