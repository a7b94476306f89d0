"""reproduce: from an experiment to its results. What is recorded or finished is left as it is; the rest is trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from rectifier._base import check, console
from rectifier.data.sources import MissingDataError
from rectifier.reproduce.experiment import PICTURES, Cell, Context, Experiment, Where
from rectifier.reproduce.folders import Again, folder_of
from rectifier.reproduce.ledger import Ledger, Place
from rectifier.reproduce.page import write_page
from rectifier.reproduce.records import Record, diverged_record, key_of, record_of, validation_score
from rectifier.reproduce.request import Request, only_what_each_has, with_text
from rectifier.reproduce.result import ALL, ExperimentResult
from rectifier.reproduce.views import summary_line
from rectifier.training import data_settings, fingerprints
from rectifier.training.config import Config
from rectifier.training.many import Planned, RunGroup, missing_groups, train_group
from rectifier.training.run.folder import Run

CHOICE_SEEDS = (1_000, 1_001)
"""Of the runs among which validation chooses: none of those that are scored on test."""


@dataclass(frozen=True)
class _Asked:
    """A cell for which validation shall choose; one that is not wanted is chosen for by what is recorded alone."""

    cell: Cell
    choice: Mapping[str, Sequence[Any]]
    wanted: bool

    @property
    def combinations(self) -> list[dict[str, Any]]:
        return [dict(zip(self.choice, values, strict=True)) for values in product(*self.choice.values())]


def reproduce(name: str, experiment: Experiment, request: Request) -> ExperimentResult:
    """Train what is missing, write ``NAME.json``, and render ``NAME.md`` with the paper's numbers beside ours."""
    only_what_each_has({name: experiment}, request.only)
    if request.quick and experiment.cells and not experiment.quick:
        check.fail("--quick", "an experiment that has settings for a small version (quick=...)", name)
    return _Work(name, experiment, request).done()


