"""Decoupled classifiers against loops: logits, tau-normalisation and its choice, learned scales."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import oracles
from helpers.cases import make_batch
from rectifier.networks.decoupling import TAUS, LearnableScale, choose_tau, class_logits, tau_normalised
from rectifier.networks.head import MultiLabelHead

LAYOUTS = {"one label": [4], "celeba": [2] * 40, "mixed": [6, 9, 55], "in blocks": [2, 2, 3, 2, 2, 2, 2, 2, 2, 64]}
every_layout = pytest.mark.parametrize("sizes", LAYOUTS.values(), ids=LAYOUTS)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def head_of(sizes: list[int], hidden: tuple[int, ...]) -> MultiLabelHead:
    torch.manual_seed(0)
    return MultiLabelHead(5, sizes, hidden=hidden).double()


# Logits


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@every_layout
def test_logits_and_gradients_equal_a_loop(sizes: list[int], biased: bool, shared: bool) -> None:
    features = drawn(3, 4) if shared else drawn(3, len(sizes), 4)
    inputs = [features, drawn(sum(sizes), 4, seed=1)] + ([drawn(sum(sizes), seed=2)] if biased else [])
    for tensor in inputs:
        tensor.requires_grad_()
    classifier = (inputs[1], inputs[2] if biased else None)
    ours, theirs = class_logits(features, *classifier, sizes), oracles.head_logits(features, *classifier, sizes)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours.square().sum(), inputs), torch.autograd.grad(theirs.square().sum(), inputs)
    )


@pytest.mark.parametrize("hidden", [(), (3,)], ids=str)
@every_layout
def test_logits_are_those_of_a_head(sizes: list[int], hidden: tuple[int, ...]) -> None:
    head = head_of(sizes, hidden)
    logits, features = head(drawn(6, 5))
    found = class_logits(features, head.classifier.weight, head.classifier.bias, sizes)
    torch.testing.assert_close(found, logits)


def test_features_take_the_type_of_the_weight() -> None:
    features, weight = drawn(3, 4), drawn(2, 4, seed=1).float()
    for given in (features, features.float(), features.bfloat16()):
        assert class_logits(given, weight, None, [2]).dtype == torch.float32


# Tau


@pytest.mark.parametrize("tau", [0, 0.3, 1.0, 2.0])
def test_rows_are_divided_by_their_length_to_the_tau(tau: float) -> None:
    weight = drawn(5, 3) * torch.tensor([0.1, 1.0, 2.0, 10.0, 0.0], dtype=torch.float64)[:, None]
    rows = weight.tolist()
    expected = [[x / (oracles.length_to_the(row, tau) or 1) for x in row] for row in rows]
    torch.testing.assert_close(tau_normalised(weight, tau), torch.tensor(expected, dtype=torch.float64))


def test_no_tau_changes_nothing_and_one_gives_unit_rows() -> None:
    weight = 7 * drawn(6, 3)
    weight[2] = 0
    assert torch.equal(tau_normalised(weight, 0), weight)
    lengths = tau_normalised(weight, 1.0).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([1.0, 1, 0, 1, 1, 1], dtype=torch.float64))
    half = tau_normalised(weight, 0.5).norm(dim=1)
    torch.testing.assert_close(half, weight.norm(dim=1).sqrt())


@pytest.mark.parametrize("tau", [0.4, 1.0])
def test_gradients_of_normalised_weights(tau: float) -> None:
    assert torch.autograd.gradcheck(lambda w: tau_normalised(w, tau), drawn(4, 3).requires_grad_())
    zero = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    tau_normalised(zero, tau).sum().backward()
    assert torch.isfinite(zero.grad).all()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("sizes", [[4], [2] * 6, [2, 3, 7]], ids=str)
def test_the_tau_is_the_best_on_validation(sizes: list[int], biased: bool, shared: bool) -> None:
    batch = make_batch(sizes, 60, seed=2, missing=0.2, shared=shared)
    # Frequent classes, the first ones of each label, have the longer weights.
    length = torch.cat([torch.arange(size, 0, -1) for size in sizes]).double()[:, None]
    weight, bias = length * drawn(sum(sizes), 3, seed=4), drawn(sum(sizes), seed=5) if biased else None
    scores = []
    for tau in TAUS:
        logits = oracles.head_logits(batch.features, tau_normalised(weight, tau), bias, sizes)
        scores.append(oracles.class_balanced_accuracy(logits, batch.targets, sizes))
    assert len(set(scores)) > 1
    assert choose_tau(batch.features, batch.targets, weight, bias, sizes) == TAUS[scores.index(max(scores))]
    few = choose_tau(batch.features, batch.targets, weight, bias, sizes, taus=(0.5,))
    assert few == 0.5


def test_a_classifier_spoilt_by_its_lengths_is_mended() -> None:
    """Directions that tell all classes apart; only the first class's length hides the others."""
    weight = torch.eye(3) * torch.tensor([9.0, 1.0, 1.0])[:, None]
    features, targets = torch.eye(3) + 0.3, torch.tensor([[0], [1], [2]])
    tau = choose_tau(features, targets, weight, None, [3])
    decided = [class_logits(features, w, None, [3]).argmax(1).tolist() for w in (weight, tau_normalised(weight, tau))]
    assert decided == [[0, 0, 0], [0, 1, 2]]


