"""train: from a config to a finished run. The order of work: look, then write; train; predict once; score."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier import check, console
from rectifier.config import Config
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageFiles
from rectifier.data.loader import Batch, Loader
from rectifier.data.normalise import Normalisation, statistics
from rectifier.data.sources import may_mirror, open_data
from rectifier.data.store import as_size, build_store, is_store
from rectifier.engine.batchnorm import with_global_batch_norm
from rectifier.engine.devices import launch, make_fabric, resolved_precision
from rectifier.engine.fit import Parts, fit
from rectifier.engine.predict import balanced_accuracy, predict, shard
from rectifier.engine.profiling import describe, profile_step
from rectifier.engine.state import State
from rectifier.engine.step import make_optimizer
from rectifier.methods import build_objective, build_sampler
from rectifier.networks.registry import build_network, default_rate, default_size
from rectifier.posthoc import prior_offsets
from rectifier.runs.curves import Curves
from rectifier.runs.folder import Run
from rectifier.runs.predictions import MOST_FEATURES, Predictions
from rectifier.runs.results import score_predictions


def train(config: Config, out: str | Path, *, title: str | None = None, profile: bool = False) -> Run:
    """Train as the config says into a new folder, and return the finished run.

    Nothing is written before data, network and method have been looked at. A run that is stopped, by a signal or a
    kill, goes on with ``resume``. ``title`` is what the run is called while it trains;
    ``profile`` says first where a step's time goes.
    """
    config = config.anchored()
    Run.check_free(out, config)
    return launch(make_fabric(config), config, _train, config, Path(out), False, title, profile)


def resume(run: str | Path | Run, *, title: str | None = None) -> Run:
    """Go on with a run that was stopped: it ends as if it never had been."""
    opened = Run.open(run)
    if opened.is_finished:
        console.say(f"{opened.path} is finished.")
        return opened
    config = opened.config
    return launch(make_fabric(config), config, _train, config, opened.path, True, title, False)


@dataclass(frozen=True)
class _Job:
    """A config and what it comes to with its data: all that can be wrong is found while this is made."""

    config: Config
    data: ImageData
    counts: list[Tensor]  # training samples of each class, label by label
    network: nn.Module
    objective: nn.Module
    normalisation: Normalisation
    augment: CropAndFlip | None
    lr: float

    @property
    def decided(self) -> dict[str, Any]:
        """What the config left open."""
        return {
            "lr": self.lr,
            "padding": self.augment.padding if self.augment else 0,
            "flip": bool(self.augment and self.augment.flip),
            "precision": resolved_precision(self.config),
            "parameters": sum(weight.numel() for weight in self.network.parameters()),
        }

    def headline(self, fabric: Fabric) -> str:
        """Say in a line what is trained on what."""
        config, space = self.config, self.data.space
        labels = f"{check.amount(len(space), 'label')}, {check.amount(space.columns, 'class')}"
        samples = f"{check.amount(len(self.data.indices('train')), 'training image')} of {self.data.name}"
        where = fabric.device.type if fabric.world_size == 1 else f"{fabric.world_size} x {fabric.device.type}"
        return (
            f"{samples} ({labels}), {config.method} on {config.network} ({self.decided['parameters']:,} weights),"
            f" {check.amount(config.epochs, 'epoch')}, rate {self.lr:g}, {where}"
        )

    def loader(self, fabric: Fabric, part: str, **options: Any) -> Loader:
        size = self.config.batch_size // fabric.world_size
        with console.quiet():
            made = Loader(self.data, part, size, device=fabric.device, normalise=self.normalisation, **options)
        if made.mode == "streamed" and part == "train":  # slower than from memory, and worth knowing
            console.say(made.description)
        return made

    def training_loader(self, fabric: Fabric) -> Loader:
        """Return the batches of this process's share of the training part, in the order of the method's sampler."""
        config, targets = self.config, self.data.targets[self.data.indices("train")]
        ranks = {"num_replicas": fabric.world_size, "rank": fabric.global_rank}
        sampler = build_sampler(config.method, targets, self.data.space, seed=config.seed, **ranks)
        options = {"augment": self.augment, "drop_last": config.drop_last, "seed": config.seed}
        made = self.loader(fabric, "train", sampler=sampler, **options)
        len(made)  # plans an epoch: one without a batch is told now
        return made

    def held_out(self, fabric: Fabric, part: str) -> Iterable[Batch]:
        """Return batches of this process's share of validation or test, which may be none."""
        positions = shard(len(self.data.indices(part)), fabric)
        return self.loader(fabric, part, sampler=positions) if len(positions) else []


def _train(fabric: Fabric, config: Config, out: Path, again: bool, title: str | None, profile: bool) -> Run:
    """Do what one process does; all processes do the same, and the first writes."""
    with _alone_in_the_process(fabric):
        torch.manual_seed(config.seed * 1_000_003 + fabric.global_rank)
        job = _prepare(fabric, config)
        loader = job.training_loader(fabric)
        run = Run.open(out) if again else Run(out)
        if fabric.is_global_zero:
            run = run if again else Run.create(out, config)
            run.begin(job.data, job.normalisation, {**job.decided, "device": str(fabric.device)}, config.fit)
        fabric.barrier()
        console.say(f"{title or out}: {job.headline(fabric)}")
        began = time.monotonic()
        try:
            weights = _fit(fabric, job, loader, run, profile)
            job.network.load_state_dict(weights)
            _finish(fabric, job, run, weights)
        except BaseException:
            with suppress(OSError):  # what happened before is what must be told
                _end_session(fabric, run, began)
            raise
        _end_session(fabric, run, began)
        fabric.barrier()  # until the first has scored, no other may say that the run is finished
    return run


