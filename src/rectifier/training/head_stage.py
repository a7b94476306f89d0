"""The first stage of a pretrained network: heads on cached features, those of all jobs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.features import CachedFeatures
from rectifier.evaluation.rules.prior import prior_offsets
from rectifier.training.engine.interrupt import Interrupt, Stopped
from rectifier.training.heads import FeatureTable, TrainedHead, merged, train_heads
from rectifier.training.job import Job
from rectifier.training.opening import features_of
from rectifier.training.run.curves import Curves
from rectifier.training.tuned import TunedNetwork, features_above, head_from, head_spec

_SEEDS = 1000
"""Seeds of the heads of one run: its own times this number, and those that follow."""


def train_first_heads(fabric: Fabric, jobs: Sequence[Job]) -> None:
    """Train the heads of all jobs in one batched computation, and put their means into the jobs' networks.

    The curves of a job are the means over its heads.
    """
    network = cast(TunedNetwork, jobs[0].network).to(fabric.device)
    table, held_out = (_table(fabric, jobs[0], network, part) for part in ("train", "validation"))
    own = [[head_spec(job.config, job.config.seed * _SEEDS + h) for h in range(job.config.heads or 1)] for job in jobs]
    offsets = [_offsets(job) for job, specs in zip(jobs, own, strict=True) for _ in specs]
    choose = "last" if jobs[0].config.select == "last" else "best"
    trained = _train(table, held_out, [spec for specs in own for spec in specs], offsets, choose)
    for job, specs in zip(jobs, own, strict=True):
        heads = [next(trained) for _ in specs]
        mean = merged(heads)
        made: Any = job.network
        made.head = head_from({name: weight.cpu() for name, weight in mean.weights.items()}, job.data.space)
        if fabric.is_global_zero:
            _record(job, heads)
            _say_epoch(job, heads)


def _train(table: FeatureTable, held_out: FeatureTable, specs: list[Any], offsets: list[Tensor], choose: str) -> Any:
    with Interrupt() as interrupt, console.progress() as display:
        task = display.add_task(f"training {check.amount(len(specs), 'head')}", total=None)

        def progress(done: int, total: int) -> None:
            display.update(task, completed=done, total=total)
            if interrupt.signal is not None:
                raise Stopped(interrupt.signal, "the training of heads")

        more: dict[str, Any] = {"validation": held_out, "offsets": offsets, "choose": choose, "progress": progress}
        return iter(train_heads(table, specs, **more))


def _table(fabric: Fabric, job: Job, network: TunedNetwork, part: str) -> FeatureTable:
    """Return the features of a part: as they are cached, or from the cached maps, or from images."""
    data = job.data
    if not job.reads_features:
        with console.quiet():
            data = features_of(job.config, job.opened.source, cast(Any, job.backbone))
    index = data.indices(part)
    images = cast(CachedFeatures, data.images)
    views = images.views if part == "train" else 1
    rows = index.numpy()
    found = [_vectors(fabric, images, rows, view, network, job) for view in range(views)]
    x = found[0] if views == 1 else torch.stack(found)
    return FeatureTable(x, data.targets[index].to(x.device), data.space)


def _vectors(
    fabric: Fabric, images: CachedFeatures, rows: np.ndarray[Any, Any], view: int, network: TunedNetwork, job: Job
) -> Tensor:
    if len(images.shape) == 1:
        return torch.from_numpy(images.gather(rows, view)).to(fabric.device)
    parts = np.array_split(rows, max(1, len(rows) // 1024))
    given = (torch.from_numpy(images.gather(part, view)).to(fabric.device) for part in parts)
    return torch.cat([features_above(network, maps) for maps in given])


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


def _say_epoch(job: Job, heads: Sequence[TrainedHead]) -> None:
    kept, last = sorted(head.epoch for head in heads), len(heads[0].losses)
    epochs = f"epoch {kept[0]}" if kept[0] == kept[-1] else f"epochs {kept[0]} to {kept[-1]}"
    best = max(sum(head.score or 0.0 for head in heads) / len(heads), 0.0)
    rule = job.config.select
    why = "the last" if rule == "last" else f"the best on validation under {rule}, {100 * best:.1f} %"
    console.say(f"{check.amount(len(heads), 'head')}: {epochs} of {last} kept ({why}).")


def has_checkpoint(job: Job) -> bool:
    """Say whether fine-tuning has started, so that its network has a trained head."""
    return job.run.checkpoint(job.stage) is not None
