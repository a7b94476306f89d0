from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

import oracles
from helpers.cases import Batch, batches, make_batch
from rectifier import LabelSpace
from rectifier.losses.crl import chunks
from rectifier.losses.semi_hard_triplet import SemiHardTripletLoss, semi_hard_triplet_loss, semi_hard_triplets

EAST, NORTH, WEST = [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]


def assert_equals_the_loop_version(batch: Batch, margin: float) -> None:
    features = batch.features.clone().requires_grad_()
    loss = semi_hard_triplet_loss(features, batch.targets, margin, label_reduction="none")
    expected, numbers = oracles.semi_hard_triplets(features, batch.targets, margin)
    torch.testing.assert_close(loss, expected, atol=1e-9, rtol=1e-7)
    assert semi_hard_triplets(features, batch.targets, margin)[1].tolist() == numbers
    weight = torch.arange(1.0, len(loss) + 1, dtype=torch.float64)  # so that no label's gradient hides another's
    gradients = [torch.autograd.grad((value * weight).sum(), features)[0] for value in (loss, expected)]
    torch.testing.assert_close(*gradients, atol=1e-8, rtol=1e-6)


@settings(max_examples=40)
@given(batches(most_labels=4, most_classes=9, most_samples=24))
def test_equals_the_loop_version(batch: Batch) -> None:
    assert_equals_the_loop_version(batch, 0.2)


@pytest.mark.parametrize("sizes", [[3], [2] * 40, [2, 7, 3]])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("margin", [0.2, 1.5])
def test_layouts(sizes: list[int], shared: bool, margin: float) -> None:
    assert_equals_the_loop_version(make_batch(sizes, 10, seed=3, missing=0.2, shared=shared, skew=1.0), margin)


def test_equal_features_tie_wherever_they_stand() -> None:
    """Long features, whose distances are rounded differently from place to place."""
    g = torch.Generator().manual_seed(0)
    features = torch.randn(12, 50, generator=g, dtype=torch.float64)[torch.randint(0, 12, (37,), generator=g)]
    targets = torch.randint(0, 3, (37, 1), generator=g)
    assert_equals_the_loop_version(Batch(features, targets, features, [3]), 1.0)


def test_by_hand() -> None:
    """Pairs (0,1): west is farther than the positive. All others: nothing is, so the farthest negative counts."""
    value = semi_hard_triplet_loss(torch.tensor([EAST, NORTH, EAST, WEST]), torch.tensor([0, 0, 1, 1]), margin=1.0)
    assert value.item() == pytest.approx((0 + (1 + 2 - 2) + (1 + 4 - 2) + (1 + 4 - 4)) / 4)


def test_the_semi_hard_negative_is_taken_and_not_the_hardest() -> None:
    """The positive of the first two is at 0; the hardest negative lies with them, the semi-hard one at 2."""
    features = torch.tensor([EAST, EAST, EAST, NORTH, WEST])
    value = semi_hard_triplet_loss(features, torch.tensor([0, 0, 1, 2, 2]), margin=3.0)
    north_west = [3 + 2 - 2.0, 3 + 2 - 4.0]  # north: all others at 2, none farther; west: those at 4
    assert value.item() == pytest.approx((2 * (3 - 2.0) + sum(north_west)) / 4)


def test_length_of_features_does_not_matter_and_missing_labels_are_left_out() -> None:
    batch = make_batch([3], 20, seed=1, skew=1.0)
    value = semi_hard_triplet_loss(batch.features, batch.targets)
    length = torch.rand(20, 1, 1, dtype=torch.float64) + 0.1
    torch.testing.assert_close(semi_hard_triplet_loss(batch.features * length, batch.targets), value)
    some = batch.targets.clone()
    some[12:] = -1
    expected = semi_hard_triplet_loss(batch.features[:12], batch.targets[:12])
    torch.testing.assert_close(semi_hard_triplet_loss(batch.features, some), expected)


@pytest.mark.parametrize("targets", [[0, 1, 2], [0, 0, 0], [-1, -1, -1], [0, 0, -1]])
def test_nothing_to_compare_is_zero_with_a_gradient_path(targets: list[int]) -> None:
    features = torch.randn(3, 4, requires_grad=True)
    value = semi_hard_triplet_loss(features, torch.tensor(targets))
    assert value.item() == 0
    value.backward()
    assert not features.grad.any()


