"""Runs trained side by side are the runs that they are alone."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.cases import StopsAfter
from helpers.training import RESTLESS, SHAPES, assert_same, config, spoil_step
from rectifier._base import console
from rectifier.networks.decoupling import RetrainedClassifier
from rectifier.training import BusyError, RunSpec, job, many, opening, stages, start, train, train_together
from rectifier.training import finish as outcome
from rectifier.training.config import Config
from rectifier.training.engine import course
from rectifier.training.engine import fit as fitting
from rectifier.training.engine.interrupt import Stopped
from rectifier.training.run import results
from rectifier.training.run.folder import Run

SEEDS = (0, 3, 7)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with console.quiet():
        yield


def wanted(folder: Path, seeds: tuple[int, ...] = SEEDS, **settings: Any) -> list[RunSpec]:
    return [RunSpec(f"seed {s}", config(SHAPES, seed=s, **settings), folder / str(s)) for s in seeds]


def alone(folder: Path, **settings: Any) -> list[Run]:
    return [train(each.config, each.folder) for each in wanted(folder, **settings)]


def test_side_by_side_is_one_after_another(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    together = train_together(wanted(tmp_path / "together", **RESTLESS))
    assert torch.equal(torch.get_rng_state(), before)
    for run, other in zip(together, alone(tmp_path / "alone", **RESTLESS), strict=True):
        assert_same(run, other)
        assert run.environment["sessions"][-1]["together"] == 3
        assert other.environment["sessions"][-1]["together"] == 1
    weights = [run.weights()["head.classifier.weight"] for run in together]
    assert not torch.equal(weights[0], weights[1])


def test_compiling_pays_by_the_steps_of_all_that_are_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[dict[str, int]] = []
    fastest = course.fastest

    def counting(*given: Any) -> Any:
        counted.append(given[-1])
        return fastest(*given)

    monkeypatch.setattr(course, "fastest", counting)
    train_together([*wanted(tmp_path / "together"), *wanted(tmp_path / "others", SEEDS[:1], eta=0.7)])
    train_together(wanted(tmp_path / "alone", SEEDS[:1]))
    *beside, other, one = counted
    steps = one["network"]
    assert one == {"network": steps, "loss": steps}
    runs = len(SEEDS) + 1  # of one network, the last of them with a loss of its own
    assert beside == [{"network": runs * steps, "loss": len(SEEDS) * steps}] * len(SEEDS)
    assert other == {"network": runs * steps, "loss": steps}


def test_runs_stopped_side_by_side_resume_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**RESTLESS, "checkpoint_seconds": 1e9}
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 3)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            train_together(wanted(tmp_path / "together", **settings))
    steps = [Run(each.folder).checkpoint()["step"] for each in wanted(tmp_path / "together")]  # type: ignore[index]
    assert len(set(steps)) == 1
    assert steps[0] > 0
    together = train_together(wanted(tmp_path / "together", **settings))
    for run, other in zip(together, alone(tmp_path / "alone", **settings), strict=True):
        assert_same(run, other)


def test_runs_at_different_steps_resume_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early = wanted(tmp_path / "together", checkpoint_seconds=1e9)[1]
    with monkeypatch.context() as patch:
        patch.setattr(StopsAfter, "steps", 4)
        patch.setattr(fitting, "Interrupt", StopsAfter)
        with pytest.raises(Stopped):
            train(early.config, early.folder)
    together = train_together(wanted(tmp_path / "together", checkpoint_seconds=1e9))
    for run, other in zip(together, alone(tmp_path / "alone"), strict=True):
        assert_same(run, other)


def test_runs_at_different_steps_of_their_second_stage_resume_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"method": "crt", "epochs": 1, "retrain_epochs": 3, "checkpoint_seconds": 1e9}
    asked = wanted(tmp_path / "together", **settings)
    for each, steps in zip(asked[:2], (6, 8), strict=True):
        with monkeypatch.context() as patch:
            patch.setattr(StopsAfter, "steps", steps)
            patch.setattr(fitting, "Interrupt", StopsAfter)
            with pytest.raises(Stopped):
                train(each.config, each.folder)
    second = [Run(each.folder).checkpoint("classifier") for each in asked[:2]]
    assert [saved and saved["step"] for saved in second] == [6, 8]
    for run, other in zip(train_together(asked), alone(tmp_path / "alone", **settings), strict=True):
        assert_same(run, other)


def test_one_that_fails_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = wanted(tmp_path / "together", checkpoint_seconds=1e9)
    with monkeypatch.context() as patch:
        spoil_step(patch, 14, images=math.nan)  # the second of three, in its fifth step
        with pytest.raises(FloatingPointError, match=rf"^{asked[1].folder}: .*batch 2 of epoch 2 \(images train/\d+"):
            train_together(asked)
    assert [Run(each.folder).is_finished for each in asked] == [True, False, True]
    checkpoint = Run(asked[1].folder).checkpoint()
    assert checkpoint is not None
    assert checkpoint["step"] == 0  # the last good one
    others = alone(tmp_path / "alone")
    for each, other in list(zip(asked, others, strict=True))[::2]:
        assert_same(Run(each.folder), other)
    for run, other in zip(train_together(asked), others, strict=True):
        assert_same(run, other)


def test_a_classifier_that_fails_in_its_second_stage_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [RunSpec(m, config(SHAPES, method=m, epochs=1), tmp_path / m) for m in ("ce", "crt", "crl")]
    forward = RetrainedClassifier.forward

    def broken(network: RetrainedClassifier, images: torch.Tensor) -> Any:
        return forward(network, images * float("nan"))

    monkeypatch.setattr(RetrainedClassifier, "forward", broken)
    with pytest.raises(FloatingPointError, match=rf"^{asked[1].folder}: .*The loss is not finite"):
        train_together(asked)
    assert [Run(each.folder).is_finished for each in asked] == [True, False, True]


def test_one_that_diverges_keeps_no_later_run_of_a_comparison_from_its_own(tmp_path: Path) -> None:
    planned = many.plan(config(SHAPES, epochs=1), ["ce", "crl"], 1, tmp_path)
    broken = replace(planned[0], config=replace(planned[0].config, lr=1e30))
    with pytest.raises(FloatingPointError, match=f"^{broken.folder}: "):
        many.train_missing([broken, planned[1]])
    assert [Run(run.folder).is_finished for run in planned] == [False, True]


def test_folders_must_be_free_or_hold_the_run(tmp_path: Path) -> None:
    first, second, third = wanted(tmp_path)
    with pytest.raises(ValueError, match="at least one, but got none"):
        train_together([])
    with pytest.raises(ValueError, match=r"is the folder of two runs\. Each run needs its own"):
        train_together([first, replace(second, folder=first.folder)])
    train(first.config, first.folder)
    before = {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"holds another run \(seed"):
        train_together([replace(second, folder=first.folder), third])
    (third.folder).mkdir(parents=True)
    (third.folder / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        train_together([second, third])
    assert {path: path.read_bytes() for path in first.folder.rglob("*") if path.is_file()} == before
    assert not second.folder.exists()


def test_a_finished_run_is_found_by_what_was_asked_and_by_what_was_chosen(tmp_path: Path) -> None:
    asked = RunSpec("it", config(SHAPES, epochs=1), tmp_path / "run")
    [run] = many.train_missing([asked])
    assert run.config != asked.config  # the recipe chose what was open
    finished = (run.path / "metrics.json").stat()
    for same in (asked.config, run.config, replace(asked.config, checkpoint_seconds=1.0)):
        many.train_missing([replace(asked, config=same)])
    assert (run.path / "metrics.json").stat() == finished
    for other in ({"lr": 0.5}, {"eta": 0.5}, {"weight_decay": 0.1}):
        with pytest.raises(ValueError, match="holds another run"):
            many.train_missing([replace(asked, config=asked.config.with_settings(other))])


@pytest.mark.parametrize("given", [{"lr": 0.5}, {"eta": 0.5}, {"weight_decay": 0.1}])
def test_a_run_with_a_setting_is_not_one_without(tmp_path: Path, given: dict[str, Any]) -> None:
    asked = RunSpec("it", config(SHAPES, epochs=1, **given), tmp_path / "run")
    many.train_missing([asked])
    with pytest.raises(ValueError, match="holds another run"):
        many.train_missing([replace(asked, config=config(SHAPES, epochs=1))])


def test_runs_too_large_for_the_device_are_trained_half_after_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, train_networks, room = stages.make_course, start.train_networks, 0
    groups: list[int] = []

    def small(fabric: Any, group: Any, profile: bool = False) -> Any:
        nonlocal room
        room = 2
        groups.append(len(group))
        return train_networks(fabric, group, profile)

    def crowded(*arguments: Any) -> Any:
        nonlocal room
        room -= 1
        if room < 0:
            raise torch.OutOfMemoryError
        return prepare(*arguments)

    monkeypatch.setattr(start, "train_networks", small)
    monkeypatch.setattr(stages, "make_course", crowded)
    seeds = (*SEEDS, 8, 9)
    together = train_together(wanted(tmp_path / "together", seeds))
    assert groups == [5, 2, 3, 1, 2]
    for run, other in zip(together, alone(tmp_path / "alone"), strict=False):
        assert_same(run, other)
    assert all(run.is_finished for run in together)


def test_one_run_too_large_for_the_device_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(stages, "make_course", full)
    with pytest.raises(torch.OutOfMemoryError):
        train_together(wanted(tmp_path))


def test_scored_in_other_processes_is_scored_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = train_together(wanted(tmp_path / "here", SEEDS[:2], epochs=1))
    monkeypatch.setattr(outcome, "SCORED_APART", 0)
    monkeypatch.setattr(outcome, "available_cores", lambda: 2)  # with one, there is but this process
    monkeypatch.setattr(results, "fit_rules", None)  # of this process
    apart = train_together(wanted(tmp_path / "apart", SEEDS[:2], epochs=1))
    for run, other in zip(here, apart, strict=True):
        assert run.metrics == other.metrics
        assert run.rules == other.rules


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 7}, "must have the same batch_size"),
        ({"network": "deepid2"}, "must have the same network"),
        ({"resplit": True}, "must have the same resplit"),
        ({"method": "hog-knn"}, "hog-knn trains no network"),
    ],
)
def test_runs_that_cannot_go_together(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    asked = [*wanted(tmp_path, (0, 1)), *wanted(tmp_path, (2,), **settings)]
    with pytest.raises(ValueError, match=message):
        train_together(asked)
    if "resplit" in settings:
        with pytest.raises(ValueError, match="each seed has a split of its own"):
            train_together(wanted(tmp_path, (0, 1), **settings))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, None),
        ({"accelerator": "cpu"}, "only on a GPU"),
        ({"devices": 2}, "several devices"),
        ({"step": "eager"}, "not captured"),
        ({"precision": "16"}, "not captured"),
        ({"resplit": True}, "split of its own"),
        ({"method": "hog-knn"}, "trains no network"),
    ],
)
def test_why_runs_are_not_trained_side_by_side(
    settings: dict[str, Any], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "accelerator_of", lambda asked: "cpu" if asked.accelerator == "cpu" else "cuda")
    found = many.why_not_together(Config("digits", network="resnet32").with_settings(settings))
    assert found is None if reason is None else reason in str(found)


def test_runs_side_by_side_may_differ_in_all_but_their_data(tmp_path: Path) -> None:
    own: list[dict[str, Any]] = [
        {"method": "ce", "epochs": 2},
        {"method": "crl", "eta": 0.5, "lr": 0.003, "schedule": "step", "patience": 1, "epochs": 6},
        {"method": "over-sampling", "network.dropout": 0.2},  # whose epochs are longer
        {"method": "down-sampling", "accumulate": 2, "warmup": 1, "clip": 0.5},
        {"method": "crt", "retrain_epochs": 1, "epochs": 1},
        {"method": "lws", "retrain_epochs": 2, "epochs": 1},
        {"method": "mixup", "validate_every": 2, "select": "last", "optimizer": "adamw", "lr": 0.001},
    ]
    asked = [RunSpec(str(i), config(SHAPES, seed=i, **own[i]), tmp_path / "together" / str(i)) for i in range(len(own))]
    for run, each in zip(train_together(asked), asked, strict=True):
        assert_same(run, train(each.config, tmp_path / "alone" / each.folder.name))


def test_compare_puts_runs_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "accelerator_of", lambda _: "cuda")
    planned = many.plan(config(SHAPES, epochs=1), ["ce", "crl:eta=0.5", "hog-knn"], 3, tmp_path / "a")
    seeds = [[run.config.seed for run in group] for group in many._side_by_side(planned, 4)]
    assert seeds == [[0, 1, 2], [0, 1, 2], [0], [1], [2]]
    groups = many._side_by_side(planned, None)
    assert [len(group) for group in groups] == [6, 1, 1, 1]
    assert many.group_name(groups[0]) == "ce, seeds 0 1 2; crl:eta=0.5, seeds 0 1 2"
    planned = planned[:6]
    together = many.train_missing(planned)
    monkeypatch.undo()
    one_by_one = many.train_missing(many.plan(config(SHAPES, epochs=1), ["ce", "crl:eta=0.5"], 3, tmp_path / "b"))
    for run, other in zip(together, one_by_one, strict=True):
        assert_same(run, other)
        assert (run.environment["sessions"][0]["together"], other.environment["sessions"][0]["together"]) == (6, 1)
    with pytest.raises(ValueError, match="together to be a positive integer"):
        many.train_missing(many.plan(config(SHAPES), ["ce"], 2, tmp_path / "c"), 0)


class Counts:
    """How often data is opened and objectives are built."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data: list[str] = []
        self.objectives: list[str] = []
        open_data, build_objective = opening.open_data, job.build_objective

        def opened(name: str, **options: Any) -> Any:
            self.data.append(name)
            return open_data(name, **options)

        def built(method: str, *arguments: Any, **options: Any) -> Any:
            self.objectives.append(method)
            return build_objective(method, *arguments, **options)

        monkeypatch.setattr(opening, "open_data", opened)
        monkeypatch.setattr(job, "build_objective", built)


