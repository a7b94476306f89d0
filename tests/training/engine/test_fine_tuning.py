"""Fine-tuning as a whole: averages, fixed statistics and judged first weights, in trainings that stop and resume."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from helpers.cases import StopsAfter
from helpers.training import RESTLESS, SHAPES, assert_same, config
from rectifier._base import console
from rectifier.data import Loader, open_data
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.objective import Objective
from rectifier.networks.registry import build_network
from rectifier.training import resume, stages, train
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.course import Course
from rectifier.training.engine.fit import fit
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.engine.lanes import Lane
from rectifier.training.engine.options import Options
from rectifier.training.engine.outputs import Validation
from rectifier.training.run.folder import Run

DIGITS = open_data("digits:ratio=10")
TUNED = {"ema": 0.9, "rate_decay": 0.5, "freeze_norm": True}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with console.quiet():
        yield


@pytest.fixture
def judged_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "Course", lambda *given, **more: Course(*given, **more | {"judge_start": True}))


class Recorder:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.saved: dict[str, Any] = {}

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        self.saved = state

    def save_epoch(self, row: dict[str, Any], labels: object) -> None:
        self.rows.append(row)


def course(options: Options, scores: list[float] | None = None, seed: int = 0, **more: Any) -> Course:
    """A training of a small network on digits; ``scores`` replace its validation."""
    fabric = Fabric(accelerator="cpu", devices=1)
    network = more.pop("network", None) or build_network("mlp", DIGITS.space, (8, 8, 1), seed=seed, dropout=0.2)
    objective = Objective(CrossEntropyLoss(), DIGITS.space)
    loader = Loader(DIGITS, "train", 64, shuffle=True, seed=seed)
    held_out = Loader(DIGITS, "validation", 256)
    given = iter(scores or [])
    validation = Validation(fabric, network, held_out, DIGITS.space.sizes, torch.zeros(10))
    score = (lambda: torch.tensor(next(given))) if scores else validation
    ids = DIGITS.space.names
    return Course(
        "it", fabric, options, network, objective, loader, ids, lambda p: [], validation=score,
        recorder=Recorder(), **more,
    )  # fmt: skip


def fitted(*courses: Course) -> Course:
    torch.manual_seed(0)
    assert fit(courses[0].fabric, courses, 1e9) == {}
    return courses[0]


def weights(of: Course) -> Tensor:
    return torch.cat([weight.flatten() for weight in of.network.state_dict().values()])


# The average


def test_the_average_is_validated_and_kept_while_training_goes_on_without_it() -> None:
    plain = fitted(course(Options(epochs=2, lr=0.05)))
    options = Options(epochs=2, lr=0.05, ema=0.9)
    found = fitted(course(options))
    assert torch.equal(weights(found), weights(plain))  # averaging changes no step
    assert found.state.best_weights is not None
    last = fitted(course(Options(epochs=2, lr=0.05, ema=0.9, select="last")))
    kept = last.state.best_weights or {}
    assert all(torch.equal(kept[name], weight) for name, weight in last.average.weights.items())
    assert not torch.equal(kept["head.classifier.weight"], last.network.state_dict()["head.classifier.weight"])
    rescored = course(options)
    rescored.network.load_state_dict(kept)
    with console.quiet():
        score = rescored.validation()  # type: ignore[misc]
    assert float(score) == last.state.epochs[-1]["validation"]


def test_trainings_side_by_side_average_as_alone() -> None:
    options = Options(epochs=2, lr=0.05, ema=0.9)
    alike = {"network": 2, "loss": 2}
    cpu = torch.device("cpu")
    alone = [fitted(course(options, seed=seed, lane=Lane(cpu, seed, alike))) for seed in (0, 1)]
    together = [course(options, seed=seed, lane=Lane(cpu, seed, alike)) for seed in (0, 1)]
    fitted(*together)
    for one, other in zip(alone, together, strict=True):
        for name, weight in one.average.weights.items():
            assert torch.equal(weight, other.average.weights[name])


# A rate per stage


class Staged(nn.Module):
    """A network with stages: what is before the head, and the head."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Any:
        return self.network(images)

    def stages(self) -> list[list[nn.Parameter]]:
        return [list(self.network.trunk.parameters()), list(self.network.head.parameters())]


def staged() -> Staged:
    return Staged(build_network("mlp", DIGITS.space, (8, 8, 1), seed=0))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_one_rate_for_all_stages_is_a_network_without(optimizer: str) -> None:
    options = Options(epochs=1, lr=0.01, weight_decay=1e-30, optimizer=optimizer)  # no decay, but groups of their own
    plain = fitted(course(options, network=staged().network))
    found = fitted(course(options, network=staged()))
    assert len(found.optimizer.param_groups) == 2
    assert torch.equal(weights(found), weights(plain))


