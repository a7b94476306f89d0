"""Job: a config and what it comes to with its data. All that can be wrong is found while it is made."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageFiles, as_size
from rectifier.data.loader import Batch, Loader
from rectifier.data.normalise import Normalisation, statistics
from rectifier.data.sources import may_mirror, open_data
from rectifier.data.store import build_store, is_store, unreadable_images
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
    rounds_of,
)
from rectifier.networks.registry import build_network, default_rate, default_size
from rectifier.samplers import EpochSampler
from rectifier.training.config import Config
from rectifier.training.engine.devices import resolved_precision
from rectifier.training.engine.predict import shard


@dataclass(frozen=True)
class Job:
    """A config and what it comes to with its data: all that can be wrong is found while this is made."""

    config: Config
    data: ImageData
    counts: list[Tensor]  # training samples of each class, label by label
    network: nn.Module
    objective: nn.Module
    mixing: nn.Module | None
    normalisation: Normalisation
    augment: CropAndFlip | None
    lr: float

    @property
    def method(self) -> Method:
        return find_method(self.config.method)

    @property
    def afterwards(self) -> Afterwards:
        return build_afterwards(self.config.method, self.config.method_options)

    @property
    def rounds(self) -> frozenset[int]:
        """The epochs before which the sampler looks at the features."""
        return rounds_of(self.config.method, self.config.epochs, self.config.method_options)

    @property
    def trains_classifier(self) -> bool:
        """Whether the logits mean something while the network trains, so that validation can choose an epoch."""
        return self.method.decision is None or self.method.objective is None

    def seed(self, fabric: Fabric) -> int:
        """Return the seed of this process's random numbers."""
        return self.config.seed * 1_000_003 + fabric.global_rank

    @property
    def decided(self) -> dict[str, Any]:
        """What the config left open."""
        return {
            "lr": self.lr,
            "padding": self.augment.padding if self.augment else 0,
            "flip": bool(self.augment and self.augment.flip),
            "precision": resolved_precision(self.config),
            "parameters": 0 if self.method.features else sum(weight.numel() for weight in self.network.parameters()),
        }

    def loader(self, fabric: Fabric, part: str, **options: Any) -> Loader:
        size = self.config.batch_size // fabric.world_size
        with console.quiet():
            made = Loader(self.data, part, size, device=fabric.device, normalise=self.normalisation, **options)
        if made.mode == "streamed" and part == "train":  # slower than from memory, and worth knowing
            console.say(made.description)
        return made

    def training_loader(self, fabric: Fabric) -> Loader:
        """Return the batches of this process's share of the training part, in the order of the method's sampler."""
        options = {"augment": self.augment, "drop_last": self.config.drop_last, "seed": self.config.seed}
        made = self.loader(fabric, "train", sampler=self.sampler(fabric), **options)
        len(made)  # plans an epoch: one without a batch is told now
        return made

    def sampler(self, fabric: Fabric) -> EpochSampler[Any]:
        config, targets = self.config, self.data.targets[self.data.indices("train")]
        common: dict[str, Any] = {"seed": config.seed, "num_replicas": fabric.world_size, "rank": fabric.global_rank}
        more: dict[str, Any] = {"epochs": config.epochs, "options": config.method_options}
        more["batch_size"] = config.batch_size // fabric.world_size
        return build_sampler(config.method, targets, self.data.space, **more, **common)

    def held_out(self, fabric: Fabric, part: str) -> Iterable[Batch]:
        """Return batches of this process's share of validation or test, which may be none."""
        positions = shard(len(self.data.indices(part)), fabric)
        return self.loader(fabric, part, sampler=positions) if len(positions) else []


def headline(fabric: Fabric, jobs: Sequence[Job]) -> str:
    """Say in a line what is trained on what."""
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
        f"{samples} ({labels}), {methods} on {config.network} ({first.decided['parameters']:,} weights),"
        f" {epochs} epoch{'' if epochs == '1' else 's'}, rate {_either([job.lr for job in jobs])}, {where}"
        + (f", {len(jobs)} runs side by side" if len(jobs) > 1 else "")
    )


def _either(values: Sequence[float]) -> str:
    return " or ".join(f"{value:g}" for value in dict.fromkeys(values))


