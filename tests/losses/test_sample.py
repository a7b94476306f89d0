"""The losses of single samples: against their loop versions, against each other, and what they must survive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import oracles
from helpers.cases import Batch, make_batch
from rectifier.losses.asymmetric import AsymmetricLoss
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.focal import FocalLoss
from rectifier.losses.ldam import LDAMLoss
from rectifier.losses.logit_adjusted import LogitAdjustedLoss
from rectifier.losses.objective import Objective
from rectifier.networks.head import SCALE

LAYOUTS = {"one": [6], "binary": [2] * 5, "mixed": [3, 7, 2], "very unequal": [2, 2, 2, 2, 2, 2, 40]}
FORTY = [2] * 40


def counts_of(sizes: list[int]) -> list[Tensor]:
    """Every label imbalanced in its own way; the last class of each label larger than two has no sample."""
    counts = [torch.arange(size, 0, -1) ** (3 + a % 2) * 7 for a, size in enumerate(sizes)]
    for label in counts:
        label[2:][-1:] = 0
    return counts


Build = Callable[[list[int]], tuple[Any, dict[str, Any]]]  # the loss, and what its twin is told

LOSSES: dict[str, Build] = {
    "cross-entropy": lambda sizes: (CrossEntropyLoss(), {}),
    "focal": lambda sizes: (FocalLoss(1.5), {"gamma": 1.5}),
    "adjusted": lambda sizes: (LogitAdjustedLoss(counts_of(sizes), 0.7), {"counts": counts_of(sizes), "tau": 0.7}),
    "ldam": lambda sizes: (
        LDAMLoss(counts_of(sizes), 0.4, 3.0),
        {"counts": counts_of(sizes), "largest": 0.4, "scale": 3.0},
    ),
    "asymmetric": lambda sizes: (
        AsymmetricLoss(1.5, 3.0, 0.1, sizes=sizes),
        {"positive": 1.5, "negative": 3.0, "shift": 0.1},
    ),
}
CASES = [(name, layout) for name in LOSSES for layout in LAYOUTS if name != "asymmetric" or set(LAYOUTS[layout]) == {2}]


def values_of(loss: Any, logits: Tensor, targets: Tensor, sizes: tuple[int, ...] | list[int]) -> Tensor:
    """Return one value per sample and label."""
    loss.sizes, loss.reduction = tuple(sizes), "none"
    found: Tensor = loss(logits, targets)
    return found


def value_and_gradient(loss: Callable[[Tensor], Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
    """With unequal weights, so that a gradient sent to the wrong sample or label shows."""
    leaf = logits.clone().requires_grad_()
    values = loss(leaf)
    (values * torch.linspace(1, 2, values.numel(), dtype=values.dtype).reshape(values.shape)).sum().backward()
    assert leaf.grad is not None
    return values.detach(), leaf.grad


@pytest.mark.parametrize(("name", "layout"), [*CASES, ("asymmetric", "forty")])
def test_equals_the_loop_version(name: str, layout: str) -> None:
    sizes = FORTY if layout == "forty" else LAYOUTS[layout]
    batch = make_batch(sizes, 12, seed=3, missing=0.3)
    loss, told = LOSSES[name](sizes)
    got = value_and_gradient(lambda z: values_of(loss, z, batch.targets, sizes), batch.logits)
    twin = value_and_gradient(lambda z: oracles.sample_losses(name, z, batch.targets, sizes, **told), batch.logits)
    missing = batch.targets < 0
    assert missing.any()
    assert not got[0][missing].any()
    assert (got[0][~missing] > 0).any()
    # Priors and margins are kept in float32.
    tolerance = 1e-5 if "counts" in told else 1e-9
    for ours, expected in zip(got, twin, strict=True):
        torch.testing.assert_close(ours, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_the_slope_of_the_value(name: str) -> None:
    batch = make_batch([2, 2], 6, seed=1, missing=0.2)
    loss, _ = LOSSES[name]([2, 2])
    logits = batch.logits.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: values_of(loss, z, batch.targets, (2, 2)), (logits,))


@pytest.mark.parametrize(("name", "layout"), CASES)
def test_one_graph(name: str, layout: str) -> None:
    torch._dynamo.reset()
    sizes = tuple(LAYOUTS[layout])
    loss, _ = LOSSES[name](LAYOUTS[layout])
    loss.sizes, loss.reduction = sizes, "none"
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    for seed in range(2):
        batch = make_batch(LAYOUTS[layout], 10, seed, missing=0.2, dtype=torch.float32)
        torch.testing.assert_close(
            value_and_gradient(lambda z, b=batch: compiled(z, b.targets), batch.logits),
            value_and_gradient(lambda z, b=batch: loss(z, b.targets), batch.logits),
        )
    torch._dynamo.reset()


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", ["all missing", "no sample"])
def test_nothing_to_compare_is_zero_with_a_gradient(name: str, case: str) -> None:
    samples = 4 if case == "all missing" else 0
    loss, _ = LOSSES[name]([2, 2])
    logits = torch.randn(samples, 4, requires_grad=True)
    values = values_of(loss, logits, torch.full((samples, 2), -1), (2, 2))
    assert values.shape == (samples, 2)
    assert not values.any()
    values.sum().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("name", [*LOSSES, "weak focus", "weak focus of both"])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 40.0, 1e4])
def test_saturated_logits_stay_finite(name: str, scale: float) -> None:
    """Also with a power below 1, whose slope at 0 is infinite."""
    weak = {"weak focus": FocalLoss(0.3), "weak focus of both": AsymmetricLoss(0.3, 0.3, 0.0, sizes=[2, 2])}
    loss = weak[name] if name in weak else LOSSES[name]([2, 2])[0]
    batch = make_batch([2, 2], 20, seed=4, missing=0.1, dtype=torch.float32)
    values, gradient = value_and_gradient(
        lambda z: values_of(loss, z, batch.targets, (2, 2)), scale * batch.logits.sign()
    )
    assert torch.isfinite(values).all()
    assert torch.isfinite(gradient).all()


def batch_and_cross_entropy(sizes: list[int]) -> tuple[Batch, Tensor]:
    batch = make_batch(sizes, 30, seed=5, missing=0.2)
    return batch, values_of(CrossEntropyLoss(), batch.logits, batch.targets, tuple(sizes))


def test_cross_entropy_is_pytorchs() -> None:
    batch, ours = batch_and_cross_entropy([6])
    expected = torch.nn.functional.cross_entropy(batch.logits, batch.targets[:, 0], ignore_index=-1, reduction="none")
    torch.testing.assert_close(ours[:, 0], expected)


def test_no_focus_is_cross_entropy() -> None:
    batch, expected = batch_and_cross_entropy([3, 5])
    torch.testing.assert_close(values_of(FocalLoss(0.0), batch.logits, batch.targets, (3, 5)), expected)


def test_more_focus_leaves_less_of_what_is_recognised() -> None:
    p = torch.tensor([0.99, 0.5, 0.01])
    logits, targets = torch.stack([1 - p, p], 1).log(), torch.ones(3, 1, dtype=torch.int64)
    kept = values_of(FocalLoss(2.0), logits, targets, (2,)) / values_of(CrossEntropyLoss(), logits, targets, (2,))
    torch.testing.assert_close(kept[:, 0], (1 - p) ** 2)
    assert (values_of(FocalLoss(0.5), logits, targets, (2,)) > values_of(FocalLoss(2.0), logits, targets, (2,))).all()


@pytest.mark.parametrize("tau", [0.0, 1.0])
def test_a_uniform_prior_or_no_tau_is_cross_entropy(tau: float) -> None:
    batch, expected = batch_and_cross_entropy([3, 5])
    counts = [torch.full((3,), 20), torch.full((5,), 7)] if tau else [torch.tensor([9, 1, 0]), torch.arange(5)]
    got = values_of(LogitAdjustedLoss(counts, tau), batch.logits, batch.targets, (3, 5))
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)


def test_logit_adjustment_asks_more_of_the_rare_class() -> None:
    logits = torch.zeros(2, 2)
    frequent, rare = values_of(LogitAdjustedLoss(torch.tensor([99, 1])), logits, torch.tensor([[0], [1]]), (2,))
    assert frequent < 0.02
    assert rare > 4


def test_constant_logits_that_equal_the_log_prior_pay_its_entropy_under_plain_cross_entropy() -> None:
    """Adjusting zero logits is plain cross-entropy of the log prior."""
    counts = torch.tensor([70, 20, 10])
    targets = torch.arange(3)[:, None]
    adjusted = values_of(LogitAdjustedLoss(counts), torch.zeros(3, 3), targets, (3,))
    torch.testing.assert_close(adjusted[:, 0], -(counts / 100).log())


def test_no_margin_is_cross_entropy() -> None:
    batch, expected = batch_and_cross_entropy([3, 5])
    got = values_of(LDAMLoss(counts_of([3, 5]), largest=0.0, scale=7.0), batch.logits, batch.targets, (3, 5))
    torch.testing.assert_close(got, expected, atol=0, rtol=0)


def test_a_margin_is_as_wide_as_the_scale_makes_it() -> None:
    batch, _ = batch_and_cross_entropy([3, 5])
    counts = counts_of([3, 5])
    wide, scaled = (
        values_of(LDAMLoss(counts, *options), batch.logits, batch.targets, (3, 5)) for options in ((0.4, 5), (0.2, 10))
    )
    torch.testing.assert_close(wide, scaled)
    assert not torch.allclose(wide, values_of(LDAMLoss(counts, 0.4, 10), batch.logits, batch.targets, (3, 5)))


def test_the_default_scale_is_that_of_a_cosine_classifier() -> None:
    assert LDAMLoss(torch.tensor([1, 2])).scale == SCALE


def test_margins_grow_as_classes_get_rare() -> None:
    loss = LDAMLoss([torch.tensor([10_000, 16, 1]), torch.tensor([81, 0]), torch.tensor([0, 0])], largest=0.5)
    # Label by label; a class without a sample has the margin of the rarest, and so has a label that nobody has.
    expected = [0.5 / 10, 0.5 / 2, 0.5, 0.5, 0.5, 0.5, 0.5]
    torch.testing.assert_close(loss.margins, torch.tensor(expected))
    assert not loss.state_dict()


def test_a_margin_makes_the_own_class_dearer() -> None:
    batch, _ = batch_and_cross_entropy([3, 5])
    counts = [torch.full((3,), 4), torch.full((5,), 4)]
    without, with_margin = (
        values_of(LDAMLoss(counts, largest, 5.0), batch.logits, batch.targets, (3, 5)) for largest in (0.0, 0.5)
    )
    assert (with_margin > without)[batch.targets >= 0].all()


def test_no_focus_and_no_shift_is_cross_entropy() -> None:
    batch, expected = batch_and_cross_entropy([2] * 4)
    got = values_of(AsymmetricLoss(0.0, 0.0, 0.0, sizes=batch.sizes), batch.logits, batch.targets, (2,) * 4)
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("negative", [0.0, 0.5, 4.0])
def test_negatives_below_the_shift_cost_nothing(negative: float) -> None:
    p = torch.tensor([0.02, 0.049, 0.06, 0.5])
    logits = torch.stack([(1 - p).log(), p.log()], 1).requires_grad_()
    loss = values_of(
        AsymmetricLoss(sizes=[2], negative=negative, shift=0.05), logits, torch.zeros(4, 1, dtype=torch.int64), (2,)
    )
    assert loss[:2].tolist() == [[0.0], [0.0]]
    assert (loss[2:] > 0).all()
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.any(1).tolist() == [False, False, True, True]


def test_only_its_own_side_feels_a_focus() -> None:
    batch, _ = batch_and_cross_entropy([2, 2])

    def values(**options: float) -> Tensor:
        given = {"positive": 0.0, "negative": 0.0, "shift": 0.0} | options
        value: Tensor = values_of(AsymmetricLoss(sizes=[2, 2], **given), batch.logits, batch.targets, (2, 2))
        return value

    for option, side in (("positive", 1), ("negative", 0), ("shift", 0)):
        changed = values(**{option: 0.5}) != values()
        assert torch.equal(changed, batch.targets == side)


def test_the_asymmetric_loss_leaves_labels_of_other_sizes_to_cross_entropy() -> None:
    batch = make_batch([2, 5, 2, 3], 40, missing=0.2)
    sizes = tuple(batch.sizes)
    mixed = values_of(AsymmetricLoss(sizes=batch.sizes), batch.logits, batch.targets, sizes)
    plain = values_of(CrossEntropyLoss(), batch.logits, batch.targets, sizes)
    assert torch.equal(mixed[:, [1, 3]], plain[:, [1, 3]])
    columns = [0, 1, 7, 8]
    binary = values_of(AsymmetricLoss(sizes=[2, 2]), batch.logits[:, columns], batch.targets[:, [0, 2]], (2, 2))
    torch.testing.assert_close(mixed[:, [0, 2]], binary)
    with pytest.raises(ValueError, match="2 for at least one label"):
        AsymmetricLoss(sizes=[3, 5])


@pytest.mark.parametrize("name", ["adjusted", "ldam", "asymmetric"])
def test_labels_that_a_loss_was_not_made_for_are_refused(name: str) -> None:
    loss, _ = LOSSES[name]([2, 2])
    with pytest.raises(ValueError, match=r"targets to be of shape \(N, 2\), one column per label"):
        loss(torch.zeros(3, 4), torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"sizes to be those of the sample loss, \(2, 2\), but got \(4,\)"):
        Objective(loss, [4])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FocalLoss(-1.0), r"gamma to be a number of at least 0, but got -1\.0"),
        (lambda: LogitAdjustedLoss(torch.tensor([1, 2]), tau=float("nan")), r"tau to be a number, but got nan"),
        (lambda: LDAMLoss(torch.tensor([1, 2]), scale=0.0), r"scale to be a positive number, but got 0\.0"),
        (lambda: LDAMLoss(torch.tensor([1, 2]), largest=-0.5), r"largest to be a number of at least 0, but got -0\.5"),
        (lambda: AsymmetricLoss(sizes=[2], shift=1.0), r"shift to be a number from 0 and below 1, but got 1\.0"),
        (lambda: AsymmetricLoss(sizes=[2], negative=-1.0), r"negative to be a number of at least 0, but got -1\.0"),
    ],
)
def test_wrong_options(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