class _Work:
    """One experiment under way: the records so far are written after every group of runs."""

    def __init__(self, name: str, experiment: Experiment, request: Request) -> None:
        self._name, self._experiment, self._request = name, experiment, request
        self._ledger = Ledger(
            request.results / f"{name}.json", quick=request.quick, again=request.again, scored=experiment.scored
        )
        self._recipes: dict[str, dict[str, Any]] = {}
        self._chosen: dict[Where, dict[str, Any]] = {}
        self._again = Again(request.runs / f"{name}.again.json") if request.again else None
        self._prints: dict[str, frozenset[str] | None] = {}
        self._varied = {*experiment.recipe, *(name for cell in experiment.cells for name in cell.choose)}
        self._together = 1 if experiment.alone else request.together
        self._seeds = range(request.seeds or experiment.seeds_of(request.quick))

    def done(self) -> ExperimentResult:
        self._check_settings()
        if self._request.train:
            self._check_folders()
        self._choose()
        self._forget_other_data(self._settled(self._recorded_seeds()).values())
        if self._experiment.measure is not None and self._request.train:
            self._measure()
        if self._experiment.draw is not None and self._request.train and self._ledger.found:
            self._draw(self._experiment.draw)
        self._trained(self._all_configs(), self._experiment.scored)
        result = self._result(self._current())
        if self._request.train or (self._ledger.path.is_file() and (result.all_records or result.found)):
            result = self._write()
            write_page(result, self._request.quick, self._request.experiments)
        else:
            begun = f" but {check.amount(runs, 'run')} to choose from" if (runs := self._ledger.candidates()) else ""
            console.say(f"Nothing of {self._name} is recorded in {self._request.results}{begun}.")
        if self._again:
            self._again.end()
        return result

    def _check_folders(self) -> None:
        """Refuse folders that cannot be written to before anything is trained for them."""
        for option, folder in (("--results", self._request.results), ("--out", self._request.runs)):
            there = next(path for path in (folder, *folder.parents) if path.exists())
            if not there.is_dir() or not os.access(there, os.W_OK):
                check.fail(option, "a folder that can be written to", there)

    # Which settings.

    def _check_settings(self) -> None:
        """Refuse what cannot be trained before anything is."""
        for cell in self._experiment.cells:
            for grid in (self._experiment.recipe, cell.choose):
                for values in _Asked(cell, grid, wanted=True).combinations:
                    try:
                        self._config(cell, 0, values)
                    except (ValueError, TypeError) as error:
                        check.fail(f"cell {cell.name!r} of {self._name}", "one that can be trained", error)

    def _choose(self, train: bool = True) -> None:
        """Let validation choose: first how each column is trained, then what is a cell's own.

        Without ``train`` it chooses from what is recorded.
        """
        cells, recipe = self._experiment.cells, self._experiment.recipe
        if recipe:
            wanted = {cell.column for cell in cells if self._is_wanted(cell)}
            firsts = {cell.column: cell for cell in reversed(cells)}
            columns = [firsts[column] for column in dict.fromkeys(cell.column for cell in cells)]
            found = self._choices([_Asked(cell, recipe, train and cell.column in wanted) for cell in columns])
            self._recipes = {column: chosen for (_, column), chosen in found.items()}
        choosing = [cell for cell in cells if cell.choose and (not recipe or cell.column in self._recipes)]
        self._chosen = self._choices([_Asked(cell, cell.choose, train and self._is_wanted(cell)) for cell in choosing])

    def _choices(self, asked: Sequence[_Asked]) -> dict[Where, dict[str, Any]]:
        """Return the values that validation likes best, by runs of seeds of their own."""
        seeds = CHOICE_SEEDS[:1] if self._request.quick else CHOICE_SEEDS
        tried = {
            index: [(values, [self._config(one.cell, seed, values) for seed in seeds]) for values in one.combinations]
            for index, one in enumerate(asked)
        }
        configs = {index: [config for _, those in own for config in those] for index, own in tried.items()}
        self._trained([config for index, own in configs.items() if asked[index].wanted for config in own], scored=False)
        candidates = self._ledger.consider(key_of(config) for own in configs.values() for config in own)

        def liking(candidate: tuple[dict[str, Any], list[Config]]) -> float:
            return float(sum(candidates[key_of(config)]["liking"] for config in candidate[1]))

        # Where not all may be trained, nothing is chosen: the best of what happens to be there is no choice.
        complete = [index for index, own in configs.items() if all(key_of(config) in candidates for config in own)]
        return {
            (asked[index].cell.row, asked[index].cell.column): max(tried[index], key=liking)[0] for index in complete
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

    def _settled(self, seeds: Iterable[int]) -> dict[Place, Config]:
        cells = list(filter(self._is_settled, self._experiment.cells))
        return {(cell.row, cell.column, s): self._config(cell, s) for cell in cells for s in seeds}

    def _keys(self, seeds: Iterable[int]) -> dict[Place, str]:
        return {place: key_of(config) for place, config in self._settled(seeds).items()}

    def _recorded_seeds(self) -> list[int]:
        """Return the seeds that are asked for, and those that are recorded beside them."""
        return sorted({*self._seeds, *self._ledger.seeds()}.difference(CHOICE_SEEDS))

    def _is_wanted(self, cell: Cell) -> bool:
        only = self._request.only
        return not only or any(cell in with_text(self._experiment.cells, text) for text in only)

    def _all_configs(self) -> list[Config]:
        wanted = [cell for cell in self._experiment.cells if self._is_wanted(cell) and self._is_settled(cell)]
        return [self._config(cell, seed) for cell in wanted for seed in self._seeds]

    # Runs.

    def _trained(self, configs: Sequence[Config], scored: bool = True) -> None:
        """Train the runs that are not known."""
        self._forget_other_data(configs)
        wanted = {key_of(config): config for config in configs}
        missing = {key: config for key, config in wanted.items() if not self._ledger.knows(key, scored)}
        self._train([self._planned(key, config) for key, config in missing.items()], scored)

    def _train(self, planned: Sequence[Planned], scored: bool = True) -> None:
        """Train what is not finished, and record what is; a run that diverges is recorded as one that did."""
        for run in planned:
            if Run(run.folder).is_finished:
                self._ledger.keep(record_of(Run(run.folder)), scored)
        for group in missing_groups(planned, self._together) if self._request.train else ():
            reasons = _trained_or_why_not(group)
            for run in group.runs:
                self._ledger.keep(_record(run, reasons), scored)
            self._write()

    def _forget_other_data(self, configs: Iterable[Config]) -> None:
        """Leave records alone that are of other data than what lies here, so that they are trained anew."""
        if not self._request.train:
            return
        unlike = 0
        for config in configs:
            record = self._ledger.recorded(key := key_of(config))
            there = self._fingerprints(config) if record else None
            if record and there is not None and record["data"]["fingerprint"] not in there:
                self._ledger.forget(key)
                unlike += 1
        if unlike:
            told = "of other images, labels or parts than those here: they count no longer, and are trained anew"
            console.say(f"{check.amount(unlike, 'recorded run')} {told}.")

    def _fingerprints(self, config: Config) -> frozenset[str] | None:
        """Return the fingerprints that a run's data could have, or None where the data is not here."""
        told = f"{data_settings(config)} {config.seed if config.resplit else ''}"
        if told not in self._prints:
            try:
                self._prints[told] = fingerprints(config)
            except FileNotFoundError:
                self._prints[told] = None
        return self._prints[told]

    def _planned(self, key: str, config: Config) -> Planned:
        varied = {name: value for name, value in config.identity().items() if name in self._varied}
        told = "".join(f" {name}={value}" for name, value in {**config.method_options, **varied}.items())
        name = f"{config.method}{told} on {config.network}, seed {config.seed}"
        folder = self._request.runs / f"{config.method}-{config.network}-{key}"
        there = self._fingerprints(config) if self._request.train and folder.exists() else None
        where = self._again.folder(key, folder, there) if self._again else folder_of(folder, there)
        return Planned(name, config, where)

    # Beside runs.

    def _measure(self) -> None:
        """Find what the experiment looks for beside scores, unless it was found already, in these very runs.

        Where nothing is trained, data alone is looked at, and by now there may be more of it.
        """
        if self._request.only:
            console.say("What is measured beside scores needs all runs: it is done without --only.")
            return
        ledger, wanted = self._ledger, set(self._keys(self._seeds).values())
        measured, recorded = set(ledger.measured_in), set(self._keys(self._recorded_seeds()).values())
        # More seeds may have been measured than are asked for; a run without a record will be another one.
        is_done = ledger.found and wanted <= measured <= recorded and all(key in ledger for key in wanted)
        if not self._experiment.cells or not is_done or self._request.again:
            ledger.measured_apart = []
            ledger.found, ledger.measured_in = self._measured(), sorted(wanted)

    def _measured(self) -> dict[str, Any]:
        picture = self._pictures() / f"{self._name}.png"
        picture.unlink(missing_ok=True)  # what it shows was found before
        return self._experiment.measure(self._context())  # type: ignore[misc]

    def _draw(self, draw: Callable[[Context], None]) -> None:
        """Draw the picture that shows images of the data, unless it is there."""
        if not (self._pictures() / f"{self._name}.png").is_file():
            try:
                draw(self._context())
            except MissingDataError as error:
                console.say(f"The picture of {self._name} is not drawn, for want of its images. {error}")

    def _pictures(self) -> Path:
        return self._request.runs.parent / PICTURES[self._request.quick]

    def _context(self) -> Context:
        return Context(
            data_root=self._request.settings.get("data_root"),
            quick=self._request.quick,
            before=self._ledger.found,
            pictures=self._pictures(),
            runs=self._folders,
            config=lambda row, column: self._config(self._experiment.cell(row, column), 0),
        )

    def _folders(self, row: str, column: str = "") -> list[Run]:
        """Return the folders of a cell's runs, which are trained where only records are left of them.

        Those that diverged are not among them.
        """
        cell = self._experiment.cell(row, column)
        configs = {key_of(config): config for config in (self._config(cell, seed) for seed in self._seeds)}
        sound = [key for key in configs if key not in self._ledger or "diverged" not in self._ledger[key]]
        planned = [self._planned(key, configs[key]) for key in sound]
        self._train(planned)
        runs = {key: Run(run.folder) for key, run in zip(sound, planned, strict=True) if Run(run.folder).is_finished}
        # A lost run keeps its record, and on a GPU what is looked at in its place is another.
        other = [key for key, run in runs.items() if validation_score(run) != self._ledger[key]["liking"]]
        self._ledger.measured_apart = sorted({*self._ledger.measured_apart, *other})
        return list(runs.values())

    # Results.

    def _current(self) -> dict[Place, Record]:
        """Return what is recorded of the cells as they are: of more seeds, too, than are asked for."""
        return self._ledger.current(self._keys(self._recorded_seeds()))

    def _result(self, current: Mapping[Place, Record]) -> ExperimentResult:
        records: dict[Where, dict[int, Record]] = {}
        for (row, column, seed), record in current.items():
            if "diverged" not in record:
                records.setdefault((row, column), {})[seed] = record
        diverged = [place for place, record in current.items() if "diverged" in record]
        ledger, results = self._ledger, self._request.results
        chosen = {(ALL, column): values for column, values in self._recipes.items()} | self._chosen
        beside = (diverged, ledger.superseded(current), ledger.measured_in, ledger.measured_apart)
        return ExperimentResult(self._name, self._experiment, records, chosen, ledger.found, results, *beside)

    def _write(self) -> ExperimentResult:
        """Write the experiment's file, with what others have recorded in it, and return what it holds."""
        with self._ledger.open_file() as others_wrote:
            if others_wrote:
                self._choose(train=False)
            current = self._current()
            result = self._result(current)
            runs = self._ledger.write(self._facts(result), current)
        if self._request.train and not self._request.quick:
            console.say(f"{self._ledger.path}: {check.amount(runs, 'run')}")
        return result

    def _facts(self, result: ExperimentResult) -> dict[str, Any]:
        return {
            "experiment": self._name,
            "title": self._experiment.title,
            "headline": summary_line(result),
            "chosen": [{"row": row, "column": column, **chosen} for (row, column), chosen in result.chosen.items()],
            "quick": self._request.quick,
        }


def _trained_or_why_not(group: RunGroup) -> list[str]:
    """Train a group; return what runs died of that diverged, which keeps no other from its own."""
    try:
        train_group(group)
    except FloatingPointError as error:
        return str(error).splitlines()
    return []


def _record(run: Planned, reasons: Sequence[str]) -> Record:
    """Return the record of a run that has been trained, to its end or until it diverged."""
    trained = Run(run.folder)
    if trained.is_finished or not reasons:
        return record_of(trained)
    reason = next((reason for reason in reasons if str(run.folder) in reason), reasons[0])
    console.say(f"{run.name} diverged, and is recorded so; --again trains it anew. {reason}")
    return diverged_record(trained, reason)
