"""reproduce: from an experiment to its results. Recorded and finished runs are kept; the rest is trained."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from rectifier._base import check, console
from rectifier.data.sources import MissingDataError
from rectifier.reproduce import runs
from rectifier.reproduce.experiment import PICTURES, Cell, Context, Experiment, Settings, Where
from rectifier.reproduce.page import write_page
from rectifier.reproduce.record_store import Place, RecordStore
from rectifier.reproduce.records import Record, key_of, validation_score
from rectifier.reproduce.request import Request, only_what_each_has, with_text
from rectifier.reproduce.result import ALL, ExperimentResult
from rectifier.reproduce.views import summary_line
from rectifier.training.config import Config
from rectifier.training.run.folder import Run

CHOICE_SEEDS = (1_000, 1_001)
"""Seeds of the runs that validation chooses from; they are never scored on test."""

RECORDS = {False: "records", True: "quick-records"}
"""Folders, next to the runs, with one file for each record: full and small version."""


def reproduce(name: str, experiment: Experiment, request: Request) -> ExperimentResult:
    """Train missing runs, write ``NAME.json``, and render ``NAME.md`` with the paper's numbers next to ours."""
    only_what_each_has({name: experiment}, request.only)
    if request.quick and experiment.cells and not experiment.quick:
        raise ValueError(f"{name} has no small version: the experiment defines no `quick` settings.")
    return _Work(name, experiment, request).done()