def test_an_empty_batch_is_zero() -> None:
    features = torch.zeros(0, 4, requires_grad=True)
    loss = semi_hard_triplet_loss(features, torch.zeros(0, 2, dtype=torch.int64))
    assert loss.item() == 0
    loss.backward()
    assert features.grad is not None
    assert features.grad.shape == (0, 4)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = make_batch([2, 5], 31, seed=2, missing=0.1)
    results = []
    for size in (2**30, 96 * 2 * 31 * 7, 1):
        monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
        features = batch.features.clone().requires_grad_()
        value = semi_hard_triplet_loss(features, batch.targets)
        results.append((value, *torch.autograd.grad(value, features)))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])


def test_gradcheck() -> None:
    batch = make_batch([3], 9, seed=4, skew=1.0)
    features = batch.features.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: semi_hard_triplet_loss(x, batch.targets, 0.5), features)


def test_training_brings_classes_apart() -> None:
    """Random points of three classes: after some steps the nearest neighbour is of the same class."""
    g = torch.Generator().manual_seed(0)
    targets = torch.arange(30) % 3
    features = torch.randn(30, 4, generator=g).requires_grad_()
    optimizer = torch.optim.SGD([features], lr=3.0)
    for _ in range(300):
        optimizer.zero_grad()
        semi_hard_triplet_loss(features, targets, 0.5).backward()
        optimizer.step()
    unit = torch.nn.functional.normalize(features.detach())
    nearest = (torch.cdist(unit, unit) + 9 * torch.eye(30)).argmin(1)
    assert (targets[nearest] == targets).float().mean() > 0.95


def test_module_as_an_objective() -> None:
    batch = make_batch([2, 5], 30, seed=1, missing=0.2)
    logits, features = batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()
    objective = SemiHardTripletLoss(batch.sizes, 0.4)
    parts = objective(logits, batch.targets, features, return_parts=True)
    expected, pairs = oracles.semi_hard_triplets(features, batch.targets, 0.4)
    torch.testing.assert_close(parts.loss, expected.sum())
    torch.testing.assert_close(parts.base_loss, expected.detach())
    assert parts.comparisons.tolist() == pairs
    assert [part.requires_grad for part in parts] == [True] + [False] * 5
    assert not torch.stack([parts.rectification, parts.alpha, parts.mined_classes]).any()
    assert objective(logits, batch.targets, features) == parts.loss
    parts.loss.backward()
    assert features.grad.any()
    assert logits.grad is not None
    assert not logits.grad.any()
    mean = SemiHardTripletLoss(batch.sizes, 0.4, label_reduction="mean")
    torch.testing.assert_close(mean(logits, batch.targets, features), expected.mean())


def test_float32_inside_autocast() -> None:
    batch = make_batch([2, 5], 30, seed=1, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = SemiHardTripletLoss(batch.sizes)(*batch[:3])
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, semi_hard_triplet_loss(batch.features.float(), batch.targets))


@pytest.mark.parametrize("sizes", [[2] * 4, [3, 7, 2]])
def test_one_graph(sizes: list[int]) -> None:
    torch._dynamo.reset()
    objective = SemiHardTripletLoss(sizes)
    compiled = torch.compile(objective, fullgraph=True, backend="aot_eager")
    for seed in range(2):
        batch = make_batch(sizes, 20, seed, missing=0.1)
        results = []
        for function in (objective, compiled):
            features = batch.features.clone().requires_grad_()
            value = function(batch.logits, batch.targets, features)
            results.append((value, *torch.autograd.grad(value, features)))
        torch.testing.assert_close(*results)


def test_wrong_input() -> None:
    features, targets = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    for margin in (0, -1.0, float("nan"), "wide"):
        with pytest.raises(ValueError, match=r"margin to be a positive number"):
            SemiHardTripletLoss([2], margin)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"margin to be a positive number"):
            semi_hard_triplet_loss(features, targets, margin)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"features to be as long as targets \(3 samples\), but got 4"):
        semi_hard_triplet_loss(features, targets[:3])
    with pytest.raises(ValueError, match=r"features to be of shape \(N, D\) or \(N, 1, D\)"):
        semi_hard_triplet_loss(torch.zeros(4, 2, 3), targets)
    with pytest.raises(TypeError, match=r"targets to be an integer tensor"):
        semi_hard_triplet_loss(features, targets.float())
    space = LabelSpace.from_names({"age": [1, 2, 3]})
    with pytest.raises(ValueError, match=r"targets of label 'age' to be below 3"):
        SemiHardTripletLoss(space)(torch.zeros(4, 3), targets + 3, features)
