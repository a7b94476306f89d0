"""Train several runs: plan them, check them all, and train the missing ones, side by side where that is faster."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rectifier._base import check, console
from rectifier._base.files import claimed
from rectifier.methods import find_method
from rectifier.training.config import AUTO, Config
from rectifier.training.engine.devices import accelerator_of, is_first_process
from rectifier.training.job import Job, RunSpec, engine_options, open_jobs, prepare
from rectifier.training.recipe import may_train_heads
from rectifier.training.run.folder import Run
from rectifier.training.start import BusyError, resume, train, train_specs

TOGETHER = 8
"""How many runs are trained side by side: with more, an H200 gains little."""

OWN = (
    *("seed", "method", "method_options", "network_options", "epochs", "optimizer", "lr", "momentum", "nesterov"),
    *("weight_decay", "schedule", "milestones", "decay", "warmup", "clip", "accumulate", "validate_every", "patience"),
    *("select", "tensorboard", "features", "heads", "noise", "smoothing", "rate_decay", "freeze_norm", "ema"),
)
"""The settings in which runs side by side may differ. They share the rest, because they share pixels and devices."""


def plan(
    config: Config, methods: Sequence[str], seeds: int | Sequence[int], out: str | Path, *, resplit: bool = False
) -> list[RunSpec]:
    """List a run for each method and seed, with all other settings from ``config``.

    A method may have options: ``crl:eta=0.5:kappa=10``. ``resplit`` draws a new split of the data for each seed.

    >>> [run.folder.name for run in plan(Config("digits"), ["ce", "crl:eta=0.5"], 2, "out")]
    ['ce-seed0', 'ce-seed1', 'crl-eta-0.5-seed0', 'crl-eta-0.5-seed1']
    """
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    if not methods or not numbers:
        check.fail("a comparison", "of at least one method and one seed", f"{len(methods)} and {len(numbers)}")
    planned = []
    for method in dict.fromkeys(methods):
        chosen = config.with_settings({"method": method}).anchored()
        name = re.sub(r"[^\w.+-]+", "-", method)
        for seed in numbers:
            seeded = replace(chosen, seed=seed, resplit=resplit or chosen.resplit)
            planned.append(RunSpec(f"{method}, seed {seed}", seeded, Path(out) / "runs" / f"{name}-seed{seed}"))
    return planned


def train_missing(planned: Sequence[RunSpec], together: int | None = None) -> list[Run]:
    """Train the runs that are missing, resume the unfinished ones, and return all of them.

    ``together`` runs are trained side by side where that is faster: by default as many as a GPU gains from. The results
    are those of single runs, up to rounding. Runs that diverge are reported at the end, when the others are finished.
    """
    complaints = [complaint for _, found in train_groups(planned, together) for complaint in found]
    if complaints:
        raise FloatingPointError("\n".join(complaints))
    return [Run.open(run.folder) for run in planned]


def train_groups(planned: Sequence[RunSpec], together: int | None = None) -> Iterator[tuple[list[RunSpec], list[str]]]:
    """Train missing runs in groups; yield each trained group, with the errors of its runs that diverged."""
    missing = [run for run in planned if not _is_finished(run)]  # checks every folder before the first training
    jobs = validate_before_training(missing) if len(missing) > 1 and is_first_process() else {}
    done = 0
    for group in _side_by_side(missing, together):
        done += len(group)
        complaints: list[str] = []
        try:
            _train_group(group, f"[{done}/{len(missing)}] {group_name(group)}", jobs)
        except FloatingPointError as error:
            complaints = str(error).splitlines()
        for run in group:
            jobs.pop(run.folder, None)
        yield group, complaints


def validate_before_training(specs: Sequence[RunSpec]) -> dict[Path, Job]:
    """Find what is wrong with any run before the first is trained; return the jobs by folder.

    Data that runs share is opened once. Samplers are tried for one seed of each kind of run.
    """
    jobs = open_jobs(specs)
    kinds = {repr({**job.config.as_dict(), "seed": 0}): job for job in jobs}
    for job in kinds.values():
        job.sampler(job.options.processes)
    return {job.spec.folder: job for job in jobs}


def _train_group(group: Sequence[RunSpec], title: str, jobs: Mapping[Path, Job]) -> None:
    """Train or resume the runs of a group. A run that another process trains is waited for."""
    while missing := [run for run in group if not Run(run.folder).is_finished]:
        first, *others = missing
        known = [jobs[run.folder] for run in missing if run.folder in jobs]
        try:
            if others:
                train_together(missing, title=title, jobs=known if len(known) == len(missing) else None)
            elif (first.folder / "config.json").is_file():
                resume(first.folder, title=title, job=jobs.get(first.folder))
            else:
                train(first.config, first.folder, title=title, job=jobs.get(first.folder))
            return
        except BusyError as busy:
            console.say(f"{busy} Waiting for it.")
            with claimed(busy.folder, wait=True):
                pass


def train_together(
    specs: Sequence[RunSpec], *, title: str | None = None, jobs: Sequence[Job] | None = None
) -> list[Run]:
    """Train or resume runs on the same data side by side on one device, and return them finished.

    They may differ in the settings ``OWN``. Each run ends as if it were alone, up to rounding. Runs that do not fit
    into the device's memory together are trained in two halves.
    """
    if jobs is None:  # else their configs are checked
        specs = [replace(spec, config=spec.config.anchored()) for spec in specs]
    _check(specs)
    title = title or group_name(specs)
    with suppress(torch.OutOfMemoryError) if len(specs) > 1 else nullcontext():
        return train_specs(specs, title, jobs)
    half = len(specs) // 2
    console.say(f"{len(specs)} runs do not fit into memory together: first {half}, then {len(specs) - half}.")
    gc.collect()
    # The first attempt may have changed the objectives.
    fresh = None if jobs is None else [prepare(job.spec, job.opened, job.normalisation) for job in jobs]
    complaints = []
    for number, part in enumerate((slice(half), slice(half, None)), 1):
        try:
            train_together(specs[part], title=f"{title}, part {number} of 2", jobs=fresh and fresh[part])
        except FloatingPointError as error:
            complaints.append(str(error))
    if complaints:
        raise FloatingPointError("\n".join(complaints))
    return [Run.open(spec.folder) for spec in specs]


def shared_settings(config: Config) -> dict[str, Any]:
    """Return the settings that runs side by side have in common."""
    return {key: value for key, value in config.as_dict().items() if key not in OWN}


def why_not_together(config: Config) -> str | None:
    """Say why a run is not trained side by side with others, or None."""
    if reason := _why_never_together(config):
        return reason
    if may_train_heads(config):
        return None
    if accelerator_of(engine_options(config)) != "cuda":
        return "training side by side is faster only on a GPU"
    return "steps are not captured" if config.step == "eager" or config.precision == "16" else None


def _why_never_together(config: Config) -> str | None:
    if config.devices * config.nodes > 1:
        return "each run has several devices of its own"
    if config.resplit:
        return "each seed has a split of its own"
    trains = config.method == AUTO or find_method(config.method).features is None
    return None if trains else f"{config.method} trains no network"


def _check(specs: Sequence[RunSpec]) -> None:
    """Refuse runs that cannot be trained side by side, and folders that are shared or hold another run."""
    if not specs:
        check.fail("runs that are trained together", "at least one", "none")
    first, *others = [spec.config for spec in specs]
    common = shared_settings(first)
    for other in others:
        if differ := [key for key, value in shared_settings(other).items() if common[key] != value]:
            raise ValueError(f"Runs that are trained together must have the same {', '.join(differ)}.")
        if reason := _why_never_together(first) or _why_never_together(other):
            raise ValueError(f"These runs cannot be trained together: {reason}.")
    folders = [spec.folder.resolve() for spec in specs]
    for spec, folder in zip(specs, folders, strict=True):
        if folders.count(folder) > 1:
            raise ValueError(f"{spec.folder} is the folder of two runs. Each run needs its own.")
        _is_finished(spec)


def _is_finished(spec: RunSpec) -> bool:
    """Say whether the folder of a spec holds the finished run; refuse a folder with another run or other files."""
    run = Run(spec.folder)
    if not (run.path / "config.json").is_file():
        Run.check_free(run.path, spec.config)
        return False
    asked, settled, ours = (
        {**each.identity(), "seed": each.seed, "data": each.data} for each in (run.asked, run.config, spec.config)
    )
    theirs = settled if ours == settled else asked
    if differ := [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]:
        listed = ", ".join(f"{key} {theirs.get(key)} there, {ours.get(key)} here" for key in differ[:3])
        raise ValueError(f"{run.path} holds another run ({listed}). Choose another folder.")
    return run.is_finished


def _side_by_side(missing: Sequence[RunSpec], together: int | None) -> list[list[RunSpec]]:
    """Put runs into groups that are trained at the same time."""
    if together is not None and not check.is_count(together):
        check.fail("together", "a positive integer", repr(together))
    alike: dict[str, list[RunSpec]] = {}
    reasons = [why_not_together(run.config) for run in missing]
    for run, reason in zip(missing, reasons, strict=True):
        alike.setdefault(str(run.folder) if reason else repr(shared_settings(run.config)), []).append(run)
    if (together or 0) > 1 and len(missing) > 1:
        for reason in filter(None, dict.fromkeys(reasons)):
            console.say(f"Runs are trained one after another: {reason}.")
    largest = together or TOGETHER
    groups = []
    for runs in alike.values():
        count = -(-len(runs) // largest)  # of about the same size: ten runs, at most eight at a time, are five and five
        groups += [runs[i * len(runs) // count : (i + 1) * len(runs) // count] for i in range(count)]
    return groups


def group_name(group: Sequence[RunSpec]) -> str:
    """Return a name for runs side by side: each method with its seeds."""
    if len(group) == 1:
        return group[0].name
    seeds: dict[str, list[str]] = {}
    for run in group:
        seeds.setdefault(run.name.rpartition(", ")[0], []).append(str(run.config.seed))
    return "; ".join(f"{name}, seeds {' '.join(numbers)}" for name, numbers in seeds.items())