class _Work:
    """One experiment being run; records are written after every group of runs."""

    def __init__(self, name: str, experiment: Experiment, request: Request) -> None:
        self._name, self._experiment, self._request = name, experiment, request
        out = request.runs.parent
        self._pictures = out / PICTURES[request.quick]
        self._store = RecordStore(
            request.results / f"{name}.json",
            out / RECORDS[request.quick] / name,
            quick=request.quick,
            again=request.again,
            scored=experiment.scored,
        )
        self._runs = runs.RunFolders(
            request.runs,
            {*experiment.recipe, *(name for cell in experiment.cells for name in cell.choose)},
            check_data=request.train,
            again=request.runs / f"{name}.again.json" if request.again else None,
        )
        self._recipes: dict[str, dict[str, Any]] = {}
        self._chosen: dict[Where, dict[str, Any]] = {}
        self._configs: dict[tuple[str, str, int, str], Config] = {}
        self._seeds = range(request.seeds or experiment.seeds_of(request.quick))

    def done(self) -> ExperimentResult:
        self._check_settings()
        if self._request.train:
            self._check_folders()
        self._choose()
        self._forget_other_data(self._settled(self._recorded_seeds()).values())
        if self._request.train:
            self._measure()
            self._draw()
        wanted = [cell for cell in self._experiment.cells if self._is_wanted(cell) and self._is_settled(cell)]
        self._train_missing([self._config(cell, seed) for cell in wanted for seed in self._seeds])
        result = self._result(self._current())
        if self._request.train or (self._store.path.is_file() and (result.all_records or result.found)):
            result = self._write()
            write_page(result, self._request.quick, self._request.experiments)
        else:
            more = f" {check.amount(known, 'candidate run')} recorded." if (known := self._store.unscored()) else ""
            console.say(f"No results of {self._name} in {self._request.results} yet.{more}")
        self._runs.end()
        return result

    def _check_folders(self) -> None:
        """Refuse folders that are not writable before anything is trained."""
        for option, folder in (("results", self._request.results), ("runs", self._request.runs)):
            there = next(path for path in (folder, *folder.parents) if path.exists())
            if not there.is_dir() or not os.access(there, os.W_OK):
                check.fail(option, "a writable folder", there)

    # Which settings.

    def _check_settings(self) -> None:
        """Refuse settings that cannot be trained before anything is trained."""
        for cell in self._experiment.cells:
            for values in (*_combinations(self._experiment.recipe), *_combinations(cell.choose)):
                try:
                    self._config(cell, 0, values)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"Cell {cell.name!r} of {self._name} cannot be trained: {error}") from error

    def _choose(self, train: bool = True) -> None:
        """Choose on validation: first the recipe of each column, then the settings of each cell.

        Without ``train``, choose among recorded runs only.
        """
        cells, recipe = self._experiment.cells, self._experiment.recipe
        if recipe:
            wanted = {cell.column for cell in cells if self._is_wanted(cell)}
            firsts = {cell.column: cell for cell in reversed(cells)}
            columns = list(dict.fromkeys(cell.column for cell in cells))
            found = self._best([(firsts[column], recipe, train and column in wanted) for column in columns])
            self._recipes = {column: chosen for (_, column), chosen in found.items()}
        choosing = [cell for cell in cells if cell.choose and (not recipe or cell.column in self._recipes)]
        self._chosen = self._best([(cell, cell.choose, train and self._is_wanted(cell)) for cell in choosing])

    def _best(self, asked: Sequence[tuple[Cell, Mapping[str, Sequence[Any]], bool]]) -> dict[Where, dict[str, Any]]:
        """Return the values of a grid with the best validation score for each cell.

        Candidates have seeds of their own and are trained if asked for. Nothing is chosen while one is missing.
        """
        seeds = CHOICE_SEEDS[:1] if self._request.quick else CHOICE_SEEDS
        tried = [
            [(values, [self._config(cell, seed, values) for seed in seeds]) for values in _combinations(grid)]
            for cell, grid, _ in asked
        ]
        wanted = [own for (_, _, train), own in zip(asked, tried, strict=True) if train]
        self._train_missing([config for own in wanted for _, configs in own for config in configs], scored=False)
        best: dict[Where, dict[str, Any]] = {}
        for (cell, _, _), own in zip(asked, tried, strict=True):
            records = [[self._store.candidate(key_of(config)) for config in configs] for _, configs in own]
            if all(record for one in records for record in one):
                scores = [sum(record["liking"] for record in one if record) for one in records]
                best[cell.row, cell.column] = own[scores.index(max(scores))][0]
        return best

    def _config(self, cell: Cell, seed: int, chosen: Settings | None = None) -> Config:
        chosen = self._chosen.get((cell.row, cell.column), {}) if chosen is None else chosen
        more = {**self._recipes.get(cell.column, {}), **chosen}
        key = (cell.row, cell.column, seed, repr(more))
        if key not in self._configs:  # a config is checked when it is built, which takes longer than to look it up
            config = self._experiment.config(cell, quick=self._request.quick, more=more)
            self._configs[key] = config.with_settings({**self._request.settings, "seed": seed}).anchored()
        return self._configs[key]

    def _is_settled(self, cell: Cell) -> bool:
        """Return whether all settings are chosen; a run with default settings is not a run of the cell."""
        own = not cell.choose or (cell.row, cell.column) in self._chosen
        return own and (not self._experiment.recipe or cell.column in self._recipes)

    def _settled(self, seeds: Iterable[int]) -> dict[Place, Config]:
        cells = list(filter(self._is_settled, self._experiment.cells))
        return {(cell.row, cell.column, s): self._config(cell, s) for cell in cells for s in seeds}

    def _keys(self, seeds: Iterable[int]) -> dict[Place, str]:
        return {place: key_of(config) for place, config in self._settled(seeds).items()}

    def _recorded_seeds(self) -> list[int]:
        """Return the requested seeds and the other recorded seeds."""
        return sorted({*self._seeds, *self._store.seeds()}.difference(CHOICE_SEEDS))

    def _is_wanted(self, cell: Cell) -> bool:
        only = self._request.only
        return not only or any(cell in with_text(self._experiment.cells, text) for text in only)

    # Runs.

    def _train_missing(self, configs: Sequence[Config], scored: bool | None = None) -> None:
        """Train runs that are not recorded."""
        scored = self._experiment.scored if scored is None else scored
        self._forget_other_data(configs)
        unknown = {key_of(config): config for config in configs if not self._store.knows(key_of(config), scored)}
        self._train(unknown.values(), scored)

    def _train(self, configs: Iterable[Config], scored: bool) -> list[Run]:
        """Train runs that are not finished, record them, and return the runs that did not diverge."""
        planned = [self._runs.plan(config) for config in configs]
        for record in runs.finished(planned):
            self._store.keep(record, scored)
        if self._request.train:
            for records in runs.trained(planned, 1 if self._experiment.alone else self._request.together):
                for record in records:
                    self._store.keep(record, scored)
                self._write()
        return [run for run in (Run(one.folder) for one in planned) if run.is_finished]

    def _forget_other_data(self, configs: Iterable[Config]) -> None:
        """Set aside records of other data than the data here, so that their runs are retrained."""
        if not self._request.train:
            return
        unlike = 0
        for config in configs:
            record = self._store.get(key := key_of(config))
            there = self._runs.fingerprints(config) if record else None
            if record and there is not None and record["data"]["fingerprint"] not in there:
                self._store.forget(key)
                unlike += 1
        if unlike:
            words = "used other images, labels or splits than those here. They no longer count and are retrained"
            console.say(f"{check.amount(unlike, 'recorded run')} {words}.")

    # In addition to scores.

    def _measure(self) -> None:
        """Measure what the experiment needs in addition to scores, unless these same runs were measured before.

        An experiment without runs looks at data, and is measured every time because there may be more data.
        """
        if self._experiment.measure is None:
            return
        if self._request.only:
            console.say("Measurements need all runs, so nothing is measured for a selection of cells.")
            return
        store, wanted = self._store, set(self._keys(self._seeds).values())
        measured, recorded = set(store.measured_in), set(self._keys(self._recorded_seeds()).values())
        # More seeds may be measured than requested; a run without a record will be retrained and differ.
        is_done = store.found and wanted <= measured <= recorded and all(map(store.knows, wanted))
        if not self._experiment.cells or not is_done or self._request.again:
            (self._pictures / f"{self._name}.png").unlink(missing_ok=True)  # it shows the old measurement
            apart: set[str] = set()
            found = self._experiment.measure(self._context(apart))
            store.measure(found, sorted(wanted), sorted(apart))

    def _draw(self) -> None:
        """Draw the picture that shows images of the data, unless it exists."""
        draw = self._experiment.draw
        if draw is None or not self._store.found or (self._pictures / f"{self._name}.png").is_file():
            return
        try:
            draw(self._context(set()))
        except MissingDataError as error:
            console.say(f"The picture of {self._name} is not drawn because its images are missing. {error}")

    def _context(self, apart: set[str]) -> Context:
        def folders(row: str, column: str = "") -> list[Run]:
            return self._folders(self._experiment.cell(row, column), apart)

        return Context(
            data_root=self._request.settings.get("data_root"),
            quick=self._request.quick,
            before=self._store.found,
            pictures=self._pictures,
            runs=folders,
            config=lambda row, column: self._config(self._experiment.cell(row, column), 0),
        )

    def _folders(self, cell: Cell, apart: set[str]) -> list[Run]:
        """Return a cell's runs except diverged ones; runs of which only the record is left are retrained.

        The record stays. If the second training differs from it, as on a GPU, the run's key is added to ``apart``.
        """
        configs = {key_of(config): config for config in (self._config(cell, seed) for seed in self._seeds)}
        known = {key: self._store.get(key) or {} for key in configs if self._store.knows(key)}
        found = self._train([one for key, one in configs.items() if "diverged" not in known.get(key, ())], scored=True)
        for run in found:
            record = self._store.get(key := key_of(run.asked))
            if record is None or validation_score(run) != record["liking"]:
                apart.add(key)
        return found

    # Results.

    def _current(self) -> dict[Place, Record]:
        """Return the records of all cells, including seeds that were not requested."""
        return self._store.current(self._keys(self._recorded_seeds()))

    def _result(self, current: Mapping[Place, Record]) -> ExperimentResult:
        records: dict[Where, dict[int, Record]] = {}
        for (row, column, seed), record in current.items():
            if "diverged" not in record:
                records.setdefault((row, column), {})[seed] = record
        diverged = [place for place, record in current.items() if "diverged" in record]
        chosen = {(ALL, column): values for column, values in self._recipes.items()} | self._chosen
        store, folder = self._store, self._request.results
        more = (diverged, store.superseded(current), store.measured_in, store.measured_apart)
        return ExperimentResult(self._name, self._experiment, records, chosen, store.found, folder, *more)

    def _write(self) -> ExperimentResult:
        """Write ``NAME.json``, including what other processes recorded, and return the result."""
        is_whole = False
        while not is_whole:
            if self._store.read():
                self._choose(train=False)
            current = self._current()
            result = self._result(current)
            is_whole = self._store.write(self._facts(result), current)
        if self._request.train and not self._request.quick:
            written = len({record["key"] for record in current.values()})
            console.say(f"{self._store.path}: {check.amount(written, 'run')}")
        return result

    def _facts(self, result: ExperimentResult) -> dict[str, Any]:
        return {
            "experiment": self._name,
            "title": self._experiment.title,
            "headline": summary_line(result),
            "chosen": [{"row": row, "column": column, **chosen} for (row, column), chosen in result.chosen.items()],
            "quick": self._request.quick,
        }


def _combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