def _end_session(fabric: Fabric, run: Run, began: float) -> None:
    if fabric.is_global_zero:
        run.end_session(seconds=round(time.monotonic() - began, 3))


def _prepare(fabric: Fabric, config: Config) -> _Job:
    with fabric.rank_zero_first():  # it may have to decode images; the others find them decoded
        data = open_for_training(config)
    counts = data.counts("train")
    shape = data.images.shape  # type: ignore[attr-defined]
    network = build_network(config.network, data.space, shape, seed=config.seed, **config.network_options)
    several = fabric.world_size > 1
    objective = build_objective(config.method, counts, data.space, gather=several, **config.method_options)
    # The losses of the labels add up, and so, in part, do their gradients.
    lr = config.lr or default_rate(config.network) / math.sqrt(len(data.space))
    return _Job(config, data, counts, network, objective, statistics(data), _augmentation(config, shape), lr)


def open_for_training(config: Config) -> ImageData:
    """Open the data; images that are files are decoded once, into a store in the cache."""
    seed = config.seed if config.resplit else config.split_seed
    data = open_data(config.data, root=config.data_root, images=config.images, seed=seed, **config.data_options)
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


def _fit(fabric: Fabric, job: _Job, loader: Loader, run: Run, profile: bool) -> dict[str, Tensor]:
    """Train from the run's checkpoint, or from the beginning; return the weights of the chosen epoch."""
    config, data = job.config, job.data
    objective = job.objective.to(fabric.device)
    network = job.network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    if fabric.world_size > 1 and config.batch_norm == "global":
        network = with_global_batch_norm(network)
    if profile:
        console.say(describe(profile_step(fabric, network, objective, loader, config, job.lr)))
    wrapped, optimizer = fabric.setup(network, make_optimizer(network, config, job.lr))

    def ids(positions: Tensor) -> list[str]:
        return [data.ids[i] for i in data.indices("train")[positions].tolist()]

    validate = _validation(fabric, job, network)
    parts = Parts(network, wrapped, optimizer, objective, loader, validate, data.space.names, ids)
    state = State.from_checkpoint(run.checkpoint())
    recorder = _Recorder(run, config.tensorboard, state) if fabric.is_global_zero else _Silent()
    try:
        state = fit(fabric, parts, config, job.lr, recorder, state)
    finally:
        recorder.close()
    return state.best_weights or {}


def _validation(fabric: Fabric, job: _Job, network: nn.Module) -> Callable[[], float]:
    """Return what scores the network on validation, under the rule that the epoch is chosen by."""
    loader = job.held_out(fabric, "validation")
    offsets = prior_offsets(job.counts) if job.config.select == "prior" else torch.zeros(job.data.space.columns)
    offsets = offsets.to(fabric.device)
    return lambda: balanced_accuracy(fabric, network, loader, job.data.space.sizes, offsets)


def _finish(fabric: Fabric, job: _Job, run: Run, weights: dict[str, Tensor]) -> None:
    """Predict validation and test once, and score what was predicted."""
    network = job.network.to(fabric.device)
    found = {part: _predictions(fabric, job, network, part) for part in ("validation", "test")}
    if not fabric.is_global_zero:
        return
    run.save_weights(weights)
    for part, predictions in found.items():
        run.save_predictions(part, predictions)
    rules, metrics = score_predictions(found, job.counts, job.config.method)
    run.save_results(rules, metrics)


def _predictions(fabric: Fabric, job: _Job, network: nn.Module, part: str) -> Predictions:
    data, index = job.data, job.data.indices(part)
    wanted = job.config.features and _features_fit(network, len(index), job.data)
    logits, features = predict(fabric, network, job.held_out(fabric, part), wanted)
    ids = tuple(data.ids[i] for i in index.tolist())
    return Predictions(logits, data.targets[index], ids, data.space, features)


def _features_fit(network: nn.Module, samples: int, data: ImageData) -> bool:
    """Say whether the features of so many samples are small enough to be saved, in half precision."""
    head: Any = network.head
    branches = 1 if head.entry is None else len(data.space)
    fits = 2 * samples * branches * int(head.classifier.weight.shape[1]) <= MOST_FEATURES
    if not fits:
        console.say(f"Features of {samples:,} samples are left out of the saved predictions: they would pass 1 GiB.")
    return fits


@contextmanager
def _alone_in_the_process(fabric: Fabric) -> Iterator[None]:
    """Leave the caller's random state as it was, and let the first process alone speak."""
    devices = [fabric.device] if fabric.device.type == "cuda" else []
    with torch.random.fork_rng(devices), nullcontext() if fabric.is_global_zero else console.quiet():
        yield


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

    def __init__(self, run: Run, tensorboard: bool, state: State) -> None:
        self._run, self._curves = run, Curves(run, tensorboard, state.epochs, state.labels)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        self._run.save_checkpoint(state)

    def save_epoch(self, state: State) -> None:
        self._curves.add(state.epochs[-1], state.last_labels())

    def close(self) -> None:
        self._curves.close()
