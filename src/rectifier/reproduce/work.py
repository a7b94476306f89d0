"""reproduce: from an experiment to its results. What is recorded or finished is left as it is; the rest is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, product
from pathlib import Path
from typing import Any

from rectifier import check, console
from rectifier.compare.suite import Planned, RunGroup, missing_groups, train_group
from rectifier.config import Config
from rectifier.reproduce.experiment import Cell, Experiment, Laboratory
from rectifier.reproduce.gathering import write_page
from rectifier.reproduce.outcome import Outcome
from rectifier.reproduce.records import (
    LISTS,
    Record,
    check_kind,
    diverged_record,
    key_of,
    placed,
    read_records,
    record_of,
    write_results,
)
from rectifier.reproduce.views import headline
from rectifier.runs.atomic import read_json
from rectifier.runs.folder import Run
from rectifier.training import data_settings, fingerprints

CHOICE_SEEDS = (1_000, 1_001)
"""Of the runs among which validation chooses: none of those that are scored on test."""

MOST_SEEDS = 20
"""Those below it are shown where they are recorded, however many are asked for."""

Where = tuple[str, str]


@dataclass(frozen=True)
class _Asked:
    """A cell for which validation shall choose; one that is not wanted is chosen for by what is recorded alone."""

    cell: Cell
    choice: Mapping[str, Sequence[Any]]
    wanted: bool

    @property
    def combinations(self) -> list[dict[str, Any]]:
        return [dict(zip(self.choice, values, strict=True)) for values in product(*self.choice.values())]


@dataclass(frozen=True)
class Request:
    """How an experiment shall be run.

    Args:
        results: the folder of ``NAME.json``, ``NAME.md`` and figures.
        runs: the folder that runs are trained in.
        settings: what holds for every run, as where data lies.
        seeds: of each cell; None: as many as the experiment asks for.
        quick: the small version.
        again: train anew what is recorded already.
        together: runs side by side on one GPU.
        train: whether what is missing is trained; else what is recorded is shown.
        only: train cells alone whose row or column has one of these texts; what is recorded of others is shown.
    """

    results: Path
    runs: Path
    settings: Mapping[str, Any]
    seeds: int | None = None
    quick: bool = False
    again: bool = False
    together: int | None = None
    train: bool = True
    only: Sequence[str] = ()


def reproduce(name: str, experiment: Experiment, request: Request) -> Outcome:
    """Train what is missing, write ``NAME.json``, and render ``NAME.md`` with the paper's numbers beside ours."""
    return _Work(name, experiment, request).done()


