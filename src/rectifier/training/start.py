"""train: from a config to a finished run. The order of work: look, then write; train; predict once; score."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric

from rectifier._base import check, console
from rectifier._base import files as atomic
from rectifier.data.dataset import ImageData
from rectifier.data.loader import Loader
from rectifier.methods import build_mixing, build_objective, build_sampler, check_method, find_method
from rectifier.training.config import Config
from rectifier.training.engine.devices import accelerator_of, launch, make_fabric, shared_cores
from rectifier.training.finish import finish
from rectifier.training.job import Job, headline, open_for_training, prepare
from rectifier.training.run.folder import Run
from rectifier.training.stages import Stage, retrain_classifiers, train_networks

TOGETHER = 8
"""How many runs are trained side by side: with more, an H200 gains little."""


class BusyError(ValueError):
    """A run that another process trains."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(check.sentence(str(folder), "a run that nobody trains", "one that another process does now"))


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


def resume(run: str | Path | Run, *, title: str | None = None, step: str | None = None) -> Run:
    """Go on with a run that was stopped: it ends as if it never had been. ``step`` takes its steps in another way."""
    opened = Run.open(run)
    if opened.is_finished:
        console.say(f"{opened.path} is finished.")
        return opened
    config = opened.config if step is None else replace(opened.config, step=step)
    return _launched([Wanted(config, opened.path)], title)[0]


def train_together(wanted: Sequence[Wanted], *, title: str | None = None) -> list[Run]:
    """Train runs on the same data side by side on one device, and return them finished.

    They may differ in ``OWN``: their seed, method, rate, length and so on. Each ends as if it were alone, up to
    rounding, and goes on where it was stopped. Where the device has no memory for all of them, they are trained
    half after half.
    """
    wanted = [replace(each, config=each.config.anchored()) for each in wanted]
    check_alike(wanted)
    _check_folders(wanted)
    if not _fitted_together(wanted, title):
        half = len(wanted) // 2
        console.say(
            f"The device has no memory for {len(wanted)} runs at once: first {half}, then {len(wanted) - half}."
        )
        gc.collect()
        with diverged_at_the_end() as diverged:
            for number, part in enumerate((wanted[:half], wanted[half:]), 1):
                with diverged():
                    train_together(part, title=f"{title or part[0].out}, part {number} of 2")
    return [Run.open(each.out) for each in wanted]


def _fitted_together(group: Sequence[Wanted], title: str | None) -> bool:
    try:
        _launched(list(group), title)
    except torch.OutOfMemoryError:
        if len(group) == 1:
            raise
        return False
    return True