def test_twelve_runs_open_their_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counts(monkeypatch)
    planned = many.plan(config("digits", epochs=1), ["ce", "crl", "focal"], 4, tmp_path)
    many.train_missing(planned)
    assert count.data == ["digits"]
    assert sorted(count.objectives) == [name for name in ("ce", "crl", "focal") for _ in range(4)]


def test_each_data_set_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counts(monkeypatch)
    planned = [
        run
        for name, data in (("a", "digits"), ("b", SHAPES))
        for run in many.plan(config(data, epochs=1), ["ce", "crl"], 2, tmp_path / name)
    ]
    mixed = [planned[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]
    many.train_missing(mixed)
    assert sorted(count.data) == sorted(["digits", SHAPES])


def test_where_each_seed_has_a_split_each_split_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counts(monkeypatch)
    runs = many.train_missing(many.plan(config(SHAPES, epochs=1), ["ce", "crl"], 3, tmp_path, resplit=True))
    assert len(count.data) == 3
    assert len({run.data["fingerprint"] for run in runs}) == 3


def test_a_busy_run_names_its_folder_in_every_process() -> None:
    error = pickle.loads(pickle.dumps(BusyError(Path("runs/a"))))
    assert (error.folder, str(error)) == (Path("runs/a"), "runs/a is being trained by another process.")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["32", "64"])
def test_lanes_of_a_gpu_are_runs_alone(tmp_path: Path, precision: str) -> None:
    settings = {
        "network": "resnet32", "network.depth": 8, "network.dropout": 0.3, "padding": 1, "flip": True,
        "eta": 0.5, "accelerator": "cuda", "precision": precision, "lr": 0.01, "epochs": 4, "select": "last",
    }  # fmt: skip
    with torch.backends.cudnn.flags(deterministic=True, benchmark=False):
        together = train_together(wanted(tmp_path / "together", **settings))
        runs = alone(tmp_path / "alone", **settings)
    within = 1e-4 if precision == "32" else 1e-9
    for run, other in zip(together, runs, strict=True):
        weights = other.weights()
        for name, weight in run.weights().items():
            torch.testing.assert_close(weight, weights[name], atol=within, rtol=within)
    first, second = (run.weights()["head.classifier.weight"] for run in together[:2])
    assert not torch.allclose(first, second, atol=0.01)
