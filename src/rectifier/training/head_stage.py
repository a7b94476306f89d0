"""The heads of pretrained networks: on cached features, those of all jobs side by side, and after fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.features import CachedFeatures
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.evaluation.rules.prior import prior_offsets
from rectifier.training.engine.interrupt import Interrupt, Stopped
from rectifier.training.engine.modes import evaluating
from rectifier.training.heads import FeatureTable, HeadSpec, TrainedHead, merged, train_heads
from rectifier.training.heads.noise import residuals
from rectifier.training.job import Job
from rectifier.training.opening import features_of
from rectifier.training.recipe import head_epochs
from rectifier.training.run.curves import Curves
from rectifier.training.tuned import TunedNetwork, features_above, head_from, head_spec

_NOISE_ROWS = 20_000
"""Most rows of noise: 100 MB of 1,280 features."""

_ROUNDING = 1e-4
"""Validation scores that differ by less are equal: engines and precisions round differently."""

_SEEDS = 1000
"""Seeds of the heads of one run: its own times this number, and those that follow."""


def train_first_heads(fabric: Fabric, jobs: Sequence[Job]) -> None:
    """Train the heads of all jobs in one batched computation, and put their means into the jobs' networks.

    The curves of a job are the means over its heads.
    """
    table, held_out = (_table(fabric, jobs[0], part) for part in ("train", "validation"))
    choose = ["last" if job.config.select == "last" else "best" for job in jobs]
    for job, found in zip(jobs, _heads_of(jobs, table, held_out, choose), strict=True):
        _put(job, found.mean.weights)
        if fabric.is_global_zero:
            _record(job, found.heads)
            console.say(_kept(job, found))


def train_new_heads(fabric: Fabric, job: Job, started_at: float, ended_at: float) -> bool:
    """Retrain the heads of a tuned network on the features that it gives now.

    They replace its head if they score at least as well on validation as the network before fine-tuning
    (``started_at``) and after its last epoch (``ended_at``). Say whether they do.

    A head that is trained with the network fits features that the network has memorised. New heads do not. They are
    compared with the last epoch, which has the same features. Neither is chosen by its score, as the best epoch is.
    """
    table, held_out = (_table(fabric, job, part, tuned=True) for part in ("train", "validation"))
    (found,) = _heads_of([job], table, held_out, ["last"])
    kept = found.score >= max(started_at, ended_at) - _ROUNDING
    if kept:
        _put(job, found.mean.weights)
    if fabric.is_global_zero:
        number = check.amount(len(found.heads), "head")
        others = f"{100 * started_at:.1f} % before fine-tuning, {100 * ended_at:.1f} % after"
        said = f"{number} retrained on tuned features, {100 * found.score:.1f} % on validation, {others}."
        console.say(f"Kept: {said}" if kept else f"Not kept: {said}")
    return kept


def add_noise(fabric: Fabric, jobs: Sequence[Job]) -> None:
    """Give networks that are about to be tuned the covariance noise of the features that they start from."""
    if not any(job.config.noise for job in jobs):
        return
    table = _table(fabric, jobs[0], "train")
    left = residuals(table.first_view, table.targets, table.space.sizes)
    left = left[:: -(-len(left) // _NOISE_ROWS)]
    for job in jobs:
        network = cast(TunedNetwork, job.network)
        network.noise = job.config.noise * left if job.config.noise else None


@contextmanager
def half_the_cores() -> Iterator[None]:
    """Use half of torch's threads: steps this small gain little from more, and lose much where cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class _Heads(NamedTuple):
    """The trained heads of a job, their mean, which decides, and its validation score."""

    heads: list[TrainedHead]
    mean: TrainedHead
    score: float


def _heads_of(jobs: Sequence[Job], table: FeatureTable, held_out: FeatureTable, choose: Sequence[str]) -> list[_Heads]:
    """Train the heads of some jobs on one table, all of them together. ``choose`` has the epoch that each job keeps."""
    specs = [_specs(job) for job in jobs]
    offsets = [_offsets(job) for job in jobs]
    with half_the_cores():
        trained = _train(
            table,
            held_out,
            [spec for own in specs for spec in own],
            [rule for rule, own in zip(offsets, specs, strict=True) for _ in own],
            [chosen for chosen, own in zip(choose, specs, strict=True) for _ in own],
        )
    heads = [[next(trained) for _ in own] for own in specs]
    return [_scored(own, rule, held_out) for own, rule in zip(heads, offsets, strict=True)]


def _put(job: Job, weights: Mapping[str, Tensor]) -> None:
    """Give a job's network the head with these weights. The mean of several heads is wider than one."""
    made: Any = job.network
    made.head = head_from({name: weight.cpu() for name, weight in weights.items()}, job.data.space)
    made.head.dropout.p = float(job.config.network_options.get("dropout", 0.0))


def _specs(job: Job) -> list[HeadSpec]:
    """Return the heads of a job, which differ in their seeds."""
    config = job.config
    epochs = head_epochs(config, len(job.data.indices("train")))
    return [head_spec(config, config.seed * _SEEDS + head, epochs) for head in range(config.heads or 1)]


