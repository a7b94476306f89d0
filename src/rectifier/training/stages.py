"""The stages of a training: the whole network, and, for some methods, its classifier a second time.

Several jobs go through a stage side by side. Each stage has its own checkpoint and curves, so a run that stops in the
second stage resumes there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from statistics import fmean
from typing import Any, cast

import torch
from lightning.fabric import Fabric
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.loader import Batch
from rectifier.evaluation.rules.prior import prior_offsets
from rectifier.methods import build_objective, rounds_of
from rectifier.networks.decoupling import RetrainedClassifier
from rectifier.training.config import Config
from rectifier.training.engine.batchnorm import with_global_batch_norm
from rectifier.training.engine.course import Course
from rectifier.training.engine.fit import fit
from rectifier.training.engine.lanes import Lane
from rectifier.training.engine.outputs import Validation, predict, shard
from rectifier.training.engine.profiling import describe, profile_step
from rectifier.training.engine.state import State
from rectifier.training.engine.step_modes import is_captured
from rectifier.training.finish import COLLAPSE
from rectifier.training.head_stage import add_noise, has_checkpoint, restore_heads, train_first_heads, train_new_heads
from rectifier.training.job import Job
from rectifier.training.run.curves import Curves, Row


def train_networks(fabric: Fabric, jobs: Sequence[Job], profile: bool = False) -> tuple[list[Job], list[str]]:
    """Train side by side, from the jobs' checkpoints or from the start.

    The networks end with the weights of the chosen epoch. Return the jobs that finished, and the errors of the others.
    """
    has_heads = jobs[0].backbone is not None and not jobs[0].stage
    if has_heads and all(map(has_checkpoint, jobs)):
        restore_heads(jobs)
    elif has_heads:
        train_first_heads(fabric, jobs)
    if has_heads and jobs[0].config.tune == "head":
        return list(jobs), []
    if has_heads:
        add_noise(fabric, jobs)
    held_out = jobs[0].held_out(fabric, "validation")
    courses = []
    with ExitStack() as recorders:
        for job, alike in zip(jobs, _alike([job.config for job in jobs]), strict=True):
            course = make_course(fabric, job, held_out, profile)
            if len(jobs) > 1:
                course.lane = Lane(fabric.device, job.seed(fabric), alike)
            if fabric.is_global_zero:
                course.recorder = recorders.enter_context(closing(_Recorder(job, course.state)))
            courses.append(course)
        failed = fit(fabric, courses, jobs[0].config.checkpoint_seconds)
    finished = {job: course for job, course in zip(jobs, courses, strict=True) if course not in failed}
    for job, course in finished.items():
        if has_heads and job.config.refit and _has_new_heads(fabric, job, course):
            continue
        job.network.load_state_dict(course.state.best_weights or {})
        if course.validation is not None and course.state.best is not None:
            console.say(_kept(job, course.state))
    return list(finished), list(failed.values())


def _has_new_heads(fabric: Fabric, job: Job, course: Course) -> bool:
    """Retrain the heads on the features of the last epoch. If they stay, the network has its last weights."""
    judged = [row["validation"] for row in course.state.epochs if row["validation"] is not None]
    if course.validation is None or not judged:  # the logits mean nothing before training is over
        return False
    with course.average.in_place():
        kept = train_new_heads(fabric, job, judged[0], judged[-1])
        weights = {name: weight.clone() for name, weight in job.network.state_dict().items()}
    if kept:
        job.network.load_state_dict(weights)
    return kept


def _kept(job: Job, state: State) -> str:
    """Say which epoch is kept, and why."""
    rule, epochs = job.config.select, job.options.epochs
    if rule == "last":
        return f"Kept: the last of {check.amount(epochs, 'epoch')}."
    number = f"epoch {state.best_epoch} of {epochs}" if state.best_epoch else "the head that training started from"
    return f"Kept: {number}, the best on validation under {rule}: {100 * (state.best or 0.0):.1f} %."


def _alike(configs: Sequence[Config]) -> list[dict[str, int]]:
    """Count for each run how many runs share its compiled network, and how many its compiled loss.

    >>> runs = [{"method": "ce"}, {"method": "crl", "seed": 0}, {"method": "crl", "seed": 1}]
    >>> _alike([Config("digits").with_settings(run) for run in runs])[1]
    {'network': 3, 'loss': 2}
    """
    losses = [{**config.as_dict(), "seed": 0} for config in configs]
    networks = [(one.network, one.network_options, one.size, one.batch_size) for one in configs]
    both = zip(networks, losses, strict=True)
    return [{"network": networks.count(network), "loss": losses.count(loss)} for network, loss in both]


def retrain_classifiers(fabric: Fabric, jobs: Sequence[Job]) -> tuple[list[Job], list[str]]:
    """Train the classifiers a second time, on frozen features and balanced classes, where the method says so."""
    finished = [job for job in jobs if job.afterwards.kind not in ("crt", "lws")]
    complaints: list[str] = []
    for kind, what in (("crt", "Retraining the classifier"), ("lws", "Training one factor per class")):
        second = {_second_stage(fabric, job): job for job in jobs if job.afterwards.kind == kind}
        if not second:
            continue
        epochs = check.amount(next(iter(second)).options.epochs, "epoch")
        console.say(f"{what} on balanced classes: {epochs}")
        trained, wrong = train_networks(fabric, list(second))
        for job in trained:
            job.network.put_back()  # type: ignore[operator]
            finished.append(second[job])
        complaints += wrong
    return finished, complaints


def _second_stage(fabric: Fabric, job: Job) -> Job:
    """Return the job of the second training of a job's classifier."""
    asked, config, network = job.afterwards, job.config, cast(Any, job.network)
    changed = replace(config, epochs=asked.epochs, warmup=0.0, patience=None)
    changed = replace(changed, method="class-balanced-sampling", method_options={})
    second = replace(
        job,
        config=changed,
        network=RetrainedClassifier(network, scales=asked.kind == "lws", seed=config.seed),
        objective=build_objective("ce", job.counts, job.data.space, gather=fabric.world_size > 1),
        mixing=None,
        stage="classifier",
    )
    sampler = second.sampler(fabric.world_size, fabric.global_rank)
    return replace(second, loader=job.loader.with_sampler(sampler, config.seed))