def test_ties_go_to_the_first_tau() -> None:
    features, targets = torch.eye(2), torch.tensor([[0], [1]])
    assert choose_tau(features, targets, torch.eye(2), None, [2]) == 0
    assert choose_tau(features, targets, torch.eye(2), None, [2], taus=(0.7, 0.2)) == 0.7


# Learned scales


@pytest.mark.parametrize("hidden", [(), (3,)], ids=str)
@every_layout
def test_scales_multiply_logits_and_can_be_folded_in(sizes: list[int], hidden: tuple[int, ...]) -> None:
    head = head_of(sizes, hidden)
    inputs = drawn(6, 5)
    logits, features = head(inputs)
    scaled = LearnableScale(head.classifier)
    assert torch.equal(scaled(features), logits)
    with torch.no_grad():
        scaled.scale.copy_(drawn(sum(sizes), seed=3))
    torch.testing.assert_close(scaled(features), logits * scaled.scale)
    weight, bias = scaled.folded()
    torch.testing.assert_close(class_logits(features, weight, bias, sizes), scaled(features))
    folded = copy.deepcopy(head)
    folded.classifier.load_state_dict({"weight": weight, "bias": bias})
    torch.testing.assert_close(folded(inputs).logits, scaled(features))
    assert not weight.requires_grad
    assert not torch.allclose(weight, head.classifier.weight)


def test_a_classifier_without_bias_is_folded_without_one() -> None:
    scaled = LearnableScale(nn.Linear(3, 2, bias=False))
    weight, bias = scaled.folded()
    assert bias is None
    assert torch.equal(weight, scaled.classifier.weight)


def test_training_moves_the_scales_alone() -> None:
    head = head_of([2, 3], (4,))
    scaled = LearnableScale(head.classifier)
    before = copy.deepcopy(scaled.state_dict())
    features = drawn(8, 2, 4)
    optimizer = torch.optim.SGD([p for p in scaled.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    logits = scaled(features)
    (logits.square().sum() + logits.sum()).backward()
    expected = (features.new_tensor(2.0) * logits + 1).mul(head.classifier(features)).sum(0)
    torch.testing.assert_close(scaled.scale.grad, expected.detach())
    optimizer.step()
    assert all(p.grad is None for p in head.classifier.parameters())
    changed = {name for name, value in scaled.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"scale"}


def test_scales_have_the_type_of_the_weight() -> None:
    assert LearnableScale(nn.Linear(3, 2).double()).scale.dtype == torch.float64
    scale = LearnableScale(nn.Linear(3, 2)).scale
    assert torch.equal(scale, torch.ones(2))
    assert scale.is_contiguous()


# Wrong input


def test_wrong_classifiers_and_features() -> None:
    features, weight, targets = torch.zeros(2, 3, 4), torch.zeros(5, 4), torch.zeros(2, 1).long()
    with pytest.raises(ValueError, match=r"weight to be of shape \(6, D\), one row for each class, but got"):
        class_logits(features, weight, None, [2, 2, 2])
    with pytest.raises(ValueError, match=r"bias to be of shape \(5,\), one for each class, but got shape \(4,\)"):
        class_logits(features, weight, torch.zeros(4), [5])
    with pytest.raises(ValueError, match=r"bias to be of shape \(5,\), one for each class, but got shape \(1,\)"):
        choose_tau(torch.zeros(2, 4), targets, weight, torch.zeros(1), [5])
    with pytest.raises(ValueError, match=r"features to be of shape \(N, 4\) or \(N, 2, 4\), but got shape \(2, 3, 4\)"):
        class_logits(features, weight, None, [2, 3])
    with pytest.raises(ValueError, match="taus to be a list of at least one number, but got an empty one"):
        choose_tau(torch.zeros(2, 4), targets, weight, None, [5], taus=())
    for tau in (-0.1, float("inf"), "1"):
        with pytest.raises(ValueError, match="tau to be a number of at least 0, but got"):
            tau_normalised(weight, tau)  # type: ignore[arg-type]
    for module in (nn.ReLU(), nn.Conv2d(1, 1, 1)):
        with pytest.raises(TypeError, match=r"classifier to be a module with a weight of shape \(K, D\), but got"):
            LearnableScale(module)