def _scored(heads: list[TrainedHead], rule: Tensor, held_out: FeatureTable) -> _Heads:
    mean = merged(heads)
    logits = mean.logits(held_out.first_view) + rule.to(held_out.x.device)
    return _Heads(heads, mean, float(class_balanced_accuracy(logits, held_out.targets, held_out.space)))


def _kept(job: Job, found: _Heads) -> str:
    """Say which epoch is kept, and why."""
    rule, number, total = job.config.select, check.amount(len(found.heads), "head"), found.heads[0].spec.epochs
    kept = [head.epoch for head in found.heads]
    epochs = f"epoch {kept[0]}" if len({*kept}) == 1 else f"epochs {min(kept)} to {max(kept)}"
    corrected = f" under {rule}" if rule != "last" else ""
    what = "Kept" if job.config.tune == "head" else "Fine-tuning starts from"
    return f"{what}: {number} after {epochs} of {total}, {100 * found.score:.1f} % on validation{corrected}."


def _train(
    table: FeatureTable, held_out: FeatureTable, specs: list[Any], offsets: list[Tensor], choose: list[str]
) -> Any:
    with Interrupt() as interrupt, console.progress() as display:
        task = display.add_task(f"training {check.amount(len(specs), 'head')}", total=None)

        def progress(done: int, total: int) -> None:
            display.update(task, completed=done, total=total)
            if interrupt.signal is not None:
                raise Stopped(interrupt.signal, "the training of heads")

        more: dict[str, Any] = {"validation": held_out, "offsets": offsets, "choose": choose, "progress": progress}
        return iter(train_heads(table, specs, **more))


def _table(fabric: Fabric, job: Job, part: str, tuned: bool = False) -> FeatureTable:
    """Return the features that a job's network gives a part: as they are cached, from cached maps, or from images.

    Before fine-tuning those of all images are cached.
    """
    data, network = job.data, cast(TunedNetwork, job.network).to(fabric.device)
    if tuned and not job.reads_features:
        x = _from_images(fabric, job, network, part)
        return FeatureTable(x, data.targets[data.indices(part)].to(x.device), data.space)
    if not job.reads_features:
        with console.quiet():
            data = features_of(job.config, job.opened.source, cast(Any, job.backbone))
    index = data.indices(part)
    images = cast(CachedFeatures, data.images)
    views = images.views if part == "train" else 1
    rows = index.numpy()
    x = _vectors(fabric, images, rows, 0, network, job)
    if views > 1:
        of_all = x.new_empty(views, *x.shape)
        for view in range(views):
            of_all[view] = x if view == 0 else _vectors(fabric, images, rows, view, network, job)
        x = of_all
    return FeatureTable(x, data.targets[index].to(x.device), data.space)


def _vectors(
    fabric: Fabric, images: CachedFeatures, rows: np.ndarray[Any, Any], view: int, network: TunedNetwork, job: Job
) -> Tensor:
    if len(images.shape) == 1:
        return torch.from_numpy(images.gather(rows, view)).to(fabric.device)
    parts = np.array_split(rows, max(1, len(rows) // 1024))
    given = (torch.from_numpy(images.gather(part, view)).to(fabric.device) for part in parts)
    return torch.cat([features_above(network, maps) for maps in given])


@torch.no_grad()
def _from_images(fabric: Fabric, job: Job, network: TunedNetwork, part: str) -> Tensor:
    """Return features ``(N, D)`` of images as they are; of training images ``(2, N, D)``, if training mirrors them."""
    mirrored = part == "train" and job.augment is not None and job.augment.flip
    found: list[list[Tensor]] = [[], []] if mirrored else [[]]
    with evaluating(network.trunk), fabric.autocast():
        for batch in job.in_order(fabric, part):
            for view, images in zip(found, (batch.images, batch.images.flip(-1)), strict=False):
                view.append(network.trunk(images).float())
    views = [torch.cat(view) for view in found]
    return torch.stack(views) if mirrored else views[0]


def _offsets(job: Job) -> Tensor:
    """Return what the rule under which the epoch is chosen adds to the logits."""
    corrected = job.config.select == "prior" and not job.method.balances_training
    return prior_offsets(job.counts) if corrected else torch.zeros(job.data.space.columns)


def _record(job: Job, heads: Sequence[TrainedHead]) -> None:
    curves = Curves(job.run, job.config.tensorboard, [], [], "" if job.config.tune == "head" else "head")
    for epoch in range(len(heads[0].losses)):
        loss = sum(head.losses[epoch] for head in heads) / len(heads)
        score = sum(head.scores[epoch] for head in heads) / len(heads)
        curves.save_epoch({"epoch": epoch + 1, "loss": loss, "validation": score}, [])
    curves.close()


def restore_heads(jobs: Sequence[Job]) -> None:
    """Give networks whose fine-tuning has started heads of the right shape. Their checkpoints have the weights."""
    for job in jobs:
        weights = (job.run.checkpoint(job.stage) or {})["network"]
        _put(job, {name.removeprefix("head."): w for name, w in weights.items() if name.startswith("head.")})


def has_checkpoint(job: Job) -> bool:
    """Say whether fine-tuning has started, so that its network has a trained head."""
    return job.run.checkpoint(job.stage) is not None