def make_course(fabric: Fabric, job: Job, held_out: Iterable[Batch], profile: bool = False) -> Course:
    """Return the training of a job, from its checkpoint or from the start. ``held_out`` are validation batches."""
    data, options = job.data, job.options
    objective = job.objective.to(fabric.device)
    network = job.network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if fabric.world_size > 1 and job.config.batch_norm == "global" and not job.stage:
        network = with_global_batch_norm(network)
    if profile:
        found = profile_step(fabric, network, objective, job.loader, options)
        console.say(describe(found, is_captured(fabric, options)))

    validation = None
    if job.method.decision is None or job.method.objective is None:  # else the logits mean nothing during training
        # The epoch is chosen under the rule that will be used, which never corrects for the prior a second time.
        corrected = job.config.select == "prior" and not job.method.balances_training
        offsets = prior_offsets(job.counts) if corrected else torch.zeros(data.space.columns)
        captured = is_captured(fabric, options)
        validation = Validation(fabric, job.network, held_out, data.space.sizes, offsets, captured)
    return Course(
        str(job.spec.folder),
        fabric,
        options,
        network,
        objective,
        job.loader,
        data.space.names,
        lambda positions: [data.ids[i] for i in data.indices("train")[positions].tolist()],
        job.run.checkpoint(job.stage),
        mixing=None if job.mixing is None else job.mixing.to(fabric.device),
        validation=validation,
        before_epoch=_rounds(fabric, job),
        judge_start=job.backbone is not None and not job.stage,
    )


def _rounds(fabric: Fabric, job: Job) -> Callable[[int], None] | None:
    """Return what shows the sampler the features of all training samples, where its method works in rounds."""
    due = rounds_of(job.config.method, job.options.epochs, job.config.method_options)
    if not due:
        return None
    sampler: Any = job.loader.sampler
    batches = job.loader.in_order(shard(len(job.data.indices("train")), fabric))  # shares the pixels

    def before_epoch(epoch: int) -> None:
        if epoch in due:
            _, features = predict(fabric, job.network, batches)
            sampler.mine(cast(Tensor, features).to(fabric.device))

    return before_epoch


class _Recorder(Curves):
    """Writes checkpoints and curves into the run folder, and warns early if the predictions collapse."""

    def __init__(self, job: Job, state: State) -> None:
        super().__init__(job.run, job.config.tensorboard, state.epochs, state.labels, job.stage)
        present = [int((counts > 0).sum()) for counts in job.data.counts("validation")]
        self._chance = fmean(1 / classes for classes in present if classes)
        rectified = job.method.rectification and not job.config.method_options.get("rectify_from")
        self._check_from = job.options.epochs / 4 if rectified else math.inf

    def save_epoch(self, row: Row, labels: Sequence[Row]) -> None:
        super().save_epoch(row, labels)
        if row["epoch"] >= self._check_from and row["validation"] is not None and row["rectification"]:
            self._check_from = math.inf  # once; the end of training checks again
            if row["validation"] <= self._chance + 1e-6:
                console.say(
                    f"{self._run.path}: All images got the same prediction after epoch {row['epoch']}."
                    f" Often harmless this early. If it persists, {COLLAPSE}"
                )