def test_a_stage_far_from_the_head_hardly_moves() -> None:
    first = staged()
    before = [weight.detach().clone() for weight in first.parameters()]
    found = fitted(course(Options(epochs=1, lr=0.05, rate_decay=1e-6), network=first))
    moved = [float((a - b).abs().max().detach()) for a, b in zip(found.network.parameters(), before, strict=True)]
    trunk = len(first.stages()[0])
    assert max(moved[:trunk]) < 1e-5
    assert max(moved[trunk:]) > 1e-2


# Fixed statistics


@pytest.mark.parametrize("freeze_norm", [False, True])
def test_statistics_are_fixed_through_training_and_validation(tmp_path: Path, freeze_norm: bool) -> None:
    settings = config(SHAPES, **{"network": "resnet32", "network.depth": 8, "epochs": 2, "freeze_norm": freeze_norm})
    trained = train(settings, tmp_path / "run").weights()
    means = [weight for name, weight in trained.items() if name.endswith("running_mean")]
    assert means
    assert all(bool((mean == 0).all()) for mean in means) == freeze_norm
    scales = [weight for name, weight in trained.items() if name.removesuffix("weight") + "running_mean" in trained]
    assert all(bool((scale != 1).any()) for scale in scales)  # they train all the same


def test_a_frozen_trunk_does_not_drift() -> None:
    network: Any = build_network("resnet32", DIGITS.space, (8, 8, 1), seed=0, depth=8)
    network.trunk.requires_grad_(False)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    fitted(course(Options(epochs=1, lr=0.1), network=network))
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith("head.") for name in changed)


# First weights that are judged


def test_training_is_never_worse_than_its_start() -> None:
    start = build_network("mlp", DIGITS.space, (8, 8, 1), seed=3).state_dict()
    made = course(Options(epochs=3, lr=0.05, patience=2), [0.9, 0.5, 0.6, 0.7], seed=3, judge_start=True)
    found = fitted(made)
    assert (found.state.best, found.state.best_epoch, found.state.epoch) == (pytest.approx(0.9), 0, 2)  # patience
    kept = found.state.best_weights or {}
    assert all(torch.equal(kept[name], weight) for name, weight in start.items())
    first, *later = found.recorder.rows
    assert first.keys() == later[0].keys()
    assert {name for name, value in first.items() if value is not None} == {"epoch", "step", "validation"}
    assert [(row["epoch"], row["validation"]) for row in found.recorder.rows] == [
        (0, pytest.approx(0.9)),
        (1, pytest.approx(0.5)),
        (2, pytest.approx(0.6)),
    ]
    assert found.state.epochs == found.recorder.rows


def test_a_better_epoch_replaces_the_start() -> None:
    found = fitted(course(Options(epochs=3, lr=0.05), [0.4, 0.3, 0.6, 0.5], judge_start=True))
    assert found.state.best_epoch == 2


def test_the_last_epoch_is_kept_on_request() -> None:
    found = fitted(course(Options(epochs=2, lr=0.05, select="last"), [0.9, 0.3, 0.2], judge_start=True))
    assert found.state.best_epoch == 2


def test_judging_the_start_changes_no_step() -> None:
    options = Options(epochs=2, lr=0.05, ema=0.9)
    assert torch.equal(weights(fitted(course(options, judge_start=True))), weights(fitted(course(options))))


def test_without_validation_there_is_nothing_to_judge() -> None:
    made = course(Options(epochs=1), judge_start=True)
    made.validation = None
    found = fitted(made)
    assert found.state.best_epoch == 1
    assert [row["epoch"] for row in found.state.epochs] == [1]


# Stopping


@pytest.mark.usefixtures("judged_start")
def test_a_tuned_run_stopped_after_any_step_ends_as_one_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(SHAPES, **RESTLESS | TUNED | {"checkpoint_seconds": 1e9, "epochs": 2})
    unbroken = train(settings, tmp_path / "unbroken")
    for at in range(1, 5):
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", at)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped):
                train(settings, tmp_path / f"after{at}")
        assert_same(resume(tmp_path / f"after{at}"), unbroken)
    rows = history(unbroken)
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert rows[0]["loss"] == rows[0]["lr"] == ""
    assert math.isfinite(float(rows[0]["validation"]))


def history(run: Run) -> list[dict[str, str]]:
    with (run.path / "history.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_checkpoint_from_before_averages_and_groups_still_loads(tmp_path: Path) -> None:
    options = Options(epochs=2, lr=0.05)
    whole = fitted(course(options))
    first = course(options)
    torch.manual_seed(0)
    first.start()
    while not first.is_epoch_over:
        first.advance()
    first.save()
    old = first.recorder.saved
    del old["average"]
    for group in old["optimizer"]["param_groups"]:
        del group["scale"]
    torch.save(old, tmp_path / "old.pt")
    checkpoint = torch.load(tmp_path / "old.pt", weights_only=True)
    assert torch.equal(weights(fitted(course(options, checkpoint=checkpoint))), weights(whole))