def validate_before_training(configs: Sequence[Config]) -> None:
    """Find what is wrong with any of these, which share their data, before the first is trained."""
    data = open_for_training(configs[0])
    counts, targets = data.counts("train"), data.targets[data.indices("train")]
    alike = {repr(replace(config, seed=0, data_options={})): config for config in configs}
    for config in alike.values():
        check_method(config.method, config.epochs, config.method_options)
        more: dict[str, Any] = {"epochs": config.epochs, "options": config.method_options}
        build_objective(config.method, counts, data.space, **config.method_options)
        build_mixing(config.method, counts, data.space, config.method_options)
        build_sampler(config.method, targets, data.space, batch_size=config.batch_size // config.devices, **more)


OWN = (
    *("seed", "method", "method_options", "network_options", "epochs", "optimizer", "lr", "momentum", "nesterov"),
    *("weight_decay", "schedule", "milestones", "decay", "warmup", "clip", "accumulate", "validate_every", "patience"),
    *("select", "tensorboard", "features"),
)
"""In which settings runs may differ that are trained side by side: batches of the same pixels serve them all."""


def shared_settings(config: Config) -> dict[str, Any]:
    """Return the settings that runs have in common when they are trained side by side."""
    return {key: value for key, value in config.as_dict().items() if key not in OWN}


def why_not_together(config: Config) -> str | None:
    """Say what keeps a run from being trained side by side with others, or None."""
    reasons = {
        "side by side is faster on a GPU alone": accelerator_of(config) != "cuda",
        "steps are not captured": config.step == "eager" or config.precision == "16",
    }
    return _why_never_together(config) or next((reason for reason, holds in reasons.items() if holds), None)


def _why_never_together(config: Config) -> str | None:
    reasons = {
        "each run has several devices of its own": config.devices * config.nodes > 1,
        "each seed has a split of its own": config.resplit,
        f"{config.method} trains no network": find_method(config.method).features is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def check_alike(wanted: Sequence[Wanted]) -> None:
    """Refuse runs that cannot be trained side by side."""
    if not wanted:
        check.fail("runs that are trained together", "at least one", "none")
    first, *others = [each.config for each in wanted]
    for other in others:
        if differ := [key for key, value in shared_settings(first).items() if shared_settings(other)[key] != value]:
            check.fail("runs that are trained together", "alike in what they share", f"others ({', '.join(differ)})")
        if reason := _why_never_together(first) or _why_never_together(other):
            check.fail("runs that are trained together", "on one device and split, with a network", f"others: {reason}")


@contextmanager
def diverged_at_the_end() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Let a run that diverges keep no other from its own: inside, put each into what is given; raised at the end."""
    complaints: list[str] = []

    @contextmanager
    def diverged() -> Iterator[None]:
        try:
            yield
        except FloatingPointError as error:
            complaints.append(str(error))

    yield diverged
    if complaints:
        raise FloatingPointError("\n".join(complaints))


def _check_folders(wanted: Sequence[Wanted]) -> None:
    """Refuse a folder that two runs would share, or that is another run's."""
    folders = [each.out.resolve() for each in wanted]
    if twice := [each.out for each, folder in zip(wanted, folders, strict=True) if folders.count(folder) > 1]:
        check.fail("runs that are trained together", "each in a folder of its own", f"{twice[0]} twice")
    for each in wanted:
        begun_run(each.config, each.out)


def begun_run(config: Config, out: Path) -> Run | None:
    """Return the run of this config that was begun in a folder, None where it is free; another run is refused."""
    if not (out / "config.json").is_file():
        Run.check_free(out, config)
        return None
    run = Run(out)
    theirs, ours = ({**c.identity(), "seed": c.seed, "data": c.data} for c in (run.config, config))
    if differ := [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]:
        told = ", ".join(f"{key} {theirs.get(key)} there, {ours.get(key)} here" for key in differ[:3])
        check.fail(str(run.path), "the run that is asked for, or none", f"another ({told}); choose another --out")
    return run


def _launched(wanted: list[Wanted], title: str | None, profile: bool = False) -> list[Run]:
    config = wanted[0].config
    return launch(make_fabric(config), config, _train, wanted, title, profile)


def _train(fabric: Fabric, wanted: list[Wanted], title: str | None, profile: bool) -> list[Run]:
    """Do what one process does; all processes do the same, and the first writes."""
    cores = shared_cores(fabric, wanted[0].config)
    with _alone_in_the_process(fabric), _fastest_kernels(fabric), cores, ExitStack() as begun:
        data = _open(fabric, wanted[0].config)
        jobs = [prepare(fabric, each.config, data) for each in wanted]
        torch.manual_seed(jobs[0].seed(fabric))
        loaders = _training_loaders(fabric, jobs)
        runs = [begun.enter_context(_begun(fabric, job, each.out)) for job, each in zip(jobs, wanted, strict=True)]
        fabric.barrier()
        console.say(f"{title or wanted[0].out}: {headline(fabric, jobs)}")
        began = time.monotonic()
        try:
            stages = [Stage(*each) for each in zip(jobs, loaders, runs, strict=True)]
            complaints: list[str] = []
            if jobs[0].method.features is None:
                stages, complaints = train_networks(fabric, stages, profile)
                stages, more = retrain_classifiers(fabric, stages)
                complaints += more
            elif profile:
                console.say(f"{jobs[0].config.method} trains no network: there is no step to profile.")
            finish(fabric, [stage.job for stage in stages], [stage.run for stage in stages])
            if complaints:  # the others are finished
                raise FloatingPointError("\n".join(complaints))
        except BaseException:
            with suppress(OSError):  # what happened before is what must be told
                _end_session(fabric, runs, began)
            raise
        _end_session(fabric, runs, began)
        fabric.barrier()  # until the first has scored, no other may say that the run is finished
    return runs


@contextmanager
def _begun(fabric: Fabric, job: Job, out: Path) -> Iterator[Run]:
    """Begin a run, or go on with it, and keep others from training it at the same time."""
    if not fabric.is_global_zero:
        yield Run(out)
        return
    out.mkdir(parents=True, exist_ok=True)
    with atomic.claimed(out, wait=False) as ours:
        if not ours:
            raise BusyError(out)
        run = Run(out) if (out / "config.json").is_file() else Run.create(out, job.config)
        run.begin(job.data, job.normalisation, {**job.decided, "device": str(fabric.device)}, job.config.fit)
        yield run


def _end_session(fabric: Fabric, runs: list[Run], began: float) -> None:
    if fabric.is_global_zero:
        for run in runs:
            run.end_session(seconds=round(time.monotonic() - began, 3), together=len(runs))


def _open(fabric: Fabric, config: Config) -> ImageData:
    with fabric.rank_zero_first():  # it may have to decode images; the others find them decoded
        return open_for_training(config)


def _training_loaders(fabric: Fabric, jobs: list[Job]) -> list[Loader]:
    """Return a loader for each job; pixels are kept once."""
    first = jobs[0].training_loader(fabric)
    return [first, *(first.with_sampler(job.sampler(fabric), job.config.seed) for job in jobs[1:])]


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