class _Work:
    """One experiment under way: the records so far are written after every group of runs."""

    def __init__(self, name: str, experiment: Experiment, request: Request) -> None:
        self._name, self._experiment, self._request = name, experiment, request
        check_kind(request.results, request.quick)
        self._path = request.results / f"{name}.json"
        self._known = {} if request.again else read_records(request.results, self._path)
        # What was recorded stays in the file until it is replaced, whatever interrupts the work.
        self._before: dict[str, Any] = read_json(self._path) if self._path.is_file() else {}
        self._recipes: dict[str, dict[str, Any]] = {}
        self._chosen: dict[Where, dict[str, Any]] = {}
        self._candidates: dict[str, Record] = {}
        self._found: dict[str, Any] = self._before.get("found") or {}
        self._measured_in: list[str] = self._before.get("measured") or []  # the runs that it was found in
        self._again: dict[str, Path] = {}
        self._prints: dict[str, frozenset[str] | None] = {}
        self._together = 1 if experiment.alone else request.together
        self._seeds = range(request.seeds or (2 if request.quick else experiment.seeds))

    def done(self) -> Outcome:
        self._check_only()
        self._choose()
        if self._experiment.measure is not None and self._request.train:
            self._measure()
        self._trained(self._all_configs())
        outcome = self._outcome()
        if self._request.train or outcome.all_records or outcome.found:
            self._write()
            write_page(outcome, self._request.quick)
        else:
            console.say(f"Nothing of {self._name} is recorded in {self._request.results}.")
        return outcome

    def _check_only(self) -> None:
        cells = self._experiment.cells
        there = dict.fromkeys(name for cell in cells for name in (cell.row, cell.column) if name)
        for text in self._request.only if cells else ():
            if not any(_has(cell, text) for cell in cells):
                check.fail("--only", f"a part of a row or column ({', '.join(there)})", repr(text))

    # Which settings.

    def _choose(self) -> None:
        """Let validation choose: first how each column is trained, then what is a cell's own."""
        cells, recipe = self._experiment.cells, self._experiment.recipe
        if recipe:
            wanted = {cell.column for cell in cells if self._is_wanted(cell)}
            firsts = {cell.column: cell for cell in reversed(cells)}
            columns = [firsts[column] for column in dict.fromkeys(cell.column for cell in cells)]
            found = self._choices([_Asked(cell, recipe, cell.column in wanted) for cell in columns])
            self._recipes = {column: chosen for (_, column), chosen in found.items()}
        own = [_Asked(cell, cell.choose, self._is_wanted(cell)) for cell in cells if cell.choose]
        self._chosen = self._choices(own)

    def _choices(self, asked: Sequence[_Asked]) -> dict[Where, dict[str, Any]]:
        """Return the values that validation likes best, by runs of seeds of their own."""
        seeds = CHOICE_SEEDS[:1] if self._request.quick else CHOICE_SEEDS
        tried = {
            index: [(values, [self._config(one.cell, seed, values) for seed in seeds]) for values in one.combinations]
            for index, one in enumerate(asked)
        }
        for wanted in (True, False):
            indices = [index for index, one in enumerate(asked) if one.wanted == wanted]
            configs = [config for index in indices for _, those in tried[index] for config in those]
            self._candidates |= self._trained(configs, scored=False) if wanted else self._recorded(configs)

        def liking(candidate: tuple[dict[str, Any], list[Config]]) -> float:
            records = [self._candidates.get(key_of(config)) for config in candidate[1]]
            known = [record["liking"] for record in records if record is not None]
            return sum(known) / len(known) if len(known) == len(seeds) else -1.0  # where not all may be trained

        best = {index: max(candidates, key=liking) for index, candidates in tried.items()}
        return {
            (asked[index].cell.row, asked[index].cell.column): candidate[0]
            for index, candidate in best.items()
            if liking(candidate) >= 0
        }

    def _config(self, cell: Cell, seed: int, chosen: Mapping[str, Any] | None = None) -> Config:
        chosen = self._chosen.get((cell.row, cell.column), {}) if chosen is None else chosen
        more = {**self._recipes.get(cell.column, {}), **chosen}
        config = self._experiment.config(cell, quick=self._request.quick, more=more)
        return replace(config.with_settings(self._request.settings), seed=seed).anchored()

    def _is_settled(self, cell: Cell) -> bool:
        """Say whether all is chosen that is to be chosen: what has other settings by default is no run of the cell."""
        own = not cell.choose or (cell.row, cell.column) in self._chosen
        return own and (not self._experiment.recipe or cell.column in self._recipes)

    def _keys(self, seeds: Iterable[int]) -> dict[tuple[str, str, int], str]:
        cells = list(filter(self._is_settled, self._experiment.cells))
        return {(cell.row, cell.column, s): key_of(self._config(cell, s)) for cell in cells for s in seeds}

    def _is_wanted(self, cell: Cell) -> bool:
        return not self._request.only or any(_has(cell, text) for text in self._request.only)

    def _all_configs(self) -> list[Config]:
        wanted = [cell for cell in self._experiment.cells if self._is_wanted(cell) and self._is_settled(cell)]
        return [self._config(cell, seed) for cell in wanted for seed in self._seeds]

    # Runs.

    def _trained(self, configs: Sequence[Config], scored: bool = True) -> dict[str, Record]:
        """Return the records of some runs; those that are not known are trained."""
        wanted = {key_of(config): config for config in configs}
        self._forget_other_data(wanted)
        missing = [self._planned(key, config) for key, config in wanted.items() if key not in self._known]
        self._train(missing, scored)
        return self._recorded(configs)

    def _train(self, planned: Sequence[Planned], scored: bool = True) -> None:
        """Train what is not finished, and record what is; a run that diverges is recorded as one that did."""
        self._note([run for run in planned if Run(run.folder).is_finished], scored)
        for group in missing_groups(planned, self._together) if self._request.train else ():
            reason = _trained_or_why_not(group)
            self._note([run for run in group.runs if reason is None or Run(run.folder).is_finished], scored)
            if reason is not None:
                self._note_diverged([run for run in group.runs if not Run(run.folder).is_finished], reason, scored)
            self._write()

    def _forget_other_data(self, wanted: Mapping[str, Config]) -> None:
        """Leave records alone that are of other images than those that lie here, so that they are trained anew."""
        if not self._request.train:
            return
        unlike = 0
        for key, config in wanted.items():
            there = self._fingerprints(config) if key in self._known else None
            if there is not None and self._known[key]["data"]["fingerprint"] not in there:
                del self._known[key]
                unlike += 1
        if unlike:
            console.say(f"{check.amount(unlike, 'recorded run')} of other images than those here: trained anew.")

    def _fingerprints(self, config: Config) -> frozenset[str] | None:
        """Return the fingerprints that a run's data could have, or None where the data is not here."""
        told = f"{data_settings(config)} {config.seed if config.resplit else ''}"
        if told not in self._prints:
            try:
                self._prints[told] = fingerprints(config)
            except FileNotFoundError:
                self._prints[told] = None
        return self._prints[told]

    def _recorded(self, configs: Sequence[Config]) -> dict[str, Record]:
        return {key: self._known[key] for config in configs if (key := key_of(config)) in self._known}

    def _note(self, runs: Sequence[Planned], scored: bool) -> None:
        for run in runs:
            record = record_of(Run(run.folder))
            if not scored:  # it is there to be chosen from, and its test scores are not looked at
                record.pop("test")
                self._candidates[record["key"]] = record
            self._known[record["key"]] = record

    def _note_diverged(self, runs: Sequence[Planned], reason: str, scored: bool) -> None:
        for run in runs:
            console.say(f"{run.name} diverged, and is recorded so; --again trains it anew. {reason}")
            record = diverged_record(Run(run.folder), reason)
            self._known[record["key"]] = record
            if not scored:
                self._candidates[record["key"]] = record

    def _planned(self, key: str, config: Config) -> Planned:
        told = "".join(f" {name}={value}" for name, value in config.method_options.items())
        name = f"{config.method}{told} on {config.network}, seed {config.seed}"
        folder = self._request.runs / f"{config.method}-{config.network}-{key}"
        if self._request.again:
            folder = self._again.setdefault(key, _unfinished(folder))
        return Planned(name, config, folder)

    # Beside runs.

    def _measure(self) -> None:
        """Find what the experiment looks for beside scores, unless it was found already, in these very runs."""
        if self._request.only:
            console.say("What is measured beside scores needs all runs: it is done without --only.")
            return
        wanted = sorted(self._keys(self._seeds).values())
        if not self._found or wanted != self._measured_in or self._request.again:
            self._found, self._measured_in = self._measured(), wanted

    def _measured(self) -> dict[str, Any]:
        laboratory = Laboratory(
            data_root=self._request.settings.get("data_root"),
            quick=self._request.quick,
            seeds=len(self._seeds),
            pictures=self._request.runs.parent / ("quick-pictures" if self._request.quick else "pictures"),
            runs=self._folders,
        )
        return self._experiment.measure(laboratory)  # type: ignore[misc]

    def _folders(self, row: str, column: str = "") -> list[Run]:
        """Return the folders of a cell's runs, which are trained where only records are left of them.

        Those that diverged are not among them.
        """
        cell = self._experiment.cell(row, column)
        configs = {key_of(config): config for config in (self._config(cell, seed) for seed in self._seeds)}
        sound = [key for key in configs if "diverged" not in self._known.get(key, {})]
        planned = [self._planned(key, configs[key]) for key in sound]
        self._train(planned)
        return [Run(run.folder) for run in planned if Run(run.folder).is_finished]

    # Results.

    def _outcome(self) -> Outcome:
        records: dict[Where, dict[int, Record]] = {}
        diverged: list[tuple[str, str, int]] = []
        for (row, column, seed), record in self._current().items():
            if "diverged" in record:
                diverged.append((row, column, seed))
            else:
                records.setdefault((row, column), {})[seed] = record
        results = self._request.results
        chosen = {("all", column): values for column, values in self._recipes.items()} | self._chosen
        return Outcome(self._name, self._experiment, records, chosen, self._found, results, diverged)

    def _current(self) -> dict[tuple[str, str, int], Record]:
        """Return what is recorded of the cells as they are; what is not trained anew yet is what it was."""
        before = self._recorded_before() | self._known
        keys = self._keys(range(max(MOST_SEEDS, len(self._seeds))))
        known = {where: before[key] for where, key in keys.items() if key in before}
        return {where: record for where, record in known.items() if "test" in record or "diverged" in record}

    def _recorded_before(self) -> dict[str, Record]:
        return {one["key"]: one for part in LISTS for one in self._before.get(part, ())}

    def _write(self) -> None:
        outcome = self._outcome()
        facts = {
            "experiment": self._name,
            "title": self._experiment.title,
            "headline": headline(outcome),
            "chosen": [{"row": row, "column": column, **chosen} for (row, column), chosen in outcome.chosen.items()],
            "quick": self._request.quick,
            "found": self._found,
            "measured": self._measured_in,
        }
        current = reversed(self._current().items())  # two cells may share a run, which is listed for the first
        runs = list(reversed({one["key"]: placed(one, row, column) for (row, column, _), one in current}.values()))
        of_now = {record["key"] for record in runs} | set(self._candidates)
        before = [one for key, one in self._recorded_before().items() if key not in of_now]
        candidates = list(self._candidates.values())
        write_results(self._path, facts, {"runs": runs, "candidates": candidates, "superseded": before})
        if self._request.train and not self._request.quick:
            console.say(f"{self._path}: {len(runs)} runs")


def _trained_or_why_not(group: RunGroup) -> str | None:
    """Train a group; return what a run died of that diverged, which keeps no other from its own."""
    try:
        train_group(group)
    except FloatingPointError as error:
        return str(error).splitlines()[0]
    return None


def _has(cell: Cell, text: str) -> bool:
    return text.lower() in f"{cell.row}\n{cell.column}".lower()


def _unfinished(folder: Path) -> Path:
    """Return the folder, or the first with a number behind its name, in which no run is finished."""
    numbered = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
    return next(path for path in chain([folder], numbered) if not Run(path).is_finished)
