"""Stages of a training: the network as a whole, and, for some methods, its classifier once more.

Several jobs go through a stage side by side. A stage has a checkpoint and curves of its own, so that a run which is
stopped in the second goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, cast

import torch
from lightning.fabric import Fabric
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.loader import Loader
from rectifier.evaluation.rules.adjustment import prior_offsets
from rectifier.methods import build_objective, whole_from
from rectifier.networks.decoupling import RetrainedClassifier
from rectifier.training.config import Config
from rectifier.training.engine.batchnorm import with_global_batch_norm
from rectifier.training.engine.course import Course, Parts
from rectifier.training.engine.fit import fit
from rectifier.training.engine.lanes import Lane, OnlyLane
from rectifier.training.engine.predict import Validation, predict, shard
from rectifier.training.engine.profiling import describe, profile_step
from rectifier.training.engine.state import State
from rectifier.training.engine.step import is_captured, make_optimizer
from rectifier.training.finish import COLLAPSE
from rectifier.training.job import Job
from rectifier.training.run.curves import Curves
from rectifier.training.run.folder import Run


@dataclass(frozen=True)
class Stage:
    """A stretch of a run's training. The first has no name."""

    job: Job
    loader: Loader
    run: Run
    name: str = ""

    @property
    def checkpoint(self) -> str:
        return self.name or "checkpoint"


Ended = tuple[list[Stage], list[str]]
"""The stages that came to their end, and what was wrong with the others."""


def train_networks(fabric: Fabric, stages: Sequence[Stage], profile: bool = False) -> Ended:
    """Train side by side from the stages' checkpoints, or from the beginning.

    The networks end with the weights of the chosen epoch.
    """
    validation = _SharedValidation(fabric, stages[0].job)
    courses, recorders = [], []
    alike = _alike([stage.job.config for stage in stages])
    for stage, like in zip(stages, alike, strict=True):
        parts = _parts(fabric, stage, validation, profile)
        state = State.from_checkpoint(stage.run.checkpoint(stage.checkpoint))
        recorders.append(_Recorder(stage, state) if fabric.is_global_zero else _Silent())
        lane = Lane(fabric.device, stage.job.seed(fabric), like) if len(stages) > 1 else OnlyLane()
        name = str(stage.run.path)
        courses.append(Course(fabric, parts, stage.job.config, stage.job.lr, recorders[-1], state, lane, name))
    try:
        failed = fit(fabric, courses, stages[0].job.config.checkpoint_seconds)
    finally:
        for recorder in recorders:
            recorder.close()
    ended = [number for number in range(len(stages)) if number not in failed]
    for number in ended:
        stages[number].job.network.load_state_dict(courses[number].state.best_weights or {})
    return [stages[number] for number in ended], list(failed.values())


def _alike(configs: Sequence[Config]) -> list[dict[str, int]]:
    """Return of each run how many share its network, once it is compiled, and how many its loss.

    >>> runs = [{"method": "ce"}, {"method": "crl", "seed": 0}, {"method": "crl", "seed": 1}]
    >>> _alike([Config("digits").with_settings(run) for run in runs])[1]
    {'network': 3, 'loss': 2}
    """
    losses = [replace(config, seed=0) for config in configs]
    networks = [(one.network, one.network_options, one.size, one.batch_size) for one in configs]
    return [
        {"network": networks.count(network), "loss": losses.count(loss)}
        for network, loss in zip(networks, losses, strict=True)
    ]


def retrain_classifiers(fabric: Fabric, stages: Sequence[Stage]) -> Ended:
    """Train the classifiers once more on frozen features, classes drawn equally often, where the method says so."""
    sound = [stage for stage in stages if stage.job.afterwards.kind not in ("crt", "lws")]
    complaints: list[str] = []
    for kind, what in (("crt", "The classifier once more"), ("lws", "One factor for each class")):
        again = [_retraining(fabric, stage) for stage in stages if stage.job.afterwards.kind == kind]
        if not again:
            continue
        epochs = check.amount(again[0].job.config.epochs, "epoch")
        console.say(f"{what}, classes drawn equally often: {epochs}")
        trained, wrong = train_networks(fabric, again)
        for stage in trained:
            stage.job.network.put_back()  # type: ignore[operator]
        sound += [stage for stage in stages if stage.run in [each.run for each in trained]]
        complaints += wrong
    return sound, complaints


