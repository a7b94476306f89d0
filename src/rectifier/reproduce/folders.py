"""Which folder a run lies in: one that is trained anew gets a number behind its name, and what was there stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, takewhile
from pathlib import Path

from rectifier import check, console
from rectifier.runs.atomic import read_json, write_json
from rectifier.runs.folder import Run


def folder_of(folder: Path, there: frozenset[str] | None) -> Path:
    """Return the folder of a finished run of data with one of these fingerprints, else the one to train it in.

    Of several the last, because a run that was trained anew has its record from there. None: whatever data it is of.
    """
    finished = takewhile(lambda path: Run(path).is_finished, _numbered(folder))
    own = [path for path in finished if there is None or Run(path).data["fingerprint"] in there]
    return own[-1] if own else _unfinished(folder)


class Again:
    """The folders of runs that are trained anew, in a file as long as it goes on: one that is stopped can go on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folders: dict[str, str] = read_json(path) if path.is_file() else {}
        begun = sum(Run(path.parent / name).is_finished for name in self._folders.values())
        if begun:
            anew = f"{check.amount(begun, 'run')} trained anew already; without {path} it begins anew"
            console.say(f"--again was stopped before, and goes on: {anew}.")

    def folder(self, key: str, folder: Path) -> Path:
        """Return where a run is trained anew, beside what is finished of before."""
        if key not in self._folders:
            self._folders[key] = _unfinished(folder).name
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self._folders)
        return folder.with_name(self._folders[key])

    def end(self) -> None:
        """Forget them: all are trained."""
        self._path.unlink(missing_ok=True)


def _unfinished(folder: Path) -> Path:
    return next(path for path in _numbered(folder) if not Run(path).is_finished)


def _numbered(folder: Path) -> Iterator[Path]:
    return chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
