"""Every method builds from counts alone, works for any labels, and changes what it claims to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.cases import make_batch
from rectifier import LabelSpace, class_counts
from rectifier.evaluation.rules import adjusts_prior
from rectifier.losses import LossParts
from rectifier.methods import METHODS, SLOTS, build_objective, build_sampler, find_method, needed_of_network, rounds_of
from rectifier.training import train
from rectifier.training.config import Config

LAYOUTS = {"one label": [5], "40 binary labels": [2] * 40, "nine mixed labels": [6, 9, 11, 14, 16, 18, 20, 29, 55]}


def objective_of(name: str, sizes: list[int], targets: Tensor) -> torch.nn.Module:
    options = {"eta": 0.5} if find_method(name).rectification else {}
    objective = build_objective(name, class_counts(targets, sizes), LabelSpace.from_sizes(sizes), **options)
    if hasattr(objective, "set_progress"):
        objective.set_progress(0.0)
    return objective


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", METHODS)
def test_finite_loss_and_gradient(name: str, layout: str) -> None:
    sizes = LAYOUTS[layout]
    if name == "asymmetric" and 2 not in sizes:
        pytest.skip("needs a label of two classes")
    batch = make_batch(sizes, 65, missing=0.2, dtype=torch.float32)
    logits, features = batch.logits.requires_grad_(), batch.features.requires_grad_()
    parts = objective_of(name, sizes, batch.targets)(logits, batch.targets, features, return_parts=True)
    assert isinstance(parts, LossParts)
    parts.loss.backward()
    assert parts.loss.isfinite()
    assert logits.grad.isfinite().all()
    assert logits.grad.any() or (features.grad is not None and features.grad.any())


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ce"])
def test_what_a_method_fills_it_changes(name: str) -> None:
    batch = make_batch([2], 65, skew=3.0)
    space, method = LabelSpace.from_sizes([2]), find_method(name)
    objectives = [objective_of(n, [2], batch.targets) for n in ("ce", name)]
    for objective in objectives:  # some change late in training, some early
        if hasattr(objective, "set_progress"):
            objective.set_progress(0.9)  # type: ignore[operator]
    losses = [objective(batch.logits, batch.targets, batch.features).item() for objective in objectives]
    assert (losses[0] != losses[1]) == bool({"loss", "weights", "rectification", "objective"} & method.parts.keys())
    drawn = [build_sampler(n, batch.targets, space, epochs=1).plan() for n in ("ce", name)]
    assert torch.equal(*drawn) == (method.sampler is None)
    assert any(getattr(method, slot) is not None for slot in SLOTS)


def test_methods_go_together() -> None:
    batch = make_batch([5], 64, skew=3.0)
    counts, space = class_counts(batch.targets, [5]), LabelSpace.from_sizes([5])
    arguments = batch.logits, batch.targets, batch.features
    parts = {}
    for name in ("crl", "focal", "crl+focal", "focal+crl"):
        options = {"eta": 0.8} if "crl" in name else {}
        parts[name] = build_objective(name, counts, space, **options)(*arguments, return_parts=True)
    both, crl = parts["crl+focal"], parts["crl"]
    wanted = crl.alpha * crl.rectification + (1 - crl.alpha) * parts["focal"].loss
    torch.testing.assert_close(both.loss, wanted.sum())
    assert both.loss == parts["focal+crl"].loss
    joined = find_method("crl+logit-adjustment+over-sampling+threshold-adjustment")
    assert joined.posthoc == "threshold-adjustment"
    assert {"eta", "tau"} <= set(joined.options)
    assert not torch.equal(*(build_sampler(name, batch.targets, space).plan() for name in ("crl", "crl+over-sampling")))
    assert needed_of_network("crl+ldam", {})["classifier"] == "cosine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("focal+ldam", "focal and ldam, which both set a loss"),
        ("crl+crl-class-absolute", "both set a rectification"),
        ("triplet-knn+crl", "triplet-knn, which replaces the whole objective, and crl"),
        ("crt+lws", "crt and lws, which both change the classifier after training"),
        ("lmle+mixup", "lmle, which replaces the whole objective, and mixup"),
        ("hog-knn+crl", "hog-knn, which trains no network, and crl"),
        ("svm+crt", "svm, which decides without the classifier, and crt"),
        ("crl+dcl", "both set a rectification"),
        ("crl+crl", r"crl\+crl names crl twice"),
        ("crl+", r"A method is missing after \+ in 'crl\+'"),
        ("crl+focl", r"No method 'focl'\. Did you mean 'focal'"),
    ],
)
def test_methods_that_do_not_go_together(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_method(name)


def test_a_network_that_a_method_cannot_use() -> None:
    assert needed_of_network("ce", {"depth": 8}) == {"depth": 8}
    with pytest.raises(ValueError, match=r"classifier to be cosine for method 'ldam', but got 'linear'"):
        needed_of_network("ldam", {"classifier": "linear"})


def test_what_the_samplers_do() -> None:
    batch = make_batch([5], 200, skew=3.0)
    space, counts = LabelSpace.from_sizes([5]), class_counts(batch.targets, [5])[0]
    present = counts[counts > 0]
    for name, goal in (("over-sampling", present.max()), ("down-sampling", present.min())):
        drawn = batch.targets[build_sampler(name, batch.targets, space).plan(), 0].bincount(minlength=5)
        assert (drawn[counts > 0] == goal).all()


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_samples(name: str) -> None:
    batch = make_batch([2, 3], 50)
    space = LabelSpace.from_sizes([2, 3])
    first, second, other = (build_sampler(name, batch.targets, space, seed=seed).plan() for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_what_it_is(name: str) -> None:
    method = METHODS[name]
    assert method.about
    assert method.reference or name == "ce"


def test_a_misspelt_method() -> None:
    with pytest.raises(ValueError, match=r"No method 'oversampling'\. Did you mean 'over-sampling'\? METHODS"):
        find_method("oversampling")


def test_options() -> None:
    counts, space = [torch.tensor([90, 10])], LabelSpace.from_sizes([2])
    assert build_objective("crl", counts, space, kappa=7).design.kappa == 7
    with pytest.raises(
        ValueError, match=r"every option of method 'crl' to be among eta, .* 'kapa'.*Did you mean 'kappa'"
    ):
        build_objective("crl", counts, space, kapa=7)
    with pytest.raises(ValueError, match="every option of method 'ce' to be among none, but got 'eta'"):
        build_objective("ce", counts, space, eta=1)


def test_counts_of_another_space() -> None:
    with pytest.raises(ValueError, match=r"counts to be those of the label space, \(2,\), but got \(3,\)"):
        build_objective("ce", [torch.tensor([1, 2, 3])], LabelSpace.from_sizes([2]))


def test_the_page_on_methods_names_all_of_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    designs = {name for name in METHODS if name.startswith("crl-")}  # its five other designs
    assert not [name for name in METHODS if f"`{name}`" not in page and name not in designs | {"ce"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "lmle", "rounds": 0}, "rounds to be a positive integer, but got 0"),
        ({"method": "lmle", "rounds": 2.5}, "rounds to be a positive integer"),
        (
            {"method": "lmle", "epochs": 1},
            "epochs to be enough for a round after pre-training, the share 0.2 of training",
        ),
        ({"method": "ldam-drw", "epochs": 4}, "epochs to be enough for an epoch after the share 0.8 of training"),
        ({"method": "lmle", "patience": 3}, "lmle takes no patience: validation cannot judge its classifier"),
        ({"method": "crt", "retrain_epochs": 0}, "retrain_epochs to be a positive integer, but got 0"),
        ({"method": "crl", "rectify_from": 0.9, "epochs": 2}, "epochs to be enough for an epoch after the share 0.9"),
        ({"method": "lmle", "pretrain": 2}, "pretrain to be a share from 0 to 1, but got 2"),
        ({"method": "lmle", "pretrain": "abc"}, "pretrain to be a share from 0 to 1, but got 'abc'"),
        ({"method": "lmle", "margins": 0.1}, "margins to be three numbers of at least 0, but got 0.1"),
        ({"method": "lmle", "margins": "abc"}, "margins to be three numbers of at least 0"),
        ({"method": "crl", "alpha": "abc"}, "alpha to be a number, or one for each label, but got 'abc'"),
    ],
)
def test_impossible_settings_are_refused_early(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(Config("digits").with_settings({"network": "mlp", "accelerator": "cpu", **settings}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("epochs", [7, 10, 50, 200])
@pytest.mark.parametrize("pretrain", [0.0, 0.07, 0.28, 0.5])
def test_rounds_begin_where_pre_training_ends(pretrain: float, epochs: int) -> None:
    found = rounds_of("lmle", epochs, {"pretrain": pretrain, "rounds": 3})
    objective = build_objective("lmle", [torch.tensor([9, 1])], LabelSpace.from_sizes([2]), pretrain=pretrain)
    switched = []
    for epoch in range(epochs):
        objective.set_progress(epoch / epochs)  # type: ignore[operator]
        switched.append(bool(objective.progress >= objective.pretrain))
    assert min(found) == switched.index(True)
    assert len(found) == 3


# Which methods already correct for class frequencies.

BY_TRAINING = {
    "asymmetric",
    *("over-sampling", "down-sampling", "class-balanced-sampling", "square-root-sampling", "progressive-sampling"),
    *("cost-sensitive", "class-balanced", "drw", "ldam-drw", "balanced-softmax", "logit-adjustment", "dcl", "lmle"),
}
BY_A_LAST_STEP = {"crt", "lws", "tau-normalisation"}


def test_which_methods_move_the_threshold() -> None:
    assert {name for name, method in METHODS.items() if method.balances_training} == BY_TRAINING
    assert {name for name, method in METHODS.items() if method.moves_threshold} == BY_TRAINING | BY_A_LAST_STEP
    assert find_method("crl+over-sampling").moves_threshold
    assert find_method("crl+crt").moves_threshold
    assert not find_method("crl+threshold-adjustment").moves_threshold


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_of_its_loss_what_the_loss_says_of_itself(name: str) -> None:
    method = METHODS[name]
    built = build_objective(name, [torch.tensor([90, 10])], LabelSpace.from_sizes([2]))
    says = method.weights is not None or (method.loss is not None and method.loss.adjusts_prior)
    assert adjusts_prior(built) == says