def prepare(fabric: Fabric, config: Config, data: ImageData) -> Job:
    check_method(config.method, config.epochs, config.method_options)
    counts = data.counts("train")
    shape = data.images.shape  # type: ignore[attr-defined]
    options = needed_of_network(config.method, config.network_options)
    if find_method(config.method).features is None:
        network: nn.Module = build_network(config.network, data.space, shape, seed=config.seed, **options)
    else:
        network = nn.Identity()  # nothing is trained
    several = fabric.world_size > 1
    objective = build_objective(config.method, counts, data.space, gather=several, **config.method_options)
    mixing = build_mixing(config.method, counts, data.space, config.method_options)
    # The losses of the labels add up, and so, in part, do their gradients.
    lr = config.lr or default_rate(config.network) / math.sqrt(len(data.space))
    return Job(config, data, counts, network, objective, mixing, statistics(data), _augmentation(config, shape), lr)


def open_for_training(config: Config) -> ImageData:
    """Open the data; images that are files are decoded once, into a store in the cache."""
    data = _opened(config)
    _check_parts(data)  # before images are decoded in vain
    size = as_size(config.size)
    if isinstance(data.images, ImageFiles):
        size = size or default_size(config.network)
        folder = store_folder(data, size, config.fit)
        if not is_store(folder):
            console.say(f"Decoded images are kept in {folder}.")
        stored = build_store(data, folder, size, fit=config.fit, unreadable=config.unreadable)
        if len(stored) < len(data):  # images that could not be read are gone
            _check_parts(stored)
        return stored
    if isinstance(data.images, ImageArray):
        return build_store(data, "", size, fit=config.fit)
    if size is not None and data.images.shape[:2] != size:  # type: ignore[attr-defined]
        check.fail("size", "left out for a store, whose images have theirs", config.size)
    return data


def data_settings(config: Config) -> str:
    """Return what configs have in common whose data is the same, but for a split that each seed draws anew."""
    told = (config.data, config.data_root, config.images, config.data_options, config.split_seed)
    return repr((*told, config.size, config.network))  # a network has a size that images are decoded to


def _opened(config: Config) -> ImageData:
    seed = config.seed if config.resplit else config.split_seed
    return open_data(config.data, root=config.data_root, images=config.images, seed=seed, **config.data_options)


def fingerprints(config: Config) -> frozenset[str]:
    """Return the fingerprints that the data of a run could have: of all of it, and without what cannot be read.

    What the store says of its own data does not count: that may be of earlier labels.
    """
    data = _opened(config)
    found = {data.fingerprint}
    if isinstance(data.images, ImageFiles):
        folder = store_folder(data, as_size(config.size) or default_size(config.network), config.fit)
        lost = unreadable_images(folder)
        kept = [i for i, path in enumerate(data.images.paths) if path not in lost]
        found |= {data.select(kept).fingerprint} if lost else set()
    return frozenset(found)


def store_folder(data: ImageData, size: tuple[int, int], fit: str) -> Path:
    """Return where decoded images of this data are kept: below ``RECTIFIER_CACHE``, else the user's cache."""
    cache = Path(os.environ.get("RECTIFIER_CACHE") or Path.home() / ".cache" / "rectifier")
    root = str(data.images.root.absolute())  # type: ignore[attr-defined]
    key = hashlib.sha256(f"{root}\n{data.name}\n{size}\n{fit}".encode()).hexdigest()[:12]
    return cache / "stores" / f"{data.name}-{size[0]}x{size[1]}-{key}"


def _check_parts(data: ImageData) -> None:
    """Training needs samples in every part, and two classes at least of every label."""
    for part in PARTS:
        if not len(data.indices(part)):
            remedy = "give it images, or shares that leave it some (--set shares=0.8,0.1,0.1)"
            check.fail(f"part {part!r} of {data.name!r}", "a part with images", f"none; {remedy}")
        if not bool((data.targets[data.indices(part)] >= 0).any()):
            check.fail(f"part {part!r} of {data.name!r}", "a part with labelled images", "none with any label")
    classes = [int((counts > 0).sum()) for counts in data.counts("train")]
    for name, found in zip(data.space.names, classes, strict=True):
        if found < 2:
            what = "a single one there" if found else "no training image at all"
            remedy = "leave the label out (for a table: --set ignore=NAME)"
            check.fail(f"label {name!r}", "one with images of two classes in training", f"{what}; {remedy}")


def _augmentation(config: Config, shape: tuple[int, int, int]) -> CropAndFlip | None:
    padding = min(shape[:2]) // 8 if config.padding is None else config.padding
    flip = may_mirror(config.data) if config.flip is None else config.flip
    if padding >= min(shape[:2]):
        check.fail("padding", f"below {min(shape[:2])}, the images' shorter side", padding)
    return CropAndFlip(padding, flip) if padding or flip else None
