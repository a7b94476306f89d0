"""train: from a config to a finished run. The order of work: look, then write; train; predict once; score."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
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
from rectifier.engine.course import Course, Parts
from rectifier.engine.devices import accelerator_of, launch, make_fabric, resolved_precision, shared_cores
from rectifier.engine.fit import fit
from rectifier.engine.lanes import Lane, OnlyLane
from rectifier.engine.predict import Validation, predict, shard
from rectifier.engine.profiling import describe, profile_step
from rectifier.engine.state import State
from rectifier.engine.step import is_captured, make_optimizer
from rectifier.methods import build_objective, build_sampler
from rectifier.networks.registry import build_network, default_rate, default_size
from rectifier.posthoc import prior_offsets
from rectifier.runs.curves import Curves
from rectifier.runs.folder import Run
from rectifier.runs.predictions import MOST_FEATURES, Predictions
from rectifier.runs.results import score_predictions
from rectifier.samplers import EpochSampler

TOGETHER = 8
"""How many runs are trained side by side: with more, an H200 gains little."""


@dataclass(frozen=True)
class Wanted:
    """A run that shall be there: begun in a new folder, or gone on with where one is begun."""

    config: Config
    out: Path


def train(config: Config, out: str | Path, *, title: str | None = None, profile: bool = False) -> Run:
    """Train as the config says into a new folder, and return the finished run.

    Nothing is written before data, network and method have been looked at. A run that is stopped, by a signal or a
    kill, goes on with ``resume``. ``title`` is what the run is called while it trains;
    ``profile`` says first where a step's time goes.
    """
    config = config.anchored()
    Run.check_free(out, config)
    return _launched([Wanted(config, Path(out))], title, profile)[0]


def resume(run: str | Path | Run, *, title: str | None = None) -> Run:
    """Go on with a run that was stopped: it ends as if it never had been."""
    opened = Run.open(run)
    if opened.is_finished:
        console.say(f"{opened.path} is finished.")
        return opened
    return _launched([Wanted(opened.config, opened.path)], title)[0]


def train_together(wanted: Sequence[Wanted], *, title: str | None = None) -> list[Run]:
    """Train runs that differ in their seed alone side by side on one device, and return them finished.

    Each ends as if it were alone, up to rounding. Runs that were stopped at different batches, and any that do not fit
    on the device together, are trained one after another.
    """
    check_alike(wanted)
    standing: dict[int, list[Wanted]] = {}
    for each in wanted:
        saved = Run(each.out).checkpoint()
        standing.setdefault(saved["step"] if saved else 0, []).append(each)
    for group in standing.values():
        if not _fitted_together(group, title):
            console.say(f"The device has no memory for {len(group)} runs at once; they are trained one after another.")
            gc.collect()
            for each in group:
                _launched([each], f"{title or each.out}, seed {each.config.seed}")
    return [Run.open(each.out) for each in wanted]


def _fitted_together(group: list[Wanted], title: str | None) -> bool:
    try:
        _launched(group, title)
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise
        return False
    return True


def why_not_together(config: Config) -> str | None:
    """Say what keeps seeds of a config from being trained side by side, or None."""
    reasons = {
        "side by side is faster on a GPU alone": accelerator_of(config) != "cuda",
        "each run has several devices of its own": config.devices * config.nodes > 1,
        "steps are not captured": config.step not in ("auto", "captured") or config.precision == "16",
        "each seed has a split of its own": config.resplit,
        "patience may end one run before another": config.patience is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def check_alike(wanted: Sequence[Wanted]) -> None:
    """Refuse runs that cannot take their steps at the same time."""
    first, *others = [replace(each.config, seed=0) for each in wanted]
    if any(other != first for other in others):
        check.fail("runs that are trained together", "alike but for their seed", "others")
    if others and (first.resplit or first.patience is not None or first.devices * first.nodes > 1):
        check.fail("runs that are trained together", "on one split, one device and without patience", "others")


def _launched(wanted: list[Wanted], title: str | None, profile: bool = False) -> list[Run]:
    config = wanted[0].config
    return launch(make_fabric(config), config, _train, wanted, title, profile)


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

    def headline(self, fabric: Fabric, together: int) -> str:
        """Say in a line what is trained on what."""
        config, space = self.config, self.data.space
        labels = f"{check.amount(len(space), 'label')}, {check.amount(space.columns, 'class')}"
        samples = f"{check.amount(len(self.data.indices('train')), 'training image')} of {self.data.name}"
        where = fabric.device.type if fabric.world_size == 1 else f"{fabric.world_size} x {fabric.device.type}"
        return (
            f"{samples} ({labels}), {config.method} on {config.network} ({self.decided['parameters']:,} weights),"
            f" {check.amount(config.epochs, 'epoch')}, rate {self.lr:g}, {where}"
            + (f", {together} seeds side by side" if together > 1 else "")
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
        options = {"augment": self.augment, "drop_last": self.config.drop_last, "seed": self.config.seed}
        made = self.loader(fabric, "train", sampler=self.sampler(fabric), **options)
        len(made)  # plans an epoch: one without a batch is told now
        return made

    def sampler(self, fabric: Fabric) -> EpochSampler[Any]:
        config, targets = self.config, self.data.targets[self.data.indices("train")]
        ranks = {"num_replicas": fabric.world_size, "rank": fabric.global_rank}
        return build_sampler(config.method, targets, self.data.space, seed=config.seed, **ranks)

    def held_out(self, fabric: Fabric, part: str) -> Iterable[Batch]:
        """Return batches of this process's share of validation or test, which may be none."""
        positions = shard(len(self.data.indices(part)), fabric)
        return self.loader(fabric, part, sampler=positions) if len(positions) else []


