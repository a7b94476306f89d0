"""Sample loss, class weights, rectification and mixed images: each alone, together, and against loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import oracles
from helpers.cases import Batch, batches, capture, make_batch
from rectifier import LabelSpace, RectifiedCrossEntropy, class_counts, class_rectification_loss
from rectifier.losses import LossParts
from rectifier.losses.asymmetric import AsymmetricLoss
from rectifier.losses.crl.design import Design
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.focal import FocalLoss
from rectifier.losses.ldam import LDAMLoss
from rectifier.losses.logit_adjusted import LogitAdjustedLoss
from rectifier.losses.objective import Objective

LAYOUTS = {"one": [5], "forty": [2] * 40, "mixed": [2, 7, 3]}
SIZES = [2, 7, 3]


def weights_of(sizes: list[int]) -> Tensor:
    return torch.linspace(0.2, 3.0, sum(sizes), dtype=torch.float64)


def value_and_gradient(loss: Callable[[Tensor], Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    per_label = loss(leaf)
    (per_label * torch.linspace(1, 2, len(per_label), dtype=per_label.dtype)).sum().backward()
    assert leaf.grad is not None
    return per_label.detach(), leaf.grad


def partner_of(batch: Batch, seed: int, per_label: bool = False) -> tuple[Tensor, Tensor]:
    other = make_batch(batch.sizes, len(batch.targets), seed, missing=0.3).targets
    shape = batch.targets.shape if per_label else batch.targets.shape[:1]
    return other, torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=50)
@given(batch=batches(most_samples=30))
def test_cross_entropy_alone_is_the_plain_objective(batch: Batch) -> None:
    got = Objective(CrossEntropyLoss(), batch.sizes)(batch.logits, batch.targets)
    torch.testing.assert_close(got, oracles.cross_entropy(batch.logits, batch.targets, batch.sizes).sum())
    torch.testing.assert_close(got, CrossEntropyLoss(batch.sizes)(batch.logits, batch.targets))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mixed", [None, "samples", "labels"])
def test_equals_the_loop_version(layout: str, weighted: bool, mixed: str | None) -> None:
    """Focal loss, class weights, mixed images and rectification in one."""
    sizes = LAYOUTS[layout]
    batch = make_batch(sizes, 20, seed=2, missing=0.3)
    alpha = torch.linspace(0.1, 0.9, len(sizes), dtype=torch.float64)
    weights = weights_of(sizes) if weighted else None
    partner = partner_of(batch, 9, mixed == "labels") if mixed else None
    objective = Objective(
        FocalLoss(1.0), sizes, weights=weights, rectification=Design(kappa=3), alpha=alpha, label_reduction="none"
    )

    def twin(logits: Tensor) -> Tensor:
        def losses(targets: Tensor) -> Tensor:
            return oracles.sample_losses("focal", logits, targets, sizes, gamma=1.0)

        whole = torch.ones(batch.targets.shape, dtype=torch.float64)
        sides, mined = [(losses(batch.targets), batch.targets, whole)], batch.targets
        if partner is not None:
            other, share = partner[0], partner[1].reshape(20, -1).expand(20, len(sizes))
            sides = [(sides[0][0], batch.targets, share), (losses(other), other, 1 - share)]
            mined = batch.targets.clone()
            for i in range(20):
                for a in range(len(sizes)):
                    first, second = int(batch.targets[i, a]), int(other[i, a])
                    both = first >= 0 and second >= 0
                    mined[i, a] = (first if share[i, a] >= 0.5 else second) if both else max(first, second)
        base = oracles.weighted_means(sides, sizes, weights)
        return alpha * oracles.crl(logits, mined, sizes=sizes, kappa=3) + (1 - alpha) * base

    got = value_and_gradient(lambda z: objective(z, batch.targets, partner=partner), batch.logits)
    expected = value_and_gradient(twin, batch.logits)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)  # alpha is kept in float32


def test_the_gradient_is_the_slope_of_the_value() -> None:
    batch = make_batch([2, 3], 8, seed=1, missing=0.2)
    objective = Objective(
        FocalLoss(), [2, 3], weights=weights_of([2, 3]), rectification=Design(scores="log-probability"), alpha=0.4
    )
    objective.eval()  # nothing to mine in most of gradcheck's batches, which training would warn of
    logits, partner = batch.logits.clone().requires_grad_(), partner_of(batch, 3)
    assert torch.autograd.gradcheck(lambda z: objective(z, batch.targets, partner=partner), (logits,))


def test_rectified_cross_entropy_is_one_of_them() -> None:
    batch = make_batch(SIZES, 40, seed=3, missing=0.1)
    counts = class_counts(batch.targets, SIZES)
    rectified = RectifiedCrossEntropy(counts, eta=0.8, kappa=4, comparison="absolute")
    same = Objective(
        CrossEntropyLoss(), SIZES, rectification=Design(kappa=4, comparison="absolute"), alpha=rectified.alpha
    )
    assert rectified(*batch[:2]) == same(*batch[:2])


@pytest.mark.parametrize("level", ["class", "instance"])
def test_all_rectification_leaves_the_sample_loss_out(level: str) -> None:
    batch = make_batch(SIZES, 40, seed=4)
    objective = Objective(FocalLoss(), SIZES, rectification=Design(level=level), alpha=1.0)
    torch.testing.assert_close(objective(*batch[:3]), class_rectification_loss(*batch[:3], level=level, sizes=SIZES))


def test_what_is_rectified_has_no_margin() -> None:
    batch = make_batch(SIZES, 40, seed=4)
    objective = Objective(LDAMLoss(class_counts(batch.targets, SIZES)), SIZES, rectification=Design(), alpha=1.0)
    torch.testing.assert_close(objective(*batch[:2]), class_rectification_loss(*batch[:2], sizes=SIZES))


def test_every_part_changes_the_loss() -> None:
    batch = make_batch([2, 2], 40, seed=5)
    counts = class_counts(batch.targets, [2, 2])
    variants: dict[str, Objective] = {
        "plain": Objective(CrossEntropyLoss(), [2, 2]),
        "focal": Objective(FocalLoss(), [2, 2]),
        "adjusted": Objective(LogitAdjustedLoss(counts), [2, 2]),
        "ldam": Objective(LDAMLoss(counts), [2, 2]),
        "asymmetric": Objective(AsymmetricLoss(sizes=[2, 2]), [2, 2]),
        "weights": Objective(CrossEntropyLoss(), [2, 2], weights=torch.tensor([1.0, 9.0, 1.0, 9.0])),
        "rectification": Objective(CrossEntropyLoss(), [2, 2], rectification=Design(), alpha=0.5),
        "mean": Objective(CrossEntropyLoss(), [2, 2], label_reduction="mean"),
    }
    values = [round(float(objective(*batch[:2])), 9) for objective in variants.values()]
    assert len(set(values)) == len(variants)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_deferred_weights_count_from_their_time_on(layout: str) -> None:
    sizes = LAYOUTS[layout]
    batch = make_batch(sizes, 30, seed=6, missing=0.2)
    weights = weights_of(sizes)
    plain, weighted = (CrossEntropyLoss(sizes, weight=w)(*batch[:2]) for w in (None, weights))
    assert plain != weighted
    at_once = Objective(CrossEntropyLoss(), sizes, weights=weights)
    assert at_once(*batch[:2]) == weighted
    deferred = Objective(CrossEntropyLoss(), sizes, weights=weights, weights_from=0.8)
    for share, expected in ((0.0, plain), (0.79, plain), (0.8, weighted), (1.0, weighted), (0.5, plain)):
        deferred.set_progress(share)
        torch.testing.assert_close(deferred(*batch[:2]), expected)


def test_the_rectification_falls_over_training() -> None:
    batch = make_batch(SIZES, 30, seed=6, missing=0.2)
    alpha = [0.2, 0.5, 1.0]
    options: dict[str, Any] = {"rectification": Design(kappa=3), "label_reduction": "none"}
    steady = Objective(FocalLoss(), SIZES, alpha=alpha, **options)
    falling = Objective(FocalLoss(), SIZES, alpha=alpha, falling=True, **options)
    with pytest.warns(UserWarning, match=r"has a schedule \(falling\), but set_progress was not called"):
        assert torch.equal(falling(*batch[:2]), steady(*batch[:2]))
    for share in (0.0, 0.25, 0.5, 1.0):
        for objective in (falling, steady):
            objective.set_progress(share)
        present = [whole * (math.cos(math.pi * share) + 1) / 2 for whole in alpha]
        parts = falling(*batch[:2], return_parts=True)
        torch.testing.assert_close(parts.alpha, torch.tensor(present))
        torch.testing.assert_close(parts.loss, Objective(FocalLoss(), SIZES, alpha=present, **options)(*batch[:2]))
        assert torch.equal(steady(*batch[:2], return_parts=True).alpha, torch.tensor(alpha))
    assert not parts.alpha.any()  # at the end the loss of the samples is all there is
    assert torch.equal(parts.loss, Objective(FocalLoss(), SIZES, label_reduction="none")(*batch[:2]))
    assert parts.rectification.all()


def test_the_rectification_begins_when_it_is_told() -> None:
    batch = make_batch(SIZES, 30, seed=6, missing=0.2)
    options: dict[str, Any] = {"rectification": Design(kappa=3), "alpha": 0.5}
    plain, whole = (
        Objective(CrossEntropyLoss(), SIZES)(*batch[:2]),
        Objective(CrossEntropyLoss(), SIZES, **options)(*batch[:2]),
    )
    late = Objective(CrossEntropyLoss(), SIZES, rectify_from=0.6, **options)
    for share, expected in ((0.0, plain), (0.59, plain), (0.6, whole), (1.0, whole), (0.3, plain)):
        late.set_progress(share)
        torch.testing.assert_close(late(*batch[:2]), expected)
    assert not late(*batch[:2], return_parts=True).alpha.any()


@pytest.mark.parametrize("comparison", ["relative", "absolute"])
def test_pooled_labels_are_one_mean_over_all_comparisons(comparison: str) -> None:
    batch = make_batch(SIZES, 30, seed=7, missing=0.2)
    design = Design(kappa=3, comparison=comparison)
    options: dict[str, Any] = {"rectification": design, "alpha": 1.0}
    parts = Objective(CrossEntropyLoss(), SIZES, **options)(*batch[:2], return_parts=True)
    listed = [  # each label's mean, once for each of its comparisons
        value
        for value, count in zip(parts.rectification.tolist(), parts.comparisons.tolist(), strict=True)
        for _ in range(count)
    ]
    assert len(set(parts.comparisons.tolist())) > 1
    pooled = Objective(CrossEntropyLoss(), SIZES, pooled=True, **options)
    assert float(pooled(*batch[:2])) == pytest.approx(sum(listed) / len(listed), rel=1e-5)
    nothing = torch.full_like(batch[1], -1)
    assert float(pooled(batch[0], nothing)) == 0
    single = Objective(CrossEntropyLoss(), [3], pooled=True, **options)
    logits, targets = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20)[:, None] % 3
    assert torch.equal(single(logits, targets), Objective(CrossEntropyLoss(), [3], **options)(logits, targets))


def test_the_present_alpha_is_no_state() -> None:
    objective = RectifiedCrossEntropy(torch.tensor([90, 10]), eta=0.5, falling=True)
    whole = objective.alpha.clone()
    objective.set_progress(0.7)
    objective(torch.zeros(4, 2), torch.arange(4) % 2)
    assert torch.equal(objective.alpha, whole)
    assert not objective.state_dict()


def test_progress_stays_one_tensor_so_that_a_captured_step_reads_it() -> None:
    objective = Objective(CrossEntropyLoss(), [2], weights=torch.ones(2), weights_from=0.5)
    place, before = objective.progress, objective.progress.data_ptr()
    objective.set_progress(0.75)
    assert objective.progress is place
    assert objective.progress.data_ptr() == before
    assert objective.progress.item() == 0.75
    assert "progress" not in objective.state_dict()


def test_buffers_of_all_parts_travel_together() -> None:
    counts = torch.tensor([90, 10])
    objective = Objective(LogitAdjustedLoss(counts), [2], weights=torch.ones(2), rectification=Design(), alpha=0.5)
    named = {"sample_loss._per_class", "sample_loss.counts.counts", "weights", "alpha", "progress"}
    assert {name for name, _ in objective.named_buffers()} == named
    assert objective.to(torch.float64).sample_loss.offsets.dtype == torch.float64  # type: ignore[union-attr,attr-defined]


def test_a_whole_share_is_no_partner() -> None:
    batch = make_batch(SIZES, 30, seed=7)  # nothing missing: what misses would be the partner's
    objective = Objective(
        CrossEntropyLoss(), SIZES, weights=weights_of(SIZES), rectification=Design(kappa=3), alpha=0.5
    )
    other = make_batch(SIZES, 30, seed=8, missing=0.3).targets
    for share, targets in ((1.0, batch.targets), (0.0, other)):
        if share == 0.0:
            targets = torch.where(other >= 0, other, batch.targets)
        got = objective(batch.logits, batch.targets, partner=(other, torch.full((30,), share, dtype=torch.float64)))
        torch.testing.assert_close(got, objective(batch.logits, targets))


def test_sides_may_be_exchanged() -> None:
    batch = make_batch(SIZES, 30, seed=9, missing=0.3)
    other, share = partner_of(batch, 10)
    objective = Objective(FocalLoss(), SIZES, weights=weights_of(SIZES), rectification=Design(kappa=3), alpha=0.5)
    one = objective(batch.logits, batch.targets, partner=(other, share))
    two = objective(batch.logits, other, partner=(batch.targets, 1 - share))
    torch.testing.assert_close(one, two)


def test_an_image_mixed_with_itself_is_itself() -> None:
    batch = make_batch(SIZES, 30, seed=11, missing=0.3)
    objective = Objective(CrossEntropyLoss(), SIZES, weights=weights_of(SIZES), rectification=Design(), alpha=0.5)
    mixed = objective(batch.logits, batch.targets, partner=(batch.targets, torch.full((30,), 0.3)))
    torch.testing.assert_close(mixed, objective(*batch[:2]))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("level", [None, "class", "instance"])
def test_the_whole_objective_is_one_graph(level: str | None, mixed: bool) -> None:
    torch._dynamo.reset()
    rectified = {
        "rectification": Design(level=level or "class", kappa=3), "alpha": 0.5, "falling": True, "pooled": True,
        "rectify_from": 0.1,
    }  # fmt: skip
    rectification: dict[str, Any] = rectified if level else {}
    objective = Objective(FocalLoss(), SIZES, weights=weights_of(SIZES).float(), weights_from=0.5, **rectification)
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for seed, share in ((0, 0.2), (1, 0.5), (2, 0.9)):
            objective.set_progress(share)
            batch = make_batch(SIZES, 20, seed, missing=0.2, dtype=torch.float32)
            partner = partner_of(batch, seed + 5) if mixed else None
            torch.testing.assert_close(compiled(*batch[:3], partner=partner), objective(*batch[:3], partner=partner))
    torch._dynamo.reset()


def test_a_compiled_objective_still_refuses_a_wrong_share() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(Objective(CrossEntropyLoss(), SIZES), fullgraph=True, backend="eager")
    batch = make_batch(SIZES, 20)
    with pytest.raises(RuntimeError, match="share to be from 0 to 1"):
        compiled(*batch[:2], partner=(batch.targets, torch.full((20,), 1.5)))
    torch._dynamo.reset()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode", "ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("name", ["focal", "adjusted", "ldam", "asymmetric"])
def test_a_captured_objective_waits_for_nothing_and_follows_progress(name: str) -> None:
    sizes = [2, 2, 2]
    counts = [torch.tensor([90, 10])] * 3
    losses = {
        "focal": FocalLoss(),
        "adjusted": LogitAdjustedLoss(counts),
        "ldam": LDAMLoss(counts),
        "asymmetric": AsymmetricLoss(sizes=sizes),
    }
    objective = Objective(
        losses[name],
        sizes,
        weights=weights_of(sizes).float(),
        weights_from=0.5,
        rectification=Design(kappa=4, anchors="easy", scores="log-probability"),
        alpha=0.5,
        falling=True,
    ).cuda()
    batch = make_batch(sizes, 40, dtype=torch.float32, missing=0.1)
    logits, targets = batch.logits.cuda().requires_grad_(), batch.targets.cuda()
    partner = (targets.flip(0), torch.full((40,), 0.3, device="cuda"))

    def run() -> tuple[Tensor, ...]:
        parts = objective(logits, targets, partner=partner, return_parts=True)
        return parts.loss, torch.autograd.grad(parts.loss, logits)[0], parts.alpha

    run()  # tables are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        objective.set_progress(0.1)
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph, captured = capture(run)
    values = []
    for share in (0.1, 0.9):
        objective.set_progress(share)
        graph.replay()
        for got, expected in zip(captured, run(), strict=True):
            torch.testing.assert_close(got, expected)
        values.append((captured[0].item(), captured[2].tolist()))
    assert values[0][0] != values[1][0]
    assert values[0][1] > values[1][1]


def test_parts_come_from_the_same_pass() -> None:
    batch = make_batch(SIZES, 40, seed=12)
    logits = batch.logits.clone().requires_grad_()
    objective = Objective(FocalLoss(), SIZES, rectification=Design(), alpha=[0.1, 0.5, 0.9])
    parts = objective(logits, batch.targets, return_parts=True)
    assert isinstance(parts, LossParts)
    assert [part.requires_grad for part in parts] == [True] + [False] * 5
    combined = parts.alpha * parts.rectification + (1 - parts.alpha) * parts.base_loss
    torch.testing.assert_close(parts.loss, combined.sum())
    none = Objective(FocalLoss(), SIZES)(logits, batch.targets, return_parts=True)
    torch.testing.assert_close(none.base_loss, parts.base_loss)
    assert not any(part.any() for part in none[2:])


@pytest.mark.parametrize("rectified", [False, True])
def test_nothing_to_compare_is_zero_with_a_gradient(rectified: bool) -> None:
    options: dict[str, Any] = {"rectification": Design(), "alpha": 0.5} if rectified else {}
    objective = Objective(FocalLoss(), [2, 3], weights=torch.ones(5), label_reduction="none", **options)
    logits, missing = torch.randn(4, 5, requires_grad=True), torch.full((4, 2), -1)
    for partner in (None, (missing, torch.full((4,), 0.4))):
        value = objective(logits, missing, partner=partner)
        assert value.tolist() == [0.0, 0.0]
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        assert not gradient.any()


def test_float32_inside_autocast() -> None:
    objective = Objective(FocalLoss(), [2], weights=torch.ones(2), rectification=Design(), alpha=0.5)
    logits = torch.randn(16, 2, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.arange(16) % 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = objective(logits, targets, partner=(targets.flip(0)[:, None], torch.rand(16, dtype=torch.bfloat16)))
    assert value.dtype == torch.float32
    value.backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": torch.ones(3)}, "weight to be 2 numbers of at least 0, one for each class"),
        ({"weights": torch.ones(2), "weights_from": 1.5}, r"weights_from to be a share from 0 to 1, but got 1\.5"),
        ({"weights_from": 0.5}, "weights to be given together with weights_from, but got None"),
        ({"rectification": Design()}, "alpha to be given together with rectification, but got None"),
        ({"alpha": 0.5}, r"alpha to be None without rectification, but got 0\.5"),
        ({"rectification": Design(), "alpha": 1.5}, "alpha to be from 0 to 1"),
        ({"rectification": Design(kappa=0), "alpha": 0.5}, "kappa to be a positive integer"),
        ({"label_reduction": "max"}, "label_reduction to be one of"),
        ({"falling": True}, "rectification to be given together with falling, but got None"),
        ({"rectify_from": 0.5}, "rectification to be given together with rectify_from, but got None"),
        ({"pooled": True}, "rectification to be given together with pooled, but got None"),
        ({"rectification": Design(), "alpha": 0.5, "pooled": 1}, "pooled to be True or False, but got 1"),
        ({"rectification": Design(), "alpha": 0.5, "rectify_from": 2}, "rectify_from to be a share from 0 to 1"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective(CrossEntropyLoss(), [2], **options)


def test_wrong_progress() -> None:
    with pytest.raises(ValueError, match="progress to be a share from 0 to 1, but got 3"):
        Objective(CrossEntropyLoss(), [2]).set_progress(3)


ZEROS = torch.zeros(4, 1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("partner", "error", "message"),
    [
        (ZEROS, TypeError, r"partner to be a pair \(targets, share\), but got Tensor"),
        ((ZEROS, 0.5), TypeError, "partner's share to be a floating point tensor, but got float"),
        ((ZEROS, torch.rand(3)), ValueError, r"share to be of shape \(4,\) or \(4, 1\), but got shape \(3,\)"),
        ((ZEROS, torch.full((4,), 1.5)), ValueError, r"share to be from 0 to 1, but got 1\.5"),
        ((ZEROS, torch.full((4,), float("nan"))), ValueError, "share to be from 0 to 1, but got nan"),
        ((ZEROS[:3], torch.rand(4)), ValueError, r"targets to be as long as logits \(4 samples\), but got 3"),
        ((ZEROS + 2, torch.rand(4)), ValueError, "targets of label 'hat' to be below 2"),
    ],
)
def test_a_wrong_partner(partner: Any, error: type[Exception], message: str) -> None:
    objective = Objective(CrossEntropyLoss(), LabelSpace.from_names({"hat": ["no", "yes"]}))
    with pytest.raises(error, match=message):
        objective(torch.zeros(4, 2), ZEROS, partner=partner)
