from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier.losses.crl import chunks
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.ranked_triplet import RankedCrossEntropy, ranked_triplets, ranking_loss

EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


def assert_equals_the_loop_version(batch: Batch, margin: float) -> None:
    features = batch.features.clone().requires_grad_()
    loss, triplets = ranked_triplets(features, batch.targets, margin)
    expected, number = oracles.ranked_triplets(features, batch.targets, margin)
    torch.testing.assert_close(loss, expected, atol=1e-9, rtol=1e-7)
    assert triplets.item() == number
    gradients = [torch.autograd.grad(value, features)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients, atol=1e-8, rtol=1e-6)


@settings(max_examples=40)
@given(batches(most_labels=6, most_classes=5, most_samples=24))
def test_equals_the_loop_version(batch: Batch) -> None:
    assert_equals_the_loop_version(batch, 0.2)


@pytest.mark.parametrize("sizes", [[3], [2] * 40, [2, 7, 3]])
@pytest.mark.parametrize("shared", [False, True])
def test_layouts(sizes: list[int], shared: bool) -> None:
    assert_equals_the_loop_version(make_batch(sizes, 14, seed=3, missing=0.2, shared=shared, skew=1.0), 0.7)


def test_equal_features_tie_wherever_they_stand() -> None:
    """Long features, whose distances are rounded differently from place to place."""
    g = torch.Generator().manual_seed(0)
    features = torch.randn(12, 50, generator=g, dtype=torch.float64)[torch.randint(0, 12, (37,), generator=g)]
    targets = torch.randint(0, 3, (37, 4), generator=g)
    assert_equals_the_loop_version(Batch(features, targets, features, [3] * 4), 1.0)


def test_by_hand() -> None:
    """The first two agree in both labels, the third in one with each, the fourth in none with anybody.

    Anchor 0: positive 1 at 2, nearest of the others the third at 0. Anchor 1: positive 0 at 2, nearest at 2.
    Anchor 2: positives 0 and 1 at 0 and 2, negative the fourth at 4. Anchor 3 agrees with all alike: no triplet.
    """
    features = torch.tensor([EAST, NORTH, EAST, WEST])
    targets = torch.tensor([[0, 0], [0, 0], [0, 1], [1, 2]])
    expected = [1 + 2 - 0, 1 + 2 - 2, 0, 0]
    assert ranking_loss(features, targets, margin=1.0).item() == pytest.approx(sum(expected) / 4)
    assert ranked_triplets(features, targets, 1.0)[1] == 4


def test_agreement_is_a_share_of_the_labels_that_both_have() -> None:
    """The third agrees in its one known label and so is as positive as the second; the fourth, unknown, is neither."""
    targets = torch.tensor([[0, 0], [0, 0], [0, -1], [-1, -1], [1, 1]])
    assert ranked_triplets(torch.randn(5, 3), targets, 0.2)[1] == 3 * 2


def test_joined_features_are_those_of_all_labels_side_by_side() -> None:
    batch = make_batch([2, 3], 20)
    flat = ranking_loss(batch.features.flatten(1), batch.targets)
    torch.testing.assert_close(ranking_loss(batch.features, batch.targets), flat)
    torch.testing.assert_close(ranking_loss(5 * batch.features, batch.targets), flat)


@pytest.mark.parametrize("targets", [[[0], [1], [2]], [[0], [0], [0]], [[-1], [-1], [-1]], [[0], [1], [-1]]])
def test_nothing_to_compare_is_zero_with_a_gradient_path(targets: list[list[int]]) -> None:
    features = torch.randn(3, 4, requires_grad=True)
    value = ranking_loss(features, torch.tensor(targets))
    assert value.item() == 0
    value.backward()
    assert not features.grad.any()


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch([2, 5], 31, seed=2, missing=0.1)
    results = []
    for size in (2**30, (4 * 2 + 96) * 31 * 7, 1):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
        features = batch.features.clone().requires_grad_()
        value = ranking_loss(features, batch.targets)
        results.append((value, *torch.autograd.grad(value, features)))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])


def test_gradcheck() -> None:
    batch = make_batch([3, 2], 9, seed=4, skew=1.0)
    features = batch.features.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ranking_loss(x, batch.targets, 0.5), features)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_objective_is_cross_entropy_plus_weighted_ranking(reduction: str) -> None:
    batch = make_batch([2, 5], 30, seed=1, missing=0.2)
    entropy = CrossEntropyLoss(batch.sizes, label_reduction=reduction)(*batch[:2])
    ranking, number = oracles.ranked_triplets(batch.features, batch.targets, 0.3)
    for weight in (0.0, 0.7):
        objective = RankedCrossEntropy(batch.sizes, weight, 0.3, label_reduction=reduction)
        parts = objective(*batch[:3], return_parts=True)
        torch.testing.assert_close(parts.loss, entropy + weight * ranking)
        torch.testing.assert_close(parts.rectification, ranking.expand(2))
        torch.testing.assert_close(parts.base_loss, oracles.cross_entropy(*batch[:2], batch.sizes))
        assert parts.comparisons.tolist() == [number, number]
        assert objective(*batch[:3]) == parts.loss


def test_ranking_reaches_the_features_and_cross_entropy_the_logits() -> None:
    batch = make_batch([2, 5], 30, seed=1)
    logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
    parts = RankedCrossEntropy(batch.sizes)(logits, batch.targets, features, return_parts=True)
    assert [part.requires_grad for part in parts] == [True] + [False] * 5
    parts.loss.backward()
    assert logits.grad.any()
    assert features.grad.any()


def test_one_graph() -> None:
    torch._dynamo.reset()
    objective = RankedCrossEntropy([3, 7, 2])
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    for seed in range(2):
        batch = make_batch([3, 7, 2], 20, seed, missing=0.1)
        results = []
        for function in (objective, compiled):
            features = batch.features.clone().requires_grad_()
            value = function(batch.logits, batch.targets, features)
            results.append((value, *torch.autograd.grad(value, features)))
        torch.testing.assert_close(*results)


def test_wrong_input() -> None:
    with pytest.raises(ValueError, match=r"(?s)weight to be a number of at least 0.*label_reduction to be one of"):
        RankedCrossEntropy([2], -1.0, label_reduction="none")
    with pytest.raises(ValueError, match=r"margin to be a positive number"):
        RankedCrossEntropy([2], margin=0)
    with pytest.raises(ValueError, match=r"features to be as long as targets"):
        ranking_loss(torch.zeros(4, 2), torch.zeros(3, dtype=torch.int64))
