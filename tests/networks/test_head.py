"""The batched head and its slow twin: a loop over labels of nn.Linear layers with the same weights."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from rectifier import LabelSpace
from rectifier.labels.space import first_columns
from rectifier.networks.head import BranchLinear, LabelClassifier, MultiLabelHead

LAYOUTS = {
    "celeba": [2] * 40,
    "cifar": [100],
    "mixed": [6, 9, 55],
    "one class": [1, 3, 1],
    "mostly padding": [2, 5, 300, 2, 3, 2, 2, 64],
    "mostly padding, in blocks": [2, 2, 300, 2, 2, 3, 2, 2, 2, 2, 64],
}
INPUTS, SAMPLES = 20, 7


class SlowHead(nn.Module):
    """One branch after the other, one layer after the other."""

    def __init__(self, inputs: int, sizes: list[int], hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList()
        for _ in sizes:
            layers: list[nn.Module] = []
            for before, after in pairwise((inputs, *hidden)):
                layers += [nn.Linear(before, after), nn.ReLU()]
            self.branches.append(nn.Sequential(*layers))
        self.classifiers = nn.ModuleList(nn.Linear((inputs, *hidden)[-1], size) for size in sizes)

    def forward(self, shared: Tensor) -> tuple[Tensor, Tensor]:
        features = [branch(shared) for branch in self.branches]
        logits = [classify(feature) for classify, feature in zip(self.classifiers, features, strict=True)]
        return torch.cat(logits, 1), torch.stack(features, 1)


def matching_parameters(slow: SlowHead, head: MultiLabelHead) -> list[tuple[Tensor, Tensor]]:
    """Pairs of the slow head's parameters and the slices of the fast head's that stand for them."""
    return _pairs(slow, head, lambda parameter: parameter)


def matching_gradients(slow: SlowHead, head: MultiLabelHead) -> list[tuple[Tensor, Tensor]]:
    return _pairs(slow, head, lambda parameter: parameter.grad)


def _pairs(slow: SlowHead, head: MultiLabelHead, read) -> list[tuple[Tensor, Tensor]]:
    pairs, labels = [], len(head.sizes)
    layers = [] if head.entry is None else [head.entry, *head.deeper]
    for label, start in enumerate(first_columns(head.sizes)):
        linear = [layer for layer in slow.branches[label] if isinstance(layer, nn.Linear)]
        for one, layer in zip(linear, layers, strict=True):
            for name in ("weight", "bias"):
                every = read(getattr(layer, name))
                every = every if isinstance(layer, BranchLinear) else every.unflatten(0, (labels, -1))
                pairs.append((read(getattr(one, name)), every[label]))
        own = slice(start, start + head.sizes[label])
        classify = slow.classifiers[label]
        pairs += [(read(classify.weight), read(head.classifier.weight)[own])]
        pairs += [(read(classify.bias), read(head.classifier.bias)[own])]
    return pairs


@pytest.mark.parametrize("hidden", [(), (8,), (8, 5), (6, 7, 4)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_features_and_gradients_equal_a_loop_over_labels(layout: str, hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    sizes = LAYOUTS[layout]
    head = MultiLabelHead(INPUTS, sizes, hidden=hidden).double()
    slow = SlowHead(INPUTS, sizes, hidden).double()
    with torch.no_grad():
        for theirs, ours in matching_parameters(slow, head):
            theirs.copy_(ours)

    shared = torch.randn(SAMPLES, INPUTS, dtype=torch.float64)
    inputs = shared.clone().requires_grad_(), shared.clone().requires_grad_()
    logits, features = head(inputs[0])
    expected_logits, expected_features = slow(inputs[1])
    if not hidden:
        assert features is inputs[0]
        expected_features = inputs[1]
    torch.testing.assert_close(logits, expected_logits)
    torch.testing.assert_close(features, expected_features)

    for given, seen in ((logits, features), (expected_logits, expected_features)):
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in (given, seen)]
        ((given * weights[0]).sum() + (seen.square() * weights[1]).sum()).backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    for theirs, ours in matching_gradients(slow, head):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_is_no_parameter(layout: str) -> None:
    sizes = LAYOUTS[layout]
    head = MultiLabelHead(INPUTS, sizes, hidden=(8, 5))
    slow = SlowHead(INPUTS, sizes, (8, 5))
    assert sum(p.numel() for p in head.parameters()) == sum(p.numel() for p in slow.parameters())
    assert set(head.state_dict()) == {name for name, _ in head.named_parameters()}
    assert head.classifier.weight.shape == (sum(sizes), 5)


def test_one_long_label_does_not_widen_the_others() -> None:
    classifier = LabelClassifier(4, tuple([2] * 50 + [1000]))
    assert classifier.blocks == ((50, 2), (1, 1000))
    assert LabelClassifier(4, (2,) * 50).place is None


@pytest.mark.parametrize("hidden", [(), (64,), (64, 32)], ids=str)
def test_weights_are_drawn_as_those_of_single_linear_layers(hidden: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    sizes = [30, 40, 20] * 10
    head, slow = MultiLabelHead(50, sizes, hidden=hidden), SlowHead(50, sizes, hidden)
    ours = [p for _, p in matching_parameters(slow, head)]
    theirs = [p for p, _ in matching_parameters(slow, head)]
    for shape in {p.shape[1:] for p in ours}:  # weights by their number of inputs; all biases together
        mine = torch.cat([p.detach().flatten() for p in ours if p.shape[1:] == shape])
        other = torch.cat([p.detach().flatten() for p in theirs if p.shape[1:] == shape])
        assert mine.std() == pytest.approx(float(other.std()), rel=0.05)
        assert mine.abs().max() == pytest.approx(float(other.abs().max()), rel=0.02)
        assert mine.mean().abs() < 4 * mine.std() / len(mine) ** 0.5


def test_reset_redraws_everything_within_the_same_bounds() -> None:
    head = MultiLabelHead(20, [2, 3], hidden=(8, 5))
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.fill_(9.0)
    head.reset_parameters()
    assert all(parameter.abs().max() < 0.5 for parameter in head.parameters())
    shared = MultiLabelHead(20, [2, 3], hidden=0)
    before = shared.classifier.weight.clone()
    shared.reset_parameters()
    assert not torch.equal(before, shared.classifier.weight)


def test_dropout_reaches_the_classifier_and_not_the_features() -> None:
    torch.manual_seed(0)
    head = MultiLabelHead(30, [3, 4], hidden=0, dropout=0.5)
    shared = torch.randn(5, 30)
    assert head(shared).features is shared
    assert not torch.equal(head(shared).logits, head(shared).logits)
    head.eval()
    assert torch.equal(head(shared).logits, head(shared).logits)
    branched = MultiLabelHead(30, [3, 4], hidden=(50,), dropout=0.9)
    silent = (branched(torch.ones(5, 30)).features == 0).double().mean()
    assert silent < 0.8  # features come before the classifiers' dropout, so ReLU alone silences them


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bfloat16_autocast_gives_nearly_the_same(layout: str) -> None:
    torch.manual_seed(0)
    head = MultiLabelHead(INPUTS, LAYOUTS[layout], hidden=(8, 5))
    shared = torch.randn(SAMPLES, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        logits, _ = head(shared)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), head(shared).logits, atol=0.02, rtol=0.05)


def test_exports_as_one_graph() -> None:
    head = MultiLabelHead(INPUTS, LAYOUTS["mostly padding, in blocks"], hidden=(8,)).eval()
    shared = torch.randn(SAMPLES, INPUTS)
    exported = torch.export.export(head, (shared,))
    torch.testing.assert_close(exported.module()(shared)[0], head(shared)[0])


def test_a_label_space_says_the_sizes() -> None:
    assert MultiLabelHead(4, LabelSpace.from_sizes([2, 3])).sizes == (2, 3)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"in_features.*positive integer.*-3") as error:
        MultiLabelHead(-3, [2], hidden=(0, 4), dropout=1.0)
    assert "hidden to be a width, a list of widths, or 0 for none" in str(error.value)
    assert "dropout to be a number from 0 and below 1, but got 1.0" in str(error.value)


@pytest.mark.parametrize("sizes", [None, "10"])
def test_sizes_must_be_listed(sizes: object) -> None:
    with pytest.raises(TypeError, match="Expected sizes to be a positive integer, a list of them, or a LabelSpace"):
        MultiLabelHead(4, sizes)