def _retraining(fabric: Fabric, stage: Stage) -> Stage:
    job, asked = stage.job, stage.job.afterwards
    # Classes come equally often, so there is no prior to take off when the epoch is chosen.
    select = "argmax" if job.config.select == "prior" else job.config.select
    config = replace(
        job.config, method="class-balanced-sampling", method_options={}, epochs=asked.epochs, select=select
    )
    network: Any = job.network
    retrained = replace(
        job,
        config=replace(config, warmup=0.0, patience=None),
        network=RetrainedClassifier(network, scales=asked.kind == "lws", seed=job.config.seed),
        objective=build_objective("ce", job.counts, job.data.space, gather=fabric.world_size > 1),
        mixing=None,
    )
    loader = stage.loader.with_sampler(retrained.sampler(fabric), job.config.seed)
    return Stage(retrained, loader, stage.run, "classifier")


class _SharedValidation:
    """Makes each network's validation, over one loader of the same images."""

    def __init__(self, fabric: Fabric, job: Job) -> None:
        self._fabric, self._batches = fabric, job.held_out(fabric, "validation")

    def of(self, job: Job) -> Validation | None:
        """Return what scores the job's network under the rule that its epoch is chosen by."""
        config, space = job.config, job.data.space
        if not job.trains_classifier:
            return None
        offsets = prior_offsets(job.counts) if config.select == "prior" else torch.zeros(space.columns)
        captured = is_captured(self._fabric, config)
        return Validation(self._fabric, job.network, self._batches, space.sizes, offsets, captured)


def _parts(fabric: Fabric, stage: Stage, validation: _SharedValidation, profile: bool) -> Parts:
    job, config, data = stage.job, stage.job.config, stage.job.data
    objective = job.objective.to(fabric.device)
    network = job.network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if fabric.world_size > 1 and config.batch_norm == "global" and not stage.name:
        network = with_global_batch_norm(network)
    if profile:
        found = profile_step(fabric, network, objective, stage.loader, config, job.lr)
        console.say(describe(found, is_captured(fabric, config)))
    wrapped, optimizer = fabric.setup(network, make_optimizer(network, config, job.lr))

    def ids(positions: Tensor) -> list[str]:
        return [data.ids[i] for i in data.indices("train")[positions].tolist()]

    return Parts(
        network,
        wrapped,
        optimizer,
        objective,
        None if job.mixing is None else job.mixing.to(fabric.device),
        stage.loader,
        validation.of(job),
        data.space.names,
        ids,
        whole_from(config.method, config.method_options),
        _rounds(fabric, stage),
    )


def _rounds(fabric: Fabric, stage: Stage) -> Callable[[int], None] | None:
    """Return what shows the sampler the present features of all training samples, where its method has rounds."""
    job, sampler = stage.job, cast(Any, stage.loader.sampler)
    due = job.rounds
    if not due:
        return None
    batches = stage.loader.in_order(shard(len(job.data.indices("train")), fabric))  # shares its pixels

    def before_epoch(epoch: int) -> None:
        if epoch in due:
            _, features = predict(fabric, job.network, batches)
            sampler.mine(cast(Tensor, features).to(fabric.device))

    return before_epoch


class _Silent:
    """A recorder for the processes that do not write."""

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        pass

    def save_epoch(self, state: State) -> None:
        pass

    def close(self) -> None:
        pass


class _Recorder:
    """Hands the training's traces to the run folder."""

    def __init__(self, stage: Stage, state: State) -> None:
        self._run, self._name = stage.run, stage.checkpoint
        self._quarter = stage.job.config.epochs / 4
        present = [int((counts > 0).sum()) for counts in stage.job.data.counts("validation")]
        self._chance = fmean(1 / classes for classes in present if classes) if any(present) else 0.0
        from_the_start = stage.job.method.rectification and not stage.job.config.method_options.get("rectify_from")
        self._told = not from_the_start
        self._curves = Curves(stage.run, stage.job.config.tensorboard, state.epochs, state.labels, stage.name)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        self._run.save_checkpoint(state, self._name)

    def save_epoch(self, state: State) -> None:
        row = state.epochs[-1]
        self._curves.add(row, state.last_labels())
        if not self._told and state.epoch >= self._quarter and row["validation"] is not None and row["rectification"]:
            if row["validation"] <= self._chance + 1e-6:
                after = check.amount(state.epoch, "epoch")
                console.say(
                    f"{self._run.path}: after {after} argmax gives every image the same answer. That is early, and may"
                    f" pass; if cross-entropy alone does better by then: {COLLAPSE[0].lower()}{COLLAPSE[1:]}"
                )
            self._told = True  # looked at once; at the end it is looked at again

    def close(self) -> None:
        self._curves.close()