def _train(fabric: Fabric, wanted: list[Wanted], title: str | None, profile: bool) -> list[Run]:
    """Do what one process does; all processes do the same, and the first writes."""
    with _alone_in_the_process(fabric), _fastest_kernels(fabric), shared_cores(fabric, wanted[0].config):
        torch.manual_seed(_seed_of(fabric, wanted[0].config))
        data = _open(fabric, wanted[0].config)
        jobs = [_prepare(fabric, each.config, data) for each in wanted]
        loaders = _training_loaders(fabric, jobs)
        runs = [_begun(fabric, job, each.out) for job, each in zip(jobs, wanted, strict=True)]
        fabric.barrier()
        console.say(f"{title or wanted[0].out}: {jobs[0].headline(fabric, len(jobs))}")
        began = time.monotonic()
        try:
            _fit(fabric, jobs, loaders, runs, profile)
            for job, run in zip(jobs, runs, strict=True):
                _finish(fabric, job, run)
        except BaseException:
            with suppress(OSError):  # what happened before is what must be told
                _end_session(fabric, runs, began)
            raise
        _end_session(fabric, runs, began)
        fabric.barrier()  # until the first has scored, no other may say that the run is finished
    return runs


def _seed_of(fabric: Fabric, config: Config) -> int:
    return config.seed * 1_000_003 + fabric.global_rank


def _begun(fabric: Fabric, job: _Job, out: Path) -> Run:
    run = Run(out)
    if fabric.is_global_zero:
        if not (out / "config.json").is_file():
            run = Run.create(out, job.config)
        run.begin(job.data, job.normalisation, {**job.decided, "device": str(fabric.device)}, job.config.fit)
    return run


def _end_session(fabric: Fabric, runs: list[Run], began: float) -> None:
    if fabric.is_global_zero:
        for run in runs:
            run.end_session(seconds=round(time.monotonic() - began, 3), together=len(runs))


def _open(fabric: Fabric, config: Config) -> ImageData:
    with fabric.rank_zero_first():  # it may have to decode images; the others find them decoded
        return open_for_training(config)


def _training_loaders(fabric: Fabric, jobs: list[_Job]) -> list[Loader]:
    """Return a loader for each job; pixels are kept once."""
    first = jobs[0].training_loader(fabric)
    return [first, *(first.beside(job.sampler(fabric), job.config.seed) for job in jobs[1:])]


def _prepare(fabric: Fabric, config: Config, data: ImageData) -> _Job:
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


def _fit(fabric: Fabric, jobs: list[_Job], loaders: list[Loader], runs: list[Run], profile: bool) -> None:
    """Train from the runs' checkpoints, or from the beginning; networks end with the weights of the chosen epoch."""
    config, lr = jobs[0].config, jobs[0].lr
    held_out = jobs[0].held_out(fabric, "validation")
    courses, recorders = [], []
    for job, loader, run in zip(jobs, loaders, runs, strict=True):
        parts = _parts(fabric, job, loader, held_out, profile)
        state = State.from_checkpoint(run.checkpoint())
        recorders.append(_Recorder(run, config.tensorboard, state) if fabric.is_global_zero else _Silent())
        lane = Lane(fabric.device, _seed_of(fabric, job.config)) if len(jobs) > 1 else OnlyLane()
        courses.append(Course(fabric, parts, config, recorders[-1], state, lane))
    try:
        fit(fabric, courses, config, lr)
    finally:
        for recorder in recorders:
            recorder.close()
    for job, course in zip(jobs, courses, strict=True):
        job.network.load_state_dict(course.state.best_weights or {})


def _parts(fabric: Fabric, job: _Job, loader: Loader, held_out: Iterable[Batch], profile: bool) -> Parts:
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

    # Validated under the rule that the epoch is chosen by.
    offsets = prior_offsets(job.counts) if config.select == "prior" else torch.zeros(data.space.columns)
    captured = is_captured(fabric, config)
    validate = Validation(fabric, network, held_out, data.space.sizes, offsets, captured)
    return Parts(network, wrapped, optimizer, objective, loader, validate, data.space.names, ids)


def _finish(fabric: Fabric, job: _Job, run: Run) -> None:
    """Predict validation and test once, and score what was predicted."""
    network = job.network.to(fabric.device)
    found = {part: _predictions(fabric, job, network, part) for part in ("validation", "test")}
    if not fabric.is_global_zero:
        return
    run.save_weights(network.state_dict())
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


@contextmanager
def _fastest_kernels(fabric: Fabric) -> Iterator[None]:
    """Let cuDNN try which of its convolutions are fastest, unless the user wants the same ones every time."""
    known = torch.backends.cudnn
    before = known.benchmark
    known.benchmark = (fabric.device.type == "cuda" and not known.deterministic) or before
    try:
        yield
    finally:
        known.benchmark = before


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
