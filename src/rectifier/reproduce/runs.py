"""The runs of an experiment: which folder each one is in, and how missing ones are trained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count, takewhile
from pathlib import Path

from rectifier._base import check, console
from rectifier._base.files import read_json, write_json
from rectifier.reproduce.records import Record, diverged_record, key_of, record_of
from rectifier.training import RunSpec, data_settings, fingerprints
from rectifier.training.config import Config
from rectifier.training.many import train_groups
from rectifier.training.run.folder import Run

Prints = frozenset[str] | None
"""The fingerprints that data may have; None, which allows any, where the data is not on this machine."""


class RunFolders:
    """The folders that an experiment's runs are trained in.

    Args:
        folder: the folder of all runs.
        varied: names of the settings that distinguish runs in messages.
        check_data: ignore runs trained on other data.
        again: the file that lists the folders of retrained runs, or None where nothing is retrained.
    """

    def __init__(self, folder: Path, varied: Collection[str], *, check_data: bool, again: Path | None) -> None:
        self._folder, self._varied, self._check_data = folder, varied, check_data
        self._again = _Again(again) if again else None
        self._prints: dict[str, Prints] = {}

    def plan(self, config: Config) -> RunSpec:
        """Return a run with its name and its folder."""
        key = key_of(config)
        varied = {name: value for name, value in config.identity().items() if name in self._varied}
        options = "".join(f" {name}={value}" for name, value in {**config.method_options, **varied}.items())
        folder = self._folder / f"{config.method}-{config.network}-{key}"
        there = self.fingerprints(config) if self._check_data and folder.exists() else None
        where = self._again.folder(key, folder, there) if self._again else _folder_of(folder, there)
        return RunSpec(f"{config.method}{options} on {config.network}, seed {config.seed}", config, where)

    def fingerprints(self, config: Config) -> Prints:
        """Return the fingerprints that a run's data may have, or None where the data is missing."""
        key = data_settings(config)
        if key not in self._prints:
            try:
                self._prints[key] = fingerprints(config)
            except FileNotFoundError:
                self._prints[key] = None
        return self._prints[key]

    def end(self) -> None:
        """Forget the folders of retrained runs: all of them are trained."""
        if self._again:
            self._again.end()


def finished(planned: Sequence[RunSpec]) -> list[Record]:
    """Return the records of the runs that are finished."""
    return [record_of(run) for run in (Run(one.folder) for one in planned) if run.is_finished]


def trained(planned: Sequence[RunSpec], together: int | None) -> Iterator[list[Record]]:
    """Train the runs that are not finished, and yield their records group by group."""
    for group, complaints in train_groups(planned, together):
        yield [_record(run, complaints) for run in group]


def _record(planned: RunSpec, reasons: Sequence[str]) -> Record:
    """Return the record of a run that was trained to its end or until it diverged."""
    run = Run(planned.folder)
    if run.is_finished or not reasons:
        return record_of(run)
    reason = next((reason for reason in reasons if str(planned.folder) in reason), reasons[0])
    console.say(f"{planned.name} diverged and is recorded as diverged. again=True retrains it. {reason}")
    return diverged_record(run, reason)


class _Again:
    """The folders of runs that are retrained; a file lists them until all are done, so that a command can resume."""

    def __init__(self, path: Path) -> None:
        self._path, self._used = path, set[str]()
        self._folders = self._there()
        if done := sum(Run(path.parent / name).is_finished for name in self._folders.values()):
            console.say(f"Resuming: {check.amount(done, 'run')} retrained already. Delete {path} to start over.")

    def _there(self) -> Mapping[str, str]:
        folders = read_json(self._path) if self._path.is_file() else {}
        if not isinstance(folders, dict):
            raise ValueError(f"{self._path} is not a list of retrained runs. Move it elsewhere.")
        return folders

    def folder(self, key: str, folder: Path, there: Prints) -> Path:
        """Return the folder that a run is trained in this time."""
        self._used.add(key)
        if key not in self._folders or not _is_of(folder.with_name(self._folders[key]), there):
            self._folders = {**self._there(), key: _new(folder).name}  # another command may retrain another cell
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self._folders)
        return folder.with_name(self._folders[key])

    def end(self) -> None:
        left = {key: name for key, name in self._there().items() if key not in self._used}
        if left:
            write_json(self._path, left)
        else:
            self._path.unlink(missing_ok=True)


def _folder_of(folder: Path, there: Prints) -> Path:
    """Return the folder of a run on this data: the last finished one, else the last one, else a new one."""
    own = [path for path in takewhile(Path.exists, _numbered(folder)) if _is_of(path, there)]
    done = [path for path in own if Run(path).is_finished]
    return [_new(folder), *own[-1:], *done[-1:]][-1]


def _is_of(folder: Path, there: Prints) -> bool:
    """Return whether a run uses this data, or has not opened any data yet."""
    return there is None or not (folder / "data.json").is_file() or Run(folder).data["fingerprint"] in there


def _new(folder: Path) -> Path:
    return next(path for path in _numbered(folder) if not path.exists())


def _numbered(folder: Path) -> Iterator[Path]:
    return chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
