"""Heads that train together equal heads that train alone, whatever else is in the list."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from oracles_heads import train_alone
from rectifier.labels.space import LabelSpace
from rectifier.methods import METHODS, find_method
from rectifier.training.heads import FeatureTable, HeadSpec, TrainedHead, train_heads

SPACE = LabelSpace.from_sizes([4, 2, 3])
METHODS_OF_HEADS = [name for name, method in METHODS.items() if method.features is None and method.mixing is None]
COMBINED = ["crl+logit-adjustment", "crl+focal", "over-sampling+focal", "ldam-drw+crl", "crl-instance-relative+drw"]


def made_table(samples: int = 60, seed: int = 0, views: int = 0, space: LabelSpace = SPACE) -> FeatureTable:
    """Return a table with missing targets, an absent class, and features of unequal deviations."""
    drawn = Generator().manual_seed(seed)
    columns = [(torch.rand(samples, generator=drawn) ** 2 * size).long() for size in space.sizes]
    targets = torch.stack(columns, 1)
    targets[targets == 3] = 0  # the last class of the first label is absent
    targets[torch.rand(targets.shape, generator=drawn) < 0.1] = -1
    x = torch.randn(*([views] if views else []), samples, 6, generator=drawn, dtype=torch.float64)
    x = x + 0.5 * targets.sum(1, keepdim=True).clamp(max=3)
    return FeatureTable(x * torch.tensor([1, 2, 0.1, 5, 1, 1]) + 3, targets, space)


TABLE, HELD_OUT = made_table(), made_table(40, seed=1)


def spec_of(method: str, **more: Any) -> HeadSpec:
    compares = "instance" in method or any(name in method for name in ("lmle", "triplet", "ranking", "dcl"))
    given: dict[str, Any] = {"epochs": 5, "batch_size": 20, "lr": 0.05, "hidden": 5 if compares else 0}
    if find_method(method).classifier == "cosine":
        given["classifier"] = "cosine"
    return HeadSpec(method, **{**given, **more})


def same(first: TrainedHead, second: TrainedHead, tolerance: float = 1e-9) -> None:
    assert first.epoch == second.epoch
    assert first.weights.keys() == second.weights.keys()
    for name, weight in first.weights.items():
        torch.testing.assert_close(weight, second.weights[name], rtol=tolerance, atol=tolerance)
    assert first.losses == pytest.approx(second.losses, abs=tolerance)
    assert first.scores == pytest.approx(second.scores)


def as_alone(head: TrainedHead, offsets: Tensor | float = 0.0) -> None:
    """Compare with the slow twin."""
    held_out = HELD_OUT.first_view, HELD_OUT.targets
    network, losses, scores = train_alone(TABLE.x, TABLE.targets, SPACE, head.spec, held_out, offsets)
    standardised = (held_out[0] - TABLE.x.mean(0)) / TABLE.x.std(0, correction=0)
    logits, features = network(standardised)
    torch.testing.assert_close(head.logits(held_out[0]), logits, rtol=1e-8, atol=1e-8)
    if head.spec.has_layers:
        torch.testing.assert_close(head.features(held_out[0]), features, rtol=1e-8, atol=1e-8)
    assert head.losses == pytest.approx(losses, abs=1e-9)
    assert head.scores == pytest.approx(scores)


@pytest.mark.parametrize("method", [*METHODS_OF_HEADS, *COMBINED])
def test_heads_together_equal_a_plain_loop_for_each(method: str) -> None:
    specs = [spec_of(method, seed=seed, weight_decay=decay) for seed, decay in ((0, 0.0), (0, 0.1), (1, 0.1))]
    for head in train_heads(TABLE, [specs[0], spec_of("ce"), *specs[1:]], validation=HELD_OUT):
        as_alone(head)


@pytest.mark.parametrize(
    "more",
    [
        {"optimizer": "sgd", "momentum": 0.8, "lr": 0.1, "weight_decay": 0.1},
        {"schedule": "constant", "warmup": 0.4},
        {"warmup": 0.3, "smoothing": 0.1},
        {"classifier": "cosine", "scale": 10.0},
        {"classifier": "cosine", "scale_learned": True},
        {"classifier": "cosine", "hidden": 4, "scale": 5.0, "scale_learned": True},
        {"classifier": "cosine", "branch": 8, "optimizer": "sgd"},
        {"order_seed": 9},
        {"hidden": 4},
        {"branch": 3},
        {"hidden": 4, "branch": 3},
    ],
    ids=lambda more: "-".join(map(str, more)),
)
@pytest.mark.parametrize("method", ["crl", "logit-adjustment+crl-class-distribution"])
def test_every_shape_and_optimiser_equals_a_plain_loop(more: dict[str, Any], method: str) -> None:
    for head in train_heads(TABLE, [spec_of(method, seed=seed, **more) for seed in (3, 4)], validation=HELD_OUT):
        as_alone(head)


@pytest.mark.parametrize("branch", [0, 3])
def test_instance_level_heads_with_etas_are_one_objective(branch: int) -> None:
    etas = [{"eta": eta} for eta in (0.1, 0.5, 1.0)] + [{"alpha": 0.3}, {"alpha": [0.1, 0.2, 0.3]}]
    specs = [
        spec_of("crl-instance-absolute", hidden=4, branch=branch, method_options=one, seed=seed)
        for one in etas
        for seed in (0, 1)
    ]
    for head in train_heads(TABLE, specs, validation=HELD_OUT):
        as_alone(head)


@pytest.mark.parametrize(
    "options", [{"pooled": True}, {"full_if_unmined": True}, {"falling": True}, {"rectify_from": 0.5}]
)
def test_options_of_rectification_equal_a_plain_loop(options: dict[str, Any]) -> None:
    specs = [spec_of("crl", seed=seed, method_options={**options, "eta": eta}) for seed in (0, 1) for eta in (0.3, 1)]
    for head in train_heads(TABLE, specs, validation=HELD_OUT):
        as_alone(head)


VARIED = [
    spec_of("ce"),
    spec_of("ce", seed=1),
    spec_of("crl", method_options={"eta": 0.5}),
    spec_of("crl", method_options={"eta": 1.0}, seed=1),
    spec_of("crl", method_options={"mining": "random"}),
    spec_of("crl", method_options={"memory": 16}),
    spec_of("ce", noise=0.5),
    spec_of("focal", noise=0.2, seed=1),
    spec_of("mixup"),
    spec_of("remix", seed=1),
    spec_of("crl", mixup=0.4, smoothing=0.1),
    spec_of("ce", dropout=0.3, hidden=4),
    spec_of("ce", dropout=0.3, branch=4),
    spec_of("ce", dropout=0.3, hidden=4, branch=3, noise=0.1, mixup=1.0),
    spec_of("over-sampling+focal", epochs=4),
    spec_of("ce", batch_size=7),
    spec_of("logit-adjustment", init="means", lr=0.001),
    spec_of("ce", init="means", classifier="cosine"),
    spec_of("ce", dropout=0.2, classifier="cosine"),
]


def without_memory_in_double(spec: HeadSpec) -> bool:
    return "memory" not in spec.method_options  # stored scores are float32


def test_what_is_drawn_does_not_depend_on_the_other_heads() -> None:
    table, specs = made_table(views=2), [spec for spec in VARIED if without_memory_in_double(spec)]
    together = train_heads(table, specs, validation=HELD_OUT, choose="best")
    for spec, head in zip(specs, together, strict=True):
        same(train_heads(table, [spec], validation=HELD_OUT, choose="best")[0], head)


def test_the_order_of_the_list_changes_nothing() -> None:
    table = FeatureTable(TABLE.x.float(), TABLE.targets, SPACE)
    together, backwards = train_heads(table, VARIED), train_heads(table, VARIED[::-1])
    for one, other in zip(together, backwards[::-1], strict=True):
        assert one.spec is other.spec
        same(one, other, 1e-5)


def test_single_precision_stays_close_to_double() -> None:
    table = FeatureTable(TABLE.x.float(), TABLE.targets, SPACE)
    specs = [spec_of("crl", seed=seed, lr=0.01) for seed in range(3)]
    for one, other in zip(train_heads(table, specs), train_heads(TABLE, specs), strict=True):
        assert one.weights["classifier.weight"].dtype == torch.float32
        difference = one.logits(table.x) - other.logits(TABLE.x)
        assert difference.abs().max() < 1e-3


def test_the_global_random_state_stays() -> None:
    before = torch.get_rng_state()
    train_heads(TABLE, [spec_of("mixup"), spec_of("ce", dropout=0.5)])
    assert torch.equal(before, torch.get_rng_state())


def test_eta_zero_is_cross_entropy() -> None:
    without, plain = train_heads(TABLE, [spec_of("crl", method_options={"eta": 0.0}), spec_of("ce")])
    torch.testing.assert_close(without.logits(TABLE.x), plain.logits(TABLE.x))


def test_the_best_epoch_is_kept_under_the_offsets_of_the_rule() -> None:
    offsets = torch.linspace(-1, 1, SPACE.columns, dtype=torch.float64)
    specs = [spec_of("ce", lr=0.3), spec_of("ce", lr=0.3)]
    plain, moved = train_heads(TABLE, specs, validation=HELD_OUT, offsets=[None, offsets], choose="best")
    for head, added in ((plain, 0.0), (moved, offsets)):
        *_, scores = train_alone(TABLE.x, TABLE.targets, SPACE, specs[0], (HELD_OUT.x, HELD_OUT.targets), added)
        assert head.scores == pytest.approx(scores)
        assert head.epoch == 1 + scores.index(max(scores))
        assert head.score == max(head.scores)


def test_the_weights_of_the_best_epoch_come_back() -> None:
    head = train_heads(TABLE, [spec_of("ce", lr=0.5)], validation=HELD_OUT, choose="best")[0]
    cut = replace(head.spec, schedule="constant", lr=0.5)
    whole = train_heads(TABLE, [cut], validation=HELD_OUT, choose="best")[0]
    short = train_heads(TABLE, [replace(cut, epochs=whole.epoch)])[0]
    torch.testing.assert_close(whole.weights["classifier.weight"], short.weights["classifier.weight"])


def test_deferred_methods_and_decisions_from_features_choose_late() -> None:
    specs = [spec_of("drw"), spec_of("triplet-knn")]
    deferred, embedded = train_heads(TABLE, specs, validation=HELD_OUT, choose="best")
    assert deferred.epoch == 5
    assert embedded.epoch == 5


def test_progress_counts_the_epochs_of_all_heads() -> None:
    seen: list[tuple[int, int]] = []
    specs = [spec_of("ce"), spec_of("ce", seed=1), spec_of("ce", hidden=3, epochs=2)]
    train_heads(TABLE, specs, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (12, 12)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_constant_feature_changes_nothing() -> None:
    wide = torch.cat([TABLE.x, torch.full((60, 1), 7.0)], 1)
    head = train_heads(FeatureTable(wide, TABLE.targets, SPACE), [spec_of("ce")])[0]
    assert all(bool(weight.isfinite().all()) for weight in head.weights.values())


@pytest.mark.parametrize("method", ["ce", "crl", "crl-instance-relative"])
def test_a_head_that_diverges_leaves_the_others_alone(method: str) -> None:
    wild, calm = (spec_of(method, optimizer="sgd", lr=lr) for lr in (1e200, 0.05))
    diverged, other = train_heads(TABLE, [wild, calm], validation=HELD_OUT)
    assert not all(map(math.isfinite, diverged.losses))
    as_alone(other)


def test_groups_stay_below_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [spec_of("crl", seed=seed, weight_decay=decay) for seed in (0, 1, 2) for decay in (0.0, 0.1, 0.2)]
    whole = train_heads(TABLE, specs)
    monkeypatch.setattr("rectifier.training.heads.grouping._MOST_WEIGHTS", 120)
    monkeypatch.setattr("rectifier.training.heads.grouping._MOST_FEATURES", 300)
    for one, other in zip(whole, train_heads(TABLE, specs), strict=True):
        same(one, other)


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        (
            "crl-instance-relative",
            {"hidden": 0},
            "crl-instance-relative compares features .* Give it a hidden layer or branches",
        ),
        ("lmle", {"smoothing": 0.1}, "smoothing to be 0 for method 'lmle', whose loss compares quintuplets"),
        ("drw", {"epochs": 3}, "epochs to be enough for an epoch after the share 0.8"),
    ],
)
def test_wrong_specs_are_refused(method: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_heads(TABLE, [spec_of(method, **more)])


def test_wrong_arguments_are_refused() -> None:
    spec = spec_of("ce")
    other = LabelSpace.from_sizes([4, 2, 2])
    with pytest.raises(ValueError, match="choose to be one of 'last', 'best'"):
        train_heads(TABLE, [spec], choose="first")
    with pytest.raises(ValueError, match="choose to be 'last' without validation"):
        train_heads(TABLE, [spec], choose="best")
    with pytest.raises(ValueError, match="one for each of the 1 specs, but got 2"):
        train_heads(TABLE, [spec], offsets=[None, None])
    with pytest.raises(ValueError, match=r"offsets to be of shape \(9,\)"):
        train_heads(TABLE, [spec], offsets=[torch.zeros(2)])
    with pytest.raises(ValueError, match="label space of validation to be that of training"):
        train_heads(TABLE, [spec], validation=FeatureTable(torch.zeros(1, 6), torch.zeros(1, 3).long(), other))
    with pytest.raises(ValueError, match="validation to be 6 features wide"):
        train_heads(TABLE, [spec], validation=FeatureTable(torch.zeros(1, 5), torch.zeros(1, 3).long(), SPACE))
