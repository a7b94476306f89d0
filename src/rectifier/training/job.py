"""RunSpec and Job: a planned run, and its config with its data. Making a job finds everything that can be wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import ImageData
from rectifier.data.loader import Batch, Loader
from rectifier.data.normalise import Normalisation, statistics
from rectifier.data.sources import may_mirror
from rectifier.labels.space import LabelSpace
from rectifier.methods import (
    Afterwards,
    Method,
    build_afterwards,
    build_mixing,
    build_objective,
    build_sampler,
    check_method,
    find_method,
    needed_of_network,
    whole_from,
)
from rectifier.networks.registry import build_network, default_rate
from rectifier.samplers import EpochSampler
from rectifier.training.config import Config
from rectifier.training.engine.devices import resolved_precision
from rectifier.training.engine.options import Options
from rectifier.training.engine.outputs import shard
from rectifier.training.opening import data_settings, open_for_training
from rectifier.training.run.folder import Run


@dataclass(frozen=True)
class RunSpec:
    """A planned run: its name in messages, its config and its folder."""

    name: str
    config: Config
    folder: Path


@dataclass(frozen=True, eq=False)
class Job:
    """A run's config with its data, and what the method makes of both.

    ``ready`` adds the network and the batches. ``stage`` is ``"classifier"`` in the second training of a classifier,
    which has its own checkpoint and curves.
    """

    spec: RunSpec
    data: ImageData
    normalisation: Normalisation
    objective: nn.Module
    mixing: nn.Module | None
    augment: CropAndFlip | None
    lr: float
    network: nn.Module = field(default_factory=nn.Identity)
    loader: Loader = None  # type: ignore[assignment]  # until the job is ready
    stage: str = ""

    @property
    def config(self) -> Config:
        return self.spec.config

    @cached_property
    def run(self) -> Run:
        return Run(self.spec.folder)

    @cached_property
    def counts(self) -> list[Tensor]:
        """The training samples of each class, label by label."""
        return self.data.counts("train")

    @property
    def method(self) -> Method:
        return find_method(self.config.method)

    @property
    def afterwards(self) -> Afterwards:
        return build_afterwards(self.config.method, self.config.method_options)

    @property
    def options(self) -> Options:
        choose_from = whole_from(self.config.method, self.config.method_options)
        return replace(engine_options(self.config), lr=self.lr, choose_from=choose_from)

    @property
    def resolved(self) -> dict[str, Any]:
        """The values of settings that the config leaves open."""
        return {
            "lr": self.lr,
            "padding": self.augment.padding if self.augment else 0,
            "flip": bool(self.augment and self.augment.flip),
            "precision": resolved_precision(self.options),
            "parameters": sum(weight.numel() for weight in self.network.parameters()),
        }

    def seed(self, fabric: Fabric) -> int:
        """Return the seed of this process's random numbers."""
        return self.config.seed * 1_000_003 + fabric.global_rank

    def ready(self, fabric: Fabric, pixels: Loader | None = None) -> Job:
        """Return this job with its network and training batches. ``pixels`` is a loader that holds the images."""
        config, network = self.config, self.network
        if self.method.features is None:  # else nothing is trained
            shape = self.data.images.shape  # type: ignore[attr-defined]
            network = network_of(config, self.data.space, shape)
        sampler = self.sampler(fabric.world_size, fabric.global_rank)
        if pixels is not None:
            return replace(self, network=network, loader=pixels.with_sampler(sampler, config.seed))
        options = {"augment": self.augment, "drop_last": config.drop_last, "seed": config.seed}
        loader = self._loader(fabric, "train", sampler=sampler, **options)
        len(loader)  # plans an epoch, which fails here if it has no batch
        return replace(self, network=network, loader=loader)

    def sampler(self, processes: int, rank: int = 0) -> EpochSampler[Any]:
        """Return the sampler of one process."""
        config, targets = self.config, self.data.targets[self.data.indices("train")]
        more: dict[str, Any] = {"epochs": config.epochs, "options": config.method_options}
        more |= {"batch_size": config.batch_size // processes, "num_replicas": processes, "rank": rank}
        return build_sampler(config.method, targets, self.data.space, seed=config.seed, **more)

    def held_out(self, fabric: Fabric, part: str) -> Iterable[Batch]:
        """Return the batches of this process's share of a part, in order; there may be none."""
        positions = shard(len(self.data.indices(part)), fabric)
        return self._loader(fabric, part, sampler=positions) if len(positions) else []

    def _loader(self, fabric: Fabric, part: str, **options: Any) -> Loader:
        size = self.config.batch_size // fabric.world_size
        with console.quiet():
            made = Loader(self.data, part, size, device=fabric.device, normalise=self.normalisation, **options)
        if made.mode == "streamed" and part == "train":  # slower than from memory
            console.say(made.description)
        return made


def engine_options(config: Config) -> Options:
    """Return what the engine must know about a config."""
    return Options(**{f.name: getattr(config, f.name) for f in fields(Options) if f.name not in ("lr", "choose_from")})


def network_of(config: Config, space: LabelSpace, shape: Sequence[int], **more: Any) -> nn.Module:
    """Build the network of a config, with its first weights."""
    options = {**needed_of_network(config.method, config.network_options), **more}
    return build_network(config.network, space, tuple(shape), seed=config.seed, **options)


def prepare(spec: RunSpec, data: ImageData, normalisation: Normalisation | None = None) -> Job:
    """Return the job of a run. Runs that share data can share its ``normalisation``."""
    config = spec.config
    check_method(config.method, config.epochs, config.method_options)
    counts, options = data.counts("train"), config.method_options
    several = engine_options(config).processes > 1
    # The losses of the labels add up, and so, in part, do their gradients.
    lr = config.lr or default_rate(config.network) / math.sqrt(len(data.space))
    objective = build_objective(config.method, counts, data.space, gather=several, **options)
    mixing = build_mixing(config.method, counts, data.space, options)
    augment = _augmentation(config, data.images.shape)  # type: ignore[attr-defined]
    return Job(spec, data, normalisation or statistics(data), objective, mixing, augment, lr)


def open_jobs(specs: Sequence[RunSpec]) -> list[Job]:
    """Return the jobs of some runs. Data that runs share is opened once."""
    opened: dict[str, Job] = {}
    jobs = []
    for spec in specs:
        first = opened.get(key := data_settings(spec.config))
        given = (open_for_training(spec.config),) if first is None else (first.data, first.normalisation)
        jobs.append(prepare(spec, *given))
        opened.setdefault(key, jobs[-1])
    return jobs


def headline(fabric: Fabric, jobs: Sequence[Job]) -> str:
    """Say in one line what is trained on which data."""
    first = jobs[0]
    config, space = first.config, first.data.space
    labels = f"{check.amount(len(space), 'label')}, {check.amount(space.columns, 'class')}"
    samples = f"{check.amount(len(first.data.indices('train')), 'training image')} of {first.data.name}"
    if first.method.features is not None:
        return f"{samples} ({labels}), {config.method}, which trains no network"
    where = fabric.device.type if fabric.world_size == 1 else f"{fabric.world_size} x {fabric.device.type}"
    methods = ", ".join(dict.fromkeys(job.config.method for job in jobs))
    epochs = _either([job.config.epochs for job in jobs])
    return (
        f"{samples} ({labels}), {methods} on {config.network} ({first.resolved['parameters']:,} weights),"
        f" {epochs} epoch{'' if epochs == '1' else 's'}, rate {_either([job.lr for job in jobs])}, {where}"
        + (f", {len(jobs)} runs side by side" if len(jobs) > 1 else "")
    )


def _either(values: Sequence[float]) -> str:
    return " or ".join(f"{value:g}" for value in dict.fromkeys(values))


def _augmentation(config: Config, shape: tuple[int, int, int]) -> CropAndFlip | None:
    padding = min(shape[:2]) // 8 if config.padding is None else config.padding
    flip = may_mirror(config.data) if config.flip is None else config.flip
    if padding >= min(shape[:2]):
        check.fail("padding", f"below {min(shape[:2])}, the images' shorter side", padding)
    return CropAndFlip(padding, flip) if padding or flip else None
