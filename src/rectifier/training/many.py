"""Runs to compare: those that are there, and those that are missing, which are trained."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rectifier._base import check, console
from rectifier._base import files as atomic
from rectifier.training import (
    TOGETHER,
    BusyError,
    Wanted,
    begun_run,
    data_settings,
    diverged_at_the_end,
    resume,
    shared_settings,
    train,
    train_together,
    validate_before_training,
    why_not_together,
)
from rectifier.training.config import Config
from rectifier.training.engine.devices import is_first_process
from rectifier.training.run.folder import Run


@dataclass(frozen=True)
class Planned:
    """A run that shall be there."""

    name: str
    config: Config
    folder: Path


def plan(
    config: Config, methods: Sequence[str], seeds: int | Sequence[int], out: str | Path, *, resplit: bool = False
) -> list[Planned]:
    """List a run for each method and seed, all else as in ``config``.

    A method may carry options: ``crl:eta=0.5:kappa=10``. ``resplit`` draws the data's split anew with each seed.

    >>> [run.folder.name for run in plan(Config("digits"), ["ce", "crl:eta=0.5"], 2, "out")]
    ['ce-seed0', 'ce-seed1', 'crl-eta-0.5-seed0', 'crl-eta-0.5-seed1']
    """
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    if not methods or not numbers:
        check.fail("a comparison", "of at least one method and one seed", f"{len(methods)} and {len(numbers)}")
    planned = []
    for spec in dict.fromkeys(methods):
        chosen = config.with_settings({"method": spec})
        for seed in numbers:
            seeded = replace(chosen, seed=seed, resplit=resplit or chosen.resplit)
            name = re.sub(r"[^\w.+-]+", "-", spec)
            planned.append(
                Planned(f"{spec}, seed {seed}", seeded.anchored(), Path(out) / "runs" / f"{name}-seed{seed}")
            )
    return planned


def train_missing(planned: Sequence[Planned], together: int | None = None) -> list[Run]:
    """Train what is not there, go on with what is not finished, leave alone what is; return all.

    Runs are trained side by side, ``together`` at a time, where that is faster: by default as many as a GPU gains from.
    The results are those of runs alone, up to rounding.
    """
    with diverged_at_the_end() as diverged:
        for group in missing_groups(planned, together):
            with diverged():
                train_group(group)
    return [Run.open(run.folder) for run in planned]


@dataclass(frozen=True)
class RunGroup:
    """Missing runs that are trained at the same time, and how they are announced."""

    runs: list[Planned]
    title: str


def missing_groups(planned: Sequence[Planned], together: int | None = None) -> list[RunGroup]:
    """Return what is not there or not finished, in groups that are trained side by side."""
    missing = [run for run in planned if not _is_finished(run)]  # every folder is looked at before anything is trained
    if len(missing) > 1 and is_first_process():
        for alike in _by_data(missing):
            validate_before_training(alike)
    done, groups = 0, []
    for runs in _side_by_side(missing, together):
        done += len(runs)
        groups.append(RunGroup(runs, f"[{done}/{len(missing)}] {_joined_name(runs)}"))
    return groups


def train_group(group: RunGroup) -> None:
    """Train a group of runs, or go on with those that are begun; what another process trains is waited for."""
    while missing := [run for run in group.runs if not Run(run.folder).is_finished]:
        try:
            _train_now(missing, group.title)
            break
        except BusyError as busy:
            console.say(f"{busy} Waiting for it.")
            with atomic.claimed(busy.folder, wait=True):
                pass


def _train_now(runs: Sequence[Planned], title: str) -> None:
    first, *others = runs
    if others:
        train_together([Wanted(run.config, run.folder) for run in runs], title=title)
    elif (first.folder / "config.json").is_file():
        resume(first.folder, title=title)
    else:
        train(first.config, first.folder, title=title)


def _by_data(missing: Sequence[Planned]) -> list[list[Config]]:
    """Put configs together whose data is the same."""
    alike: dict[str, list[Config]] = {}
    for run in missing:
        alike.setdefault(data_settings(run.config), []).append(run.config)
    return list(alike.values())


def _side_by_side(missing: Sequence[Planned], together: int | None) -> list[list[Planned]]:
    """Put runs into groups that are trained at the same time."""
    if together is not None and not check.is_count(together):
        check.fail("together", "a positive integer", repr(together))
    alike: dict[str, list[Planned]] = {}
    reasons: dict[str, None] = {}
    for run in missing:
        reason = why_not_together(run.config)
        if reason is not None:
            reasons[reason] = None
        alike.setdefault(str(run.folder) if reason else repr(shared_settings(run.config)), []).append(run)
    if (together or 0) > 1 and len(missing) > 1:
        for reason in reasons:
            console.say(f"Runs are trained one after another: {reason}.")
    return [group for runs in alike.values() for group in _even_groups(runs, together or TOGETHER)]


def _even_groups(runs: list[Planned], largest: int) -> Iterator[list[Planned]]:
    """Yield groups of about the same size: ten runs, eight at most at a time, are two times five."""
    groups = -(-len(runs) // largest)
    for i in range(groups):
        yield runs[i * len(runs) // groups : (i + 1) * len(runs) // groups]


def _joined_name(group: Sequence[Planned]) -> str:
    """Return a name for runs side by side: each method with its seeds."""
    if len(group) == 1:
        return group[0].name
    seeds: dict[str, list[str]] = {}
    for run in group:
        seeds.setdefault(run.name.rpartition(", ")[0], []).append(str(run.config.seed))
    return "; ".join(f"{name}, seeds {' '.join(numbers)}" for name, numbers in seeds.items())


def _is_finished(planned: Planned) -> bool:
    """Say whether a planned run is there and done; a folder that holds another run is refused."""
    run = begun_run(planned.config, planned.folder)
    return run is not None and run.is_finished
