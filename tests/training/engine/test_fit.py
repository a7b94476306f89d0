"""The engine does what a plain loop does, and each of its options what it says."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.cases import StopsAfter
from helpers.network_forms import FORMS, TRIED, images_for
from rectifier import LabelSpace, RectifiedCrossEntropy, class_balanced_accuracy, class_counts
from rectifier.data import Loader, open_data
from rectifier.evaluation.rules import prior_offsets
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.objective import Objective
from rectifier.methods import METHODS, build_objective, build_sampler, needed_of_network
from rectifier.networks.registry import NETWORKS, build_network
from rectifier.samplers import UniformSampler
from rectifier.training import resume, stages, train
from rectifier.training.config import Config
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run.folder import Run

SHAPES = "shapes:samples=160,size=16,ratio=6,labels=shape=4/colour=3,missing=0.1"


def config(data: str = "digits", **settings: Any) -> Config:
    small = {"network": "mlp", "epochs": 2, "batch_size": 16, "lr": 0.05, "padding": 0, "flip": False}
    quick = {"tensorboard": False, "accelerator": "cpu", "select": "last"}
    return Config(data).with_settings({**small, **quick, **settings})


def plain_loop(spec: str, objective: nn.Module, epochs: int, lr: float) -> dict[str, Tensor]:
    data = open_data(spec)
    network = build_network("mlp", data.space, data.images.shape, seed=0)  # type: ignore[attr-defined]
    batches = Loader(data, "train", 16, sampler=UniformSampler(len(data.indices("train")), seed=0))
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.5 * (1 + math.cos(math.pi * t / steps)))
    for _ in range(epochs):
        for images, targets, _ in batches:
            loss = objective(network(images).logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.state_dict()


def difference(run: Run, other: dict[str, Tensor]) -> float:
    weights = run.weights()
    assert weights.keys() == other.keys()
    return max(float((weights[name] - other[name]).abs().max()) for name in other)


def history(run: Run) -> list[dict[str, str]]:
    with (run.path / "history.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("spec", ["digits", SHAPES])
@pytest.mark.parametrize("method", ["ce", "crl"])
def test_the_engine_ends_where_a_plain_loop_ends(tmp_path: Path, method: str, spec: str) -> None:
    data = open_data(spec)
    rectified = method == "crl"
    objective = (
        RectifiedCrossEntropy(data.counts("train"), eta=0.5) if rectified else Objective(CrossEntropyLoss(), data.space)
    )
    run = train(config(spec, method=method, **({"eta": 0.5} if rectified else {})), tmp_path / "run")
    assert difference(run, plain_loop(spec, objective, epochs=2, lr=0.05)) == 0


def test_accumulated_halves_are_the_whole_batch(tmp_path: Path) -> None:
    whole = train(config(method="ce", drop_last=True), tmp_path / "whole")
    halves = train(config(method="ce", drop_last=True, batch_size=8, accumulate=2), tmp_path / "halves")
    assert difference(halves, whole.weights()) < 1e-6
    assert [row["step"] for row in history(halves)] == [row["step"] for row in history(whole)]


def test_a_last_window_that_is_not_full_is_a_mean_too(tmp_path: Path) -> None:
    # 209 images in batches of 64 are four; in windows of three the fourth stands alone, and counts fully.
    run = train(config(method="ce", batch_size=64, accumulate=3, epochs=1, schedule="constant"), tmp_path / "run")
    assert history(run)[0]["step"] == "2"


def one_step(tmp_path: Path, name: str, **settings: Any) -> Tensor:
    """Return how the weights moved in a single step of plain gradient descent."""
    once = {"batch_size": 256, "epochs": 1, "momentum": 0.0, "weight_decay": 0.0, "method": "ce"}
    run = train(config(**{**once, **settings}), tmp_path / name)
    data = open_data("digits")
    before = build_network("mlp", data.space, (8, 8, 1), seed=0).state_dict()
    after = run.weights()
    return torch.cat([(after[name] - before[name]).flatten() for name in before])


def test_clipping_shortens_the_step_and_keeps_its_direction(tmp_path: Path) -> None:
    free, loose, tight = (
        one_step(tmp_path, name, **clip) for name, clip in (("a", {}), ("b", {"clip": 1e6}), ("c", {"clip": 0.01}))
    )
    assert torch.equal(free, loose)
    assert float(tight.norm()) == pytest.approx(0.05 * 0.01, rel=1e-3)
    assert float(nn.functional.cosine_similarity(free, tight, 0)) > 0.9999


def test_a_warm_up_starts_small(tmp_path: Path) -> None:
    free, warm = one_step(tmp_path, "a"), one_step(tmp_path, "b", warmup=4)
    assert torch.allclose(warm, free / 4, atol=1e-7)


def test_adamw_is_pytorchs(tmp_path: Path) -> None:
    moved = one_step(tmp_path, "run", optimizer="adamw", lr=0.001)
    assert float(moved.abs().max()) == pytest.approx(0.001, rel=1e-3)  # Adam's first step is the rate's sign


def test_bfloat16_trains_close_to_float32(tmp_path: Path) -> None:
    full, half = (train(config(precision=p), tmp_path / p) for p in ("32", "bf16"))
    assert 0 < difference(half, full.weights()) < 0.1
    assert {w.dtype for w in half.weights().values()} == {torch.float32}


@pytest.mark.parametrize("select", ["argmax", "prior", "last"])
def test_the_chosen_epoch_is_the_best_of_validation(tmp_path: Path, select: str) -> None:
    run = train(config(select=select, epochs=6, lr=0.2), tmp_path / "run")
    scores = [float(row["validation"]) for row in history(run)]
    checkpoint = run.checkpoint()
    assert checkpoint is not None
    best = len(scores) - 1 if select == "last" else scores.index(max(scores))
    assert checkpoint["best_epoch"] == best + 1
    saved = run.predictions("validation")
    offsets = prior_offsets(run.train_counts) if select == "prior" else 0
    found = class_balanced_accuracy(saved.logits + offsets, saved.targets, run.space)
    assert float(found) == pytest.approx(scores[best], abs=1e-6)


@pytest.mark.parametrize(
    ("method", "options", "first"),
    [("drw", {"weights_from": 0.5}, 4), ("crl", {"eta": 0.5, "rectify_from": 0.6}, 5), ("ldam-drw", {}, 6)],
)
def test_an_epoch_before_the_method_is_whole_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, options: dict[str, float], first: int
) -> None:
    scores = iter([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    monkeypatch.setattr(stages.Validation, "__call__", lambda self: torch.tensor(next(scores)))
    settings = config(method=method, epochs=6, select="argmax", patience=3, checkpoint_seconds=1e9, **options)
    run = train(settings, tmp_path / "run")
    checkpoint = run.checkpoint()
    assert checkpoint is not None
    assert checkpoint["best_epoch"] == first


def alphas(run: Run) -> list[float]:
    with (run.path / "labels.csv").open() as file:
        return [float(row["alpha"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("stop", [None, 14, 14 + 3, 3 * 14])
def test_the_objective_learns_the_progress_of_every_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int | None
) -> None:
    """Unbroken, and resumed after the end of an epoch, within one, and before the last."""
    shares: list[float] = []
    set_progress = Objective.set_progress

    def noted(objective: Objective, share: float) -> None:
        shares.append(share)
        set_progress(objective, share)

    monkeypatch.setattr(Objective, "set_progress", noted)
    settings = config(method="crl", epochs=4, eta=0.5, rectify_from=0.5, checkpoint_seconds=1e9)
    if stop is not None:
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", stop)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped):
                train(settings, tmp_path / "run")
    run = train(settings, tmp_path / "run") if stop is None else resume(tmp_path / "run")
    assert sorted(set(shares)) == [0, 0.25, 0.5, 0.75]
    assert len(shares) == 4 + (stop is not None)  # the epoch that was stopped starts twice
    before, after = alphas(run)[:2], alphas(run)[2:]
    assert before == [0, 0]
    assert after[0] == after[1] > 0


def test_a_falling_rectification_falls_with_every_epoch(tmp_path: Path) -> None:
    run = train(config(method="crl", epochs=4, eta=0.5, falling=True), tmp_path / "run")
    start, *later = alphas(run)
    expected = [start * 0.5 * (1 + math.cos(math.pi * share)) for share in (0.25, 0.5, 0.75)]
    assert later == pytest.approx(expected)


def test_validation_has_its_turns_and_the_last_epoch(tmp_path: Path) -> None:
    run = train(config(epochs=5, validate_every=2), tmp_path / "run")
    assert [bool(row["validation"]) for row in history(run)] == [False, True, False, True, True]


def test_training_ends_early_when_validation_does_not_gain(tmp_path: Path) -> None:
    run = train(config(epochs=50, lr=1e-9, patience=3, select="argmax"), tmp_path / "run")
    assert len(history(run)) == 4


def test_seeds_and_only_seeds_change_a_run(tmp_path: Path) -> None:
    settings = {"network.dropout": 0.3, "padding": 1}
    torch.manual_seed(1)
    first = train(config(**settings), tmp_path / "first")
    state = torch.get_rng_state()
    again = train(config(**settings), tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), state)  # the caller's own random state is left alone
    other = train(config(**settings, seed=1), tmp_path / "other")
    assert difference(again, first.weights()) == 0
    assert difference(other, first.weights()) > 0
    assert (again.path / "history.csv").read_bytes() == (first.path / "history.csv").read_bytes()


def test_missing_labels_everywhere_are_left_out_of_the_history(tmp_path: Path) -> None:
    run = train(config(SHAPES, method="crl"), tmp_path / "run")
    row = history(run)[-1]
    assert all(math.isfinite(float(row[name])) for name in ("loss", "cross_entropy", "rectification", "comparisons"))
    with (run.path / "labels.csv").open() as file:
        labels = list(csv.DictReader(file))
    assert [(row["epoch"], row["label"]) for row in labels] == [(e, n) for e in "12" for n in ("shape", "colour")]
    objective = build_objective("crl", run.train_counts, run.space)
    assert [float(row["alpha"]) for row in labels[:2]] == pytest.approx(objective.alpha.tolist())  # type: ignore[union-attr,operator]


def test_every_network_has_a_small_form() -> None:
    assert {name for name, _ in FORMS.values()} == set(NETWORKS)


OF_THE_LOSS = {"loss", "weights", "rectification", "objective"}
CLASSIC = ("deepid2", "mtct", "cifarnet", "resnet8", "densenet", "resnet50", "mlp")
OF_ATTRIBUTES = ("panda", "anet", "ddan", "darn", "fashionnet")


@pytest.mark.parametrize("form", CLASSIC + OF_ATTRIBUTES)
@pytest.mark.parametrize(
    "method", [name for name, m in METHODS.items() if name == "ce" or OF_THE_LOSS & m.parts.keys()]
)
def test_one_step_of_every_loss_on_every_network_is_finite(method: str, form: str) -> None:
    space = LabelSpace.from_sizes([2, 2] if method == "asymmetric" else [3, 2])
    targets = torch.tensor([[0, 0]] * 5 + [[1, 1]] * 2 + [[space.sizes[0] - 1, 0]] * 2 + [[-1, 1]])
    network, options = FORMS[form]
    options = needed_of_network(method, options)
    model = build_network(network, space, (*TRIED.get(network, (8, 9)), 3), seed=0, **options)
    drawn = build_sampler(method, targets, space, batch_size=10).plan().flatten()[:10]
    objective = build_objective(method, class_counts(targets, space), space)
    if hasattr(objective, "set_progress"):
        objective.set_progress(0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    output = model(images_for(model, 10)[drawn])
    objective(output.logits, targets[drawn], output.features).backward()
    optimizer.step()
    assert all(bool(weight.isfinite().all()) for weight in model.parameters())
    assert any(bool((weight.grad != 0).any()) for weight in model.parameters() if weight.grad is not None)
