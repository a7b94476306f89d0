"""What every loss shares with PyTorch's: weight, ignore_index, label_smoothing, reduction, soft targets, functions."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import oracles
from helpers.cases import make_batch
from rectifier import losses
from rectifier.labels.space import LabelSpace
from rectifier.losses import (
    AsymmetricLoss,
    BalancedSoftmaxLoss,
    CrossEntropyLoss,
    FocalLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    Objective,
    RankedCrossEntropy,
    RectifiedCrossEntropy,
    SemiHardTripletLoss,
)
from rectifier.losses.crl.watch import WATCHED
from rectifier.losses.weights import balanced_weights, class_weights

COUNTS = [60, 25, 10, 5]
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
Build = Callable[..., torch.nn.Module]

# Each loss with the options that make it cross-entropy, as a module and as its function.
AS_CROSS_ENTROPY: dict[str, tuple[Build, Callable[..., Tensor]]] = {
    "cross-entropy": (CrossEntropyLoss, losses.cross_entropy),
    "focal": (lambda **o: FocalLoss(0.0, **o), lambda *a, **o: losses.focal_loss(*a, gamma=0.0, **o)),
    "ldam": (lambda **o: LDAMLoss(COUNTS, 0.0, **o), lambda *a, **o: losses.ldam_loss(*a, COUNTS, 0.0, **o)),
    "adjusted": (
        lambda **o: LogitAdjustedLoss(COUNTS, 0.0, **o),
        lambda *a, **o: losses.logit_adjusted_loss(*a, COUNTS, 0.0, **o),
    ),
    "balanced softmax": (
        lambda **o: BalancedSoftmaxLoss([7, 7, 7, 7], **o),
        lambda *a, **o: losses.balanced_softmax_loss(*a, [7, 7, 7, 7], **o),
    ),
    "rectified": (
        lambda **o: RectifiedCrossEntropy(alpha=0.0, sizes=4, **o),
        lambda *a, **o: losses.rectified_cross_entropy(*a, alpha=0.0, **o),
    ),
    "ranked": (
        lambda **o: RankedCrossEntropy(4, 0.0, **o),
        lambda *a, **o: losses.ranked_cross_entropy(*a, ranking_weight=0.0, **o),
    ),
}
BATCH_LOSSES = ("rectified", "ranked")  # they have no value per sample


def batch_of(kind: str) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    logits = torch.randn(12, 4, dtype=torch.float64, generator=g)
    if kind == "soft":
        return logits, torch.randn(12, 4, dtype=torch.float64, generator=g).softmax(1)
    targets = torch.randint(4, (12,), generator=g)
    targets[[2, 7]] = -100 if kind == "hard" else 3
    return logits, targets


def value_and_gradient(loss: Callable[[Tensor], Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    value = loss(leaf)
    (value * torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)).sum().backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
@pytest.mark.parametrize("kind", ["hard", "ignore_index", "soft"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_equals_pytorchs_cross_entropy(name: str, kind: str, weighted: bool, smoothing: float, reduction: str) -> None:
    logits, targets = batch_of(kind)
    options: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction}
    options |= {"weight": WEIGHT} if weighted else {}
    options |= {"ignore_index": 3} if kind == "ignore_index" else {}
    module, function = AS_CROSS_ENTROPY[name]
    if name in BATCH_LOSSES and reduction == "none":
        with pytest.raises(ValueError, match=r"reduction to be one of .* has no value per sample"):
            module(**options)
        return
    expected = value_and_gradient(lambda z: F.cross_entropy(z, targets, **options), logits)
    for loss in (module(**options), lambda z, t: function(z, t, **options)):
        got = value_and_gradient(lambda z, loss=loss: loss(z, targets), logits)
        for ours, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


OWN: dict[str, tuple[Build, dict[str, Any]]] = {
    "focal": (lambda **o: FocalLoss(1.5, **o), {"gamma": 1.5}),
    "adjusted": (lambda **o: LogitAdjustedLoss(COUNTS, 0.7, **o), {"counts": [torch.tensor(COUNTS)], "tau": 0.7}),
    "ldam": (
        lambda **o: LDAMLoss(COUNTS, 0.4, 3.0, **o),
        {"counts": [torch.tensor(COUNTS)], "largest": 0.4, "scale": 3.0},
    ),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_every_loss_smooths_and_weighs_as_a_loop_over_classes(
    name: str, kind: str, weighted: bool, smoothing: float
) -> None:
    """The loss under soft targets is the mean over classes of the loss that each class would have."""
    logits, targets = batch_of(kind)
    build, told = OWN[name]

    def twin(z: Tensor) -> Tensor:
        every = [
            oracles.sample_losses(name, z, torch.full((12, 1), k), [4], **told)[:, 0] * (WEIGHT[k] if weighted else 1)
            for k in range(4)
        ]
        values = []
        for i in range(12):
            share = targets[i] if kind == "soft" else torch.tensor([float(targets[i] == k) for k in range(4)])
            smooth = (1 - smoothing) * share + smoothing / 4
            missing = kind == "hard" and targets[i] < 0
            values.append(sum(smooth[k] * every[k][i] for k in range(4)) * (0 if missing else 1))
        return torch.stack(values)  # type: ignore[arg-type]

    loss = build(weight=WEIGHT if weighted else None, label_smoothing=smoothing, reduction="none")
    for ours, theirs in zip(
        value_and_gradient(lambda z: loss(z, targets), logits), value_and_gradient(twin, logits), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_the_asymmetric_loss_of_soft_targets_is_the_mean_of_both_sides() -> None:
    logits = torch.randn(5, 2, dtype=torch.float64)
    share = torch.rand(5, dtype=torch.float64)
    loss = AsymmetricLoss(1.0, 3.0, 0.1, reduction="none")
    negative, positive = (loss(logits, torch.full((5,), k)) for k in (0, 1))
    got = loss(logits, torch.stack([1 - share, share], 1))
    torch.testing.assert_close(got, (1 - share) * negative + share * positive)


@pytest.mark.parametrize("name", [*AS_CROSS_ENTROPY, "asymmetric"])
def test_several_labels_are_the_sum_of_single_ones(name: str) -> None:
    """With weights, smoothing and soft targets, some labels missing."""
    sizes = [2, 4, 2]
    batch = make_batch(sizes, 20, seed=2, missing=0.3)
    weight = torch.rand(8, dtype=torch.float64) + 0.5
    builds: dict[str, Build] = {
        "cross-entropy": lambda s, **o: CrossEntropyLoss(s, **o),
        "focal": lambda s, **o: FocalLoss(1.0, sizes=s, **o),
        "ldam": lambda s, **o: LDAMLoss([[9, 1, 4, 2][:n] for n in s], scale=2.0, **o),
        "adjusted": lambda s, **o: LogitAdjustedLoss([[9, 1, 4, 2][:n] for n in s], **o),
        "balanced softmax": lambda s, **o: BalancedSoftmaxLoss([[9, 1, 4, 2][:n] for n in s], **o),
        "rectified": lambda s, **o: RectifiedCrossEntropy(alpha=0.3, sizes=s, **o),
        "ranked": lambda s, **o: RankedCrossEntropy(s, 0.0, **o),
        "asymmetric": lambda s, **o: AsymmetricLoss(sizes=s, **o) if 2 in s else CrossEntropyLoss(s, **o),
    }
    soft = torch.zeros(20, 8, dtype=torch.float64)
    start = [0, 2, 6]
    for (i, a), value in np.ndenumerate(batch.targets.numpy()):
        if value >= 0:
            soft[i, start[a] + value] = 0.8
            soft[i, start[a] + (value + 1) % sizes[a]] = 0.2
    for targets, smoothing in product((batch.targets, soft), (0.0, 0.1)):
        whole = builds[name](sizes, weight=weight, label_smoothing=smoothing)(batch.logits, targets)
        parts = []
        for a, size in enumerate(sizes):
            mine = slice(start[a], start[a] + size)
            own = targets[:, mine] if targets is soft else targets[:, a]
            keep = own.sum(1) > 0 if targets is soft else own >= 0  # a label alone drops the samples without it
            loss = builds[name]([size], weight=weight[mine], label_smoothing=smoothing)
            parts.append(loss(batch.logits[keep, mine], own[keep]))
        torch.testing.assert_close(whole, torch.stack(parts).sum(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
def test_targets_from_lists_and_arrays_and_sizes_in_every_form(name: str) -> None:
    logits, targets = batch_of("hard")
    module, _ = AS_CROSS_ENTROPY[name]
    expected = module()(logits, targets)
    for given in (targets.tolist(), targets.numpy(), targets.int(), targets[:, None]):
        assert module()(logits, given) == expected
    if name not in BATCH_LOSSES:
        for sizes in (4, np.int64(4), [4], (4,), LabelSpace.from_sizes([4])):
            assert module(sizes=sizes)(logits, targets) == expected


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
def test_copies_pickles_and_states(name: str) -> None:
    logits, targets = batch_of("hard")
    loss = AS_CROSS_ENTROPY[name][0](weight=WEIGHT)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert other(logits, targets) == loss(logits, targets)
    assert not loss.state_dict()
    assert loss.to(torch.float32) is loss


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
def test_modules_and_functions_are_one_graph(name: str, kind: str) -> None:
    logits, targets = batch_of(kind)
    module, function = AS_CROSS_ENTROPY[name]
    for loss in (module(label_smoothing=0.1), lambda z, t: function(z, t, label_smoothing=0.1)):
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(logits, targets), loss(logits, targets))
    torch._dynamo.reset()


def test_half_precision_is_float32_inside() -> None:
    logits, targets = batch_of("soft")
    for module, _ in AS_CROSS_ENTROPY.values():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = module()(logits.bfloat16(), targets.bfloat16())
        assert value.dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FocalLoss(reduction="average"), "reduction to be one of 'mean', 'sum', 'none', but got 'average'"),
        (lambda: FocalLoss(label_smoothing=1.5), "label_smoothing to be a share from 0 to 1, but got 1.5"),
        (lambda: FocalLoss(sizes=2, weight=[1.0, -1.0]), "weight to be 2 numbers of at least 0"),
        (lambda: FocalLoss(sizes=2, weight=[1.0]), "weight to be 2 numbers of at least 0"),
        (
            lambda: FocalLoss(weight=[1.0])(torch.zeros(2, 2), [0, 1]),
            "weight to be one number for each of 2 classes, but got 1 numbers",
        ),
        (lambda: FocalLoss()(torch.zeros(2, 2), torch.tensor([[2.0, 0.0], [0.0, 1.0]])), "soft targets to be from 0"),
        (lambda: LogitAdjustedLoss("auto"), "sizes to be given together with class_counts='auto'"),
        (lambda: LogitAdjustedLoss("all", sizes=2), "class_counts to be one of 'auto', but got 'all'"),
        (lambda: RectifiedCrossEntropy(), "class_counts to be given, or else alpha"),
        (lambda: RectifiedCrossEntropy([9, 1], sizes=3), r"sizes to be those of class_counts, \(2,\), but got \(3,\)"),
        (lambda: class_weights([9, 1], "square"), "scheme to be one of 'balanced', 'effective-number', 'cost'"),
    ],
)
def test_wrong_options(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_only_our_losses_are_rectified() -> None:
    with pytest.raises(
        TypeError, match=r"a loss of rectifier.losses, such as CrossEntropyLoss\(\), but got CrossEntropyLo"
    ):
        Objective(torch.nn.CrossEntropyLoss(), 3)  # type: ignore[arg-type]


def test_weights_by_label_and_progress_as_a_tensor() -> None:
    batch = make_batch([3, 2], 12, seed=1)
    flat, nested = (CrossEntropyLoss([3, 2], weight=w) for w in ([1, 2, 3, 1, 5], [[1, 2, 3], [1, 5]]))
    assert flat(*batch[:2]) == nested(*batch[:2])
    objective = RectifiedCrossEntropy([9, 1], falling=True)
    objective.set_progress(torch.tensor(0.5))  # type: ignore[arg-type]
    assert objective.progress == 0.5


def test_counted_alpha_is_shown() -> None:
    objective = RectifiedCrossEntropy("auto", sizes=2, eta=1.0)
    objective(torch.randn(4, 2, requires_grad=True), torch.tensor([0, 0, 0, 1]))
    assert "alpha=[0.3333]" in repr(objective)


def test_features_that_are_nan_stay_visible() -> None:
    assert SemiHardTripletLoss()(torch.full((8, 3), float("nan")), torch.arange(8) % 2).isnan()


def test_a_function_has_no_state() -> None:
    with pytest.raises(TypeError, match=r"no state for memory. Use RectifiedCrossEntropy\(memory=...\)"):
        losses.rectified_cross_entropy(torch.zeros(2, 2), [0, 1], alpha=0.5, memory=3)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_rectified_function_is_the_module(kind: str) -> None:
    batch = make_batch([4], 40, seed=3)
    targets = F.one_hot(batch.targets[:, 0], 4).double() * 0.7 + 0.075 if kind == "soft" else batch.targets
    options: dict[str, Any] = {"eta": 0.9, "kappa": 3, "label_smoothing": 0.1}
    module = RectifiedCrossEntropy(COUNTS, **options)
    value = losses.rectified_cross_entropy(batch.logits, targets, class_counts=COUNTS, **options)
    assert value == module(batch.logits, targets)
    assert value != losses.cross_entropy(batch.logits, targets, label_smoothing=0.1)


def test_soft_targets_are_rectified_by_their_largest_share() -> None:
    batch = make_batch([4, 3], 40, seed=3, missing=0.2)
    soft = torch.zeros(40, 7, dtype=torch.float64)
    for (i, a), value in np.ndenumerate(batch.targets.numpy()):
        if value >= 0:
            soft[i, [0, 4][a] : [4, 7][a]] = 0.1
            soft[i, [0, 4][a] + value] = 0.6
    objective = RectifiedCrossEntropy(alpha=1.0, sizes=[4, 3])
    assert objective(batch.logits, soft) == objective(batch.logits, batch.targets)


def test_the_sum_is_the_mean_times_the_samples_that_have_the_label() -> None:
    batch = make_batch([4, 3], 40, seed=3, missing=0.2)
    mean, total = (
        RectifiedCrossEntropy(alpha=0.4, sizes=[4, 3], reduction=r, label_reduction="none") for r in ("mean", "sum")
    )
    expected = mean(*batch[:2]) * (batch.targets >= 0).sum(0)
    torch.testing.assert_close(total(*batch[:2]), expected)


def test_triplets_of_embeddings_need_no_logits() -> None:
    features, targets = torch.randn(12, 5), torch.arange(12) % 3
    loss = SemiHardTripletLoss()
    expected = losses.semi_hard_triplet_loss(features, targets)
    assert loss(features, targets) == expected
    assert loss(features, targets.tolist()) == expected
    assert SemiHardTripletLoss(3)(torch.zeros(12, 3), targets, features) == expected
    assert SemiHardTripletLoss(3)(torch.zeros(12, 3), F.one_hot(targets, 3).float(), features) == expected
    assert SemiHardTripletLoss(ignore_index=2)(features, targets) == loss(
        features, torch.where(targets == 2, -1, targets)
    )
    with pytest.raises(ValueError, match="targets to be below 2"):
        SemiHardTripletLoss(2)(features, targets)


def test_ranking_by_logits() -> None:
    logits, targets = torch.randn(9, 3), torch.arange(9) % 3
    expected = F.cross_entropy(logits, targets) + losses.ranking_loss(logits, targets)
    torch.testing.assert_close(RankedCrossEntropy(3)(logits, targets), expected)


@pytest.mark.parametrize("name", ["adjusted", "balanced softmax", "ldam", "rectified"])
def test_counts_counted_in_the_first_epoch(name: str) -> None:
    """After it, the loss is that of the given counts; evaluation ends the count, and the counts are state."""
    builds: dict[str, Build] = {
        "adjusted": lambda c, **o: LogitAdjustedLoss(c, 0.5, **o),
        "balanced softmax": BalancedSoftmaxLoss,
        "ldam": LDAMLoss,
        "rectified": lambda c, **o: RectifiedCrossEntropy(c, eta=0.8, **o),
    }
    targets = torch.tensor([0] * 30 + [1] * 12 + [2] * 6)[
        torch.randperm(48, generator=torch.Generator().manual_seed(0))
    ]
    logits = torch.randn(48, 3)
    auto = builds[name]("auto", sizes=3)
    for batch in torch.arange(48).split(16):
        auto(logits[batch], targets[batch])
    auto.eval()
    expected = builds[name]([30, 12, 6])(logits, targets)
    torch.testing.assert_close(auto(logits, targets), expected)
    auto.train()
    auto(logits, torch.zeros(48, dtype=torch.int64))
    torch.testing.assert_close(auto(logits, targets), expected)
    loaded = builds[name]("auto", sizes=3)
    loaded.load_state_dict(auto.state_dict())
    torch.testing.assert_close(loaded.eval()(logits, targets), expected)


def test_a_loss_that_adjusts_the_prior_says_so() -> None:
    adjusting: list[torch.nn.Module] = [
        LogitAdjustedLoss(COUNTS),
        BalancedSoftmaxLoss(COUNTS),
        FocalLoss(weight=WEIGHT),
        AsymmetricLoss(),
        Objective(LogitAdjustedLoss(COUNTS), 4),
        RectifiedCrossEntropy(COUNTS, weight=WEIGHT),
    ]
    plain: list[torch.nn.Module] = [LogitAdjustedLoss(COUNTS, tau=0), FocalLoss(), RectifiedCrossEntropy(COUNTS)]
    plain.append(AsymmetricLoss(0.0, 0.0, 0.0))
    assert [loss.adjusts_prior for loss in adjusting + plain] == [True] * 6 + [False] * 4


def test_balanced_weights_are_scikit_learns() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    targets = np.repeat(np.arange(4), COUNTS)
    expected = compute_class_weight("balanced", classes=np.arange(4), y=targets)
    np.testing.assert_allclose(class_weights(COUNTS).numpy(), expected, rtol=1e-6)
    assert balanced_weights([10, 0]).tolist() == [1.0, 10.0]
    assert torch.equal(class_weights(COUNTS, "cost"), losses.cost_weights(COUNTS))
    effective = losses.effective_number_weights(COUNTS, 0.9)
    assert torch.equal(class_weights(COUNTS, "effective-number", beta=0.9), effective)


def test_unmined_batches_may_keep_all_of_the_cross_entropy() -> None:
    """One sample of each class: nothing to mine, so alpha takes weight away for nothing."""
    logits, targets = torch.randn(4, 4), torch.arange(4)
    plain = F.cross_entropy(logits, targets)
    paper, full = (RectifiedCrossEntropy(alpha=0.6, sizes=4, full_if_unmined=full) for full in (False, True))
    torch.testing.assert_close(paper(logits, targets), 0.4 * plain)
    torch.testing.assert_close(full(logits, targets), plain)
    assert full(logits, targets, return_parts=True).alpha.tolist() == [0.0]
    mined = torch.tensor([0, 0, 1, 1])
    assert full(logits, mined) == paper(logits, mined)


def test_batches_without_anything_to_mine_warn_once() -> None:
    objective = RectifiedCrossEntropy([90, 10], eta=0.5)
    logits, unmined, mined = torch.randn(3, 2), torch.tensor([0, 0, 1]), torch.tensor([0, 0, 0])
    for _ in range(WATCHED - 1):
        objective(logits, unmined)
    with pytest.warns(UserWarning, match=rf"nothing to mine in {WATCHED} of {WATCHED} batches.*full_if_unmined=True"):
        objective(logits, mined)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective(logits, unmined)
        given_back = RectifiedCrossEntropy([90, 10], eta=0.5, full_if_unmined=True)
        for _ in range(2 * WATCHED):
            given_back(logits, unmined)
        busy = RectifiedCrossEntropy([90, 10], eta=0.5)
        for _ in range(2 * WATCHED):
            busy(torch.randn(5, 2), torch.tensor([0, 0, 0, 1, 1]))
        balanced = RectifiedCrossEntropy([50, 50], eta=0.5)  # alpha = 0: nothing is lost
        for _ in range(2 * WATCHED):
            balanced(logits, unmined)
        quiet = RectifiedCrossEntropy([90, 10], eta=0.5).eval()
        for _ in range(2 * WATCHED):
            quiet(logits, unmined)


@pytest.mark.parametrize("option", [{"falling": True}, {"rectify_from": 0.5}])
def test_a_schedule_without_progress_warns_once(option: dict[str, Any]) -> None:
    logits, targets = torch.randn(4, 2), torch.tensor([0, 0, 1, 1])
    objective = RectifiedCrossEntropy([90, 10], eta=0.5, **option)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective.eval()(logits, targets)
        told = RectifiedCrossEntropy([90, 10], eta=0.5, **option)
        told.set_progress(0.0)
        told(logits, targets)
    objective.train()
    with pytest.warns(UserWarning, match=rf"has a schedule \({next(iter(option))}\), but set_progress was not called"):
        objective(logits, targets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective(logits, targets)
