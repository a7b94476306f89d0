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
from rectifier.data.augment import Augment, CropAndFlip
from rectifier.data.dataset import ImageData
from rectifier.data.features import CachedFeatures
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
from rectifier.networks.pretrained import Backbone, load_weights
from rectifier.networks.registry import build_network, default_rate
from rectifier.samplers import EpochSampler
from rectifier.training.config import AUTO, Config
from rectifier.training.engine.devices import resolved_precision
from rectifier.training.engine.options import Options
from rectifier.training.engine.outputs import shard
from rectifier.training.heads import FeatureHead
from rectifier.training.opening import Opened, data_settings, open_for_training, open_source, source_settings
from rectifier.training.recipe import settle
from rectifier.training.run.folder import Run
from rectifier.training.tuned import TunedNetwork, head_spec


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
    config: Config  # that of the spec, settled
    opened: Opened
    normalisation: Normalisation
    objective: nn.Module
    mixing: nn.Module | None
    augment: CropAndFlip | None
    lr: float
    network: nn.Module = field(default_factory=nn.Identity)
    loader: Loader = None  # type: ignore[assignment]  # until the job is ready
    stage: str = ""

    @property
    def data(self) -> ImageData:
        """The images, or what lies below the cut of a pretrained network."""
        return self.opened.data

    @property
    def backbone(self) -> Backbone | None:
        """The pretrained network that is trained, if it is one."""
        return self.opened.backbone

    @property
    def reads_features(self) -> bool:
        return isinstance(self.data.images, CachedFeatures)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The weights that the run keeps: of the whole network."""
        network = self.network
        return network.whole_state() if isinstance(network, TunedNetwork) else network.state_dict()

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
        if self.backbone is not None:
            head = FeatureHead.of(head_spec(config, config.seed), self.backbone.width, self.data.space)
            network = TunedNetwork(self.backbone, config.tune, head)
        elif self.method.features is None:  # else nothing is trained
            shape = self.data.images.shape  # type: ignore[attr-defined]
            network = network_of(config, self.data.space, shape)
            if config.weights is not None:
                console.say(f"Weights of {config.weights}: {load_weights(network, config.weights)}.")
        sampler = self.sampler(fabric.world_size, fabric.global_rank)
        if pixels is not None:
            return replace(self, network=network, loader=pixels.with_sampler(sampler, config.seed))
        options: dict[str, Any] = {"augment": self.augment, "drop_last": config.drop_last, "seed": config.seed}
        if self.backbone is not None and config.tune == "head":  # heads have batches of their own, and a copy of all
            options |= {"drop_last": False, "mode": "streamed"}
        loader = self._loader(fabric, "train", sampler=sampler, **options)
        len(loader)  # plans an epoch, which fails here if it has no batch
        return replace(self, network=network, loader=loader)

    def sampler(self, processes: int, rank: int = 0) -> EpochSampler[Any]:
        """Return the sampler of one process."""
        config, targets = self.config, self.data.targets[self.data.indices("train")]
        more: dict[str, Any] = {"epochs": self.options.epochs, "options": config.method_options}
        more |= {"batch_size": self.options.batch_size // processes, "num_replicas": processes, "rank": rank}
        return build_sampler(config.method, targets, self.data.space, seed=config.seed, **more)

    def held_out(self, fabric: Fabric, part: str) -> Iterable[Batch]:
        """Return the batches of this process's share of a part, in order; there may be none."""
        positions = shard(len(self.data.indices(part)), fabric)
        return self._loader(fabric, part, sampler=positions) if len(positions) else []

    def in_order(self, fabric: Fabric, part: str) -> Iterable[Batch]:
        """Return the batches of a whole part, in order and without augmentation, in every process."""
        positions = range(len(self.data.indices(part)))
        return self.loader.in_order(positions) if part == "train" else self._loader(fabric, part, sampler=positions)

    def _loader(self, fabric: Fabric, part: str, **options: Any) -> Loader:
        size = self.options.batch_size // fabric.world_size
        normalise = None if self.reads_features else self.normalisation
        with console.quiet():
            made = Loader(self.data, part, size, device=fabric.device, normalise=normalise, **options)
        if made.mode == "streamed" and part == "train" and "mode" not in options:  # slower than from memory
            console.say(made.description)
        return made


