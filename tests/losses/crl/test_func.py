"""torch.func: transformed losses give what loops and autograd give."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap

from helpers.cases import DESIGNS, Batch, make_batch
from rectifier import ClassRectificationLoss, RectifiedCrossEntropy, class_rectification_loss

# One layout for each algorithm of the class-level triplets, and one whose labels are padded.
LAYOUTS = {"few classes": [2] * 4, "padded": [3, 7, 2], "many classes": [30]}
TURNS = [
    (*design, layout)
    for design, *two in zip(DESIGNS, itertools.cycle(LAYOUTS), itertools.cycle([*LAYOUTS][1:] + [*LAYOUTS][:1]))
    for layout in two
]
CASES = pytest.mark.parametrize(("level", "comparison", "layout"), TURNS)


def objective(level: str, comparison: str, layout: str, reduction: str = "sum") -> RectifiedCrossEntropy:
    counts = [torch.arange(size) + 1 for size in LAYOUTS[layout]]
    options = {"level": level, "comparison": comparison, "kappa": 5, "label_reduction": reduction}
    return RectifiedCrossEntropy(counts, alpha=0.5, **options).double()  # type: ignore[arg-type]


def batches(layout: str, number: int = 3) -> list[Batch]:
    return [make_batch(LAYOUTS[layout], 30, seed, missing=0.1) for seed in range(number)]


def gradients(loss: Callable[..., Tensor], batch: Batch) -> list[Tensor]:
    inputs = [batch.logits.clone().requires_grad_(), batch.features.clone().requires_grad_()]
    found = torch.autograd.grad(loss(inputs[0], batch.targets, inputs[1]), inputs, allow_unused=True)
    return [torch.zeros_like(given) if each is None else each for given, each in zip(inputs, found, strict=True)]


@CASES
def test_grad_equals_autograd(level: str, comparison: str, layout: str) -> None:
    loss, (batch,) = objective(level, comparison, layout), batches(layout, 1)
    found = grad(loss, argnums=(0, 2))(*batch[:3])
    torch.testing.assert_close(list(found), gradients(loss, batch))


@CASES
def test_vmap_over_batches_equals_a_loop(level: str, comparison: str, layout: str) -> None:
    loss, several = objective(level, comparison, layout), batches(layout)
    logits, targets, features = (torch.stack([batch[part] for batch in several]) for part in range(3))
    torch.testing.assert_close(
        vmap(loss)(logits, targets, features), torch.stack([loss(*batch[:3]) for batch in several])
    )
    found = vmap(grad(loss, argnums=(0, 2)))(logits, targets, features)
    expected = zip(*(gradients(loss, batch) for batch in several), strict=True)
    torch.testing.assert_close(list(found), [torch.stack(each) for each in expected])


@CASES
def test_vmap_over_networks_of_one_batch_equals_a_loop(level: str, comparison: str, layout: str) -> None:
    loss, several = objective(level, comparison, layout), batches(layout)
    logits, features = (torch.stack([batch[part] for batch in several]) for part in (0, 2))
    targets = several[0].targets
    found = vmap(loss, in_dims=(0, None, 0))(logits, targets, features)
    torch.testing.assert_close(found, torch.stack([loss(b.logits, targets, b.features) for b in several]))


@pytest.mark.parametrize("kappa", [5, 25])
def test_a_small_batch(kappa: int) -> None:
    loss = ClassRectificationLoss(kappa=kappa, sizes=[4])
    several = [make_batch([4], 20, seed, missing=0.1) for seed in range(3)]
    logits, targets = (torch.stack([batch[part] for batch in several]) for part in range(2))
    found = vmap(grad(loss))(logits, targets)
    torch.testing.assert_close(found, torch.stack([gradients(loss, batch)[0] for batch in several]))


@CASES
def test_forward_mode_and_jacobians_agree_with_gradients(level: str, comparison: str, layout: str) -> None:
    loss, (batch,) = objective(level, comparison, layout, "none"), batches(layout, 1)

    def of(logits: Tensor, features: Tensor) -> Tensor:
        value: Tensor = loss(logits, batch.targets, features)
        return value

    given = (batch.logits, batch.features)
    along = tuple(torch.randn(each.shape, generator=torch.Generator().manual_seed(0)).double() for each in given)
    jacobians = jacrev(of, argnums=(0, 1))(*given)
    summed = gradients(lambda *args: loss(*args).sum(), batch)
    torch.testing.assert_close([each.sum(0) for each in jacobians], summed)
    expected = sum((each * v).flatten(1).sum(1) for each, v in zip(jacobians, along, strict=True))
    value, tangent = jvp(of, given, along)
    torch.testing.assert_close(value, of(*given))
    torch.testing.assert_close(tangent, expected)


@CASES
def test_the_hessian_is_the_slope_of_the_gradient(level: str, comparison: str, layout: str) -> None:
    loss, batch = objective(level, comparison, layout), make_batch(LAYOUTS[layout], 16, seed=1)
    source = batch.logits if level == "class" else batch.features

    def of(values: Tensor) -> Tensor:
        given = (values, batch.features) if level == "class" else (batch.logits, values)
        value: Tensor = loss(given[0], batch.targets, given[1])
        return value

    second = hessian(of)(source).reshape(source.numel(), -1)
    torch.testing.assert_close(second, jacrev(grad(of))(source).reshape(source.numel(), -1))
    if (level, comparison) == ("instance", "distribution"):
        return  # the gradient takes the end of the histogram as fixed, but its slope would not
    along = torch.randn(source.shape, generator=torch.Generator().manual_seed(0)).double()
    slope = (grad(of)(source + 1e-6 * along) - grad(of)(source - 1e-6 * along)) / 2e-6
    torch.testing.assert_close(second @ along.flatten(), slope.flatten(), atol=1e-6, rtol=1e-5)


def test_an_ensemble_of_heads_is_trained_as_each_alone() -> None:
    """With functional_call, as in PyTorch's tutorial on ensembles."""
    torch.manual_seed(0)
    heads = [nn.Linear(3, 10).double() for _ in range(4)]
    parameters, buffers = stack_module_state(heads)  # type: ignore[arg-type]
    skeleton = copy.deepcopy(heads[0]).to("meta")
    batch = make_batch([10], 40, shared=True)

    def loss(weights: dict[str, Tensor], extra: dict[str, Tensor], x: Tensor) -> Tensor:
        return class_rectification_loss(functional_call(skeleton, (weights, extra), (x,)), batch.targets)

    found = vmap(grad(loss), in_dims=(0, 0, None))(parameters, buffers, batch.features)
    for number, head in enumerate(heads):
        value = class_rectification_loss(head(batch.features), batch.targets)
        assert value > 0
        for name, expected in zip(("weight", "bias"), torch.autograd.grad(value, head.parameters()), strict=True):
            torch.testing.assert_close(found[name][number], expected)


@pytest.mark.parametrize("transformed", [vmap, lambda loss: vmap(grad(loss)), lambda loss: grad(sum_of(vmap(loss)))])
def test_wrong_targets_are_refused(transformed: Callable[..., Callable[..., Tensor]]) -> None:
    logits, targets = torch.randn(2, 6, 3), torch.zeros(2, 6, dtype=torch.int64)
    targets[1, 4] = 3
    with pytest.raises(ValueError, match="every target to be below its label's number of classes"):
        transformed(ClassRectificationLoss())(logits, targets)


def sum_of(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *given: loss(*given).sum()
