"""The cosine classifier, with branches and without: values, gradients, and what it does not depend on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oracles import cosine_logits
from rectifier.networks.head import SCALE, MultiLabelHead
from rectifier.networks.registry import build_network

LAYOUTS = {"one label": [4], "celeba": [2] * 40, "mixed": [6, 9, 55], "in blocks": [2, 2, 3, 2, 2, 2, 2, 2, 2, 64]}
HIDDEN = [(), (5,), (6, 4)]
every_head = pytest.mark.parametrize("hidden", HIDDEN, ids=str)
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def head_of(layout: str, hidden: tuple[int, ...], **options: object) -> MultiLabelHead:
    torch.manual_seed(0)
    return MultiLabelHead(7, LAYOUTS[layout], hidden=hidden, classifier="cosine", **options)


def shared_input(samples: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(samples, 7, dtype=dtype, generator=torch.Generator().manual_seed(1))


@every_head
@every_layout
def test_logits_and_gradients_equal_a_loop(layout: str, hidden: tuple[int, ...]) -> None:
    head = head_of(layout, hidden).double()
    shared = shared_input().requires_grad_()
    logits, features = head(shared)
    expected = cosine_logits(features, head.classifier.weight, LAYOUTS[layout])
    torch.testing.assert_close(logits, expected)
    wanted = [shared, *head.parameters()]
    ours = torch.autograd.grad(logits.square().sum() + logits[:, 1:].sum(), wanted, retain_graph=True)
    theirs = torch.autograd.grad(expected.square().sum() + expected[:, 1:].sum(), wanted)
    torch.testing.assert_close(ours, theirs)


@every_head
@every_layout
def test_a_logit_is_at_most_the_scale(layout: str, hidden: tuple[int, ...]) -> None:
    head = head_of(layout, hidden)
    logits = head(100 * shared_input(50, torch.float32)).logits
    assert logits.abs().max() <= SCALE * (1 + 1e-6)
    assert logits.abs().max() > 0.3 * SCALE


@pytest.mark.parametrize("classifier", ["linear", "cosine"])
@pytest.mark.parametrize("hidden", [(), (5,)], ids=str)
def test_only_cosines_do_not_depend_on_the_scale_of_features_or_weights(
    hidden: tuple[int, ...], classifier: str
) -> None:
    torch.manual_seed(0)
    head = MultiLabelHead(7, LAYOUTS["mixed"], hidden=hidden, classifier=classifier).double()
    features = torch.randn(6, 3, 5, dtype=torch.float64) if hidden else shared_input(6)
    scale = torch.rand(6, 3, 1, dtype=torch.float64) * 1e3 + 0.1 if hidden else torch.logspace(-3, 3, 6)[:, None]
    before = head.classifier(features)
    same = torch.allclose(head.classifier(features * scale), before)
    with torch.no_grad():
        head.classifier.weight *= torch.logspace(-3, 3, 70, dtype=torch.float64)[:, None]
    assert same == torch.allclose(head.classifier(features), before) == (classifier == "cosine")


@every_head
def test_its_own_weights_are_most_like_a_class(hidden: tuple[int, ...]) -> None:
    head = head_of("one label", hidden).double()
    own = head.classifier.weight.detach()[:, None] if hidden else head.classifier.weight.detach()
    torch.testing.assert_close(head.classifier(3 * own).diagonal(), torch.full((4,), SCALE, dtype=torch.float64))


@every_head
def test_there_is_no_bias_and_the_weight_has_a_row_for_each_class(hidden: tuple[int, ...]) -> None:
    head = head_of("mixed", hidden)
    assert head.classifier.bias is None
    assert head.classifier.weight.shape == (70, (7, *hidden)[-1])
    assert "classifier.bias" not in head.state_dict()
    linear = MultiLabelHead(7, LAYOUTS["mixed"], hidden=hidden)
    bound = float(linear.classifier.weight.detach().abs().max())
    assert float(head.classifier.weight.detach().abs().max()) == pytest.approx(
        bound, rel=0.05
    )  # drawn as a linear classifier's


@every_head
@every_layout
def test_under_autocast_the_cosine_is_of_single_precision(layout: str, hidden: tuple[int, ...]) -> None:
    head = head_of(layout, hidden)
    with torch.autocast("cpu", torch.bfloat16):
        logits, features = head(shared_input(dtype=torch.float32))
    assert logits.dtype == torch.float32
    assert not hidden or features.dtype == torch.bfloat16
    # From the features as autocast left them, the logits are exact.
    expected = cosine_logits(features.double(), head.classifier.weight.double(), LAYOUTS[layout])
    torch.testing.assert_close(logits.double(), expected, atol=1e-6, rtol=1e-6)
    logits.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in head.parameters())


@pytest.mark.parametrize("hidden", [(), (5,)], ids=str)
def test_features_without_direction_give_zero_and_an_ordinary_gradient(hidden: tuple[int, ...]) -> None:
    head = head_of("mixed", hidden)
    features = torch.zeros((2, 3, 5) if hidden else (2, 7), requires_grad=True)
    logits = head.classifier(features)
    assert not logits.any()
    logits.sum().backward()
    for gradient in (features.grad, head.classifier.weight.grad):
        assert gradient.abs().max() < 100 * SCALE  # nan and inf are not


@every_head
def test_it_is_one_graph(hidden: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    head = head_of("in blocks", hidden).eval()
    shared = shared_input(dtype=torch.float32)
    compiled = torch.compile(head, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(shared).logits, head(shared).logits)
    exported = torch.export.export(head, (shared,))
    torch.testing.assert_close(exported.module()(shared)[0], head(shared)[0])
    torch._dynamo.reset()


@pytest.mark.parametrize(("network", "options"), [("mlp", {}), ("cifarnet", {"branch": 6}), ("resnet32", {"depth": 8})])
def test_a_network_hands_it_on(network: str, options: dict) -> None:
    built = build_network(network, [3, 4], (8, 8, 3), seed=0, classifier="cosine", **options).eval()
    output = built(torch.randn(4, 3, 8, 8))
    expected = cosine_logits(output.features, built.head.classifier.weight, [3, 4])
    torch.testing.assert_close(output.logits, expected, atol=1e-5, rtol=1e-5)


def test_an_unknown_classifier_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"classifier to be one of 'linear', 'cosine', but got 'cosinus'.*'cosine'"):
        MultiLabelHead(7, [3], classifier="cosinus")