def engine_options(config: Config) -> Options:
    """Return what the engine must know about a config. What is open has the engine's default."""
    names = (f.name for f in fields(Options) if f.name not in ("lr", "choose_from"))
    return Options(**{name: value for name in names if (value := getattr(config, name)) not in (None, AUTO)})


def network_of(config: Config, space: LabelSpace, shape: Sequence[int], **more: Any) -> nn.Module:
    """Build the network of a config, with its first weights."""
    options = {**needed_of_network(config.method, config.network_options), **more}
    return build_network(config.network, space, tuple(shape), seed=config.seed, **options)


def prepare(spec: RunSpec, opened: Opened, normalisation: Normalisation | None = None) -> Job:
    """Return the job of a run. Runs that share data can share its ``normalisation``."""
    config, _ = settle(spec.config, opened.source)
    data = opened.data
    options, engine = config.method_options, engine_options(config)
    check_method(config.method, engine.epochs, options)
    counts, several = data.counts("train"), engine.processes > 1
    # The losses of the labels add up, and so, in part, do their gradients.
    lr = config.lr or default_rate(config.network) / math.sqrt(len(data.space))
    objective = smoothed(
        build_objective(config.method, counts, data.space, gather=several, **options), config.smoothing
    )
    mixing = build_mixing(config.method, counts, data.space, options)
    if normalisation is None:
        known = None if opened.backbone is None else opened.backbone.preprocessing
        normalisation = statistics(data) if known is None else Normalisation(known.mean, known.std)
    features = isinstance(data.images, CachedFeatures)
    augment = None if features else _augmentation(config, data.images.shape)  # type: ignore[attr-defined]
    return Job(spec, config, opened, normalisation, objective, mixing, augment, lr)


def smoothed(objective: nn.Module, smoothing: float) -> nn.Module:
    """Set the label smoothing of an objective's loss."""
    if smoothing:
        loss: Any = getattr(objective, "sample_loss", None)
        if not hasattr(loss, "label_smoothing"):
            check.fail("smoothing", "0 for a loss that compares samples", smoothing)
        loss.label_smoothing = smoothing
    return objective


def open_jobs(specs: Sequence[RunSpec]) -> list[Job]:
    """Return the jobs of some runs. Data that runs share is opened once, and what runs say alike is said once."""
    sources: dict[str, ImageData] = {}
    opened: dict[str, Job] = {}
    said: set[str] = set()
    jobs = []
    for spec in specs:
        key = source_settings(spec.config)
        source = sources[key] if key in sources else sources.setdefault(key, open_source(spec.config))
        settled, lines = settle(spec.config, source)
        fresh = [line for line in lines if line not in said]
        said.update(fresh)
        if first := opened.get(key := data_settings(settled)):
            console.say("\n".join(fresh)) if fresh else None
            jobs.append(prepare(spec, first.opened, first.normalisation))
        else:
            jobs.append(prepare(spec, open_for_training(settled, source, fresh)))
            opened[key] = jobs[-1]
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
    if first.backbone is not None and config.tune == "head":
        heads = sum(job.config.heads or 1 for job in jobs)
        what = f"{check.amount(heads, 'head')} on features of {config.network}"
        return f"{samples} ({labels}), {methods}: {what}, {where}" + (f", {len(jobs)} runs" if len(jobs) > 1 else "")
    epochs = _either([job.options.epochs for job in jobs])
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
    if config.augment != "crop":
        return Augment(padding, flip, config.augment)
    return CropAndFlip(padding, flip) if padding or flip else None
