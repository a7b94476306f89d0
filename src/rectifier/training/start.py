"""train and resume: from a config to a finished run. Check, then write; train; predict once; score."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import torch
from lightning.fabric import Fabric

from rectifier._base import console
from rectifier._base.files import claimed
from rectifier.training.config import Config
from rectifier.training.engine.devices import launch, make_fabric, set_up
from rectifier.training.finish import finish
from rectifier.training.job import Job, RunSpec, engine_options, headline, open_jobs
from rectifier.training.run.folder import Run
from rectifier.training.stages import retrain_classifiers, train_networks


class BusyError(ValueError):
    """Another process trains the run in ``folder``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder

    def __str__(self) -> str:
        return f"{self.folder} is being trained by another process."


def train(
    config: Config, out: str | Path, *, title: str | None = None, profile: bool = False, job: Job | None = None
) -> Run:
    """Train a network and save the run in a new folder; return the finished run.

    Nothing is written before data, network and method are checked. ``resume`` continues a run that was stopped.

    Args:
        config: the settings.
        out: a new or empty folder.
        title: the name of the run in messages.
        profile: print first where the time of a step goes.
        job: the run's data and objective, if they are open already.
    """
    spec = RunSpec(str(out), config.anchored(), Path(out)) if job is None else job.spec
    Run.check_free(out, spec.config)
    return train_specs([spec], title or spec.name, [job] if job else None, profile)[0]


def resume(run: str | Path | Run, *, title: str | None = None, step: str | None = None, job: Job | None = None) -> Run:
    """Resume a stopped run. The result is the same as without the stop; ``step`` changes how steps are computed."""
    opened = Run.open(run)
    if opened.is_finished:
        console.say(f"{opened.path} is finished.")
        return opened
    config = opened.config if step is None else replace(opened.config, step=step)
    spec = RunSpec(str(opened.path), config, opened.path)
    return train_specs([spec], title or spec.name, [job] if job is not None and job.config == config else None)[0]


def train_specs(
    specs: Sequence[RunSpec], title: str, jobs: Sequence[Job] | None = None, profile: bool = False
) -> list[Run]:
    """Train or resume runs that share data and devices, side by side. ``jobs`` are theirs, if they are open already."""
    options = engine_options(specs[0].config)
    here = jobs if options.processes == 1 else None  # other processes open the data themselves
    return launch(make_fabric(options), options, _train, list(specs), title, here, profile)


def _train(fabric: Fabric, specs: list[RunSpec], title: str, jobs: Sequence[Job] | None, profile: bool) -> list[Run]:
    """Do the work of one process. All processes do the same, and the first writes."""
    with set_up(fabric, engine_options(specs[0].config)):
        if jobs is None:
            with fabric.rank_zero_first():  # it may decode images, which the others then find
                jobs = open_jobs(specs)
        first = jobs[0].ready(fabric)
        jobs = [first, *(job.ready(fabric, first.loader) for job in jobs[1:])]
        torch.manual_seed(first.seed(fabric))
        with _sessions(fabric, jobs) if fabric.is_global_zero else nullcontext():
            fabric.barrier()
            console.say(f"{title}: {headline(fabric, jobs)}")
            _train_and_finish(fabric, jobs, profile)
        fabric.barrier()  # no process may report a finished run before the first has scored it
    return [job.run for job in jobs]


def _train_and_finish(fabric: Fabric, jobs: Sequence[Job], profile: bool) -> None:
    complaints: list[str] = []
    if jobs[0].method.features is None:
        jobs, complaints = train_networks(fabric, jobs, profile)
        jobs, more = retrain_classifiers(fabric, jobs)
        complaints += more
    elif profile:
        console.say(f"{jobs[0].config.method} trains no network: there is no step to profile.")
    finish(fabric, jobs)
    if complaints:  # the other runs are finished
        raise FloatingPointError("\n".join(complaints))


@contextmanager
def _sessions(fabric: Fabric, jobs: Sequence[Job]) -> Iterator[None]:
    """Create or reopen the runs, keep other processes from training them, and record how long the block takes."""
    with ExitStack() as stack:
        for job in jobs:
            folder = job.spec.folder
            folder.mkdir(parents=True, exist_ok=True)
            if not stack.enter_context(claimed(folder, wait=False)):
                raise BusyError(folder)
            if not (folder / "config.json").is_file():
                Run.create(folder, job.config, job.spec.config)
            job.run.begin(job.data, job.normalisation, {**job.resolved, "device": str(fabric.device)}, job.config.fit)
        started = time.monotonic()
        failed = True
        try:
            yield
            failed = False
        finally:
            with suppress(OSError) if failed else nullcontext():  # the first error is the one to report
                for job in jobs:
                    job.run.end_session(seconds=round(time.monotonic() - started, 3), together=len(jobs))
