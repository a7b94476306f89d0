"""Which folder a run lies in: one that is trained anew gets a number behind its name, and what was there stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, takewhile
from pathlib import Path

from rectifier._base import check, console
from rectifier._base.files import read_json, write_json
from rectifier.training.run.folder import Run


def folder_of(folder: Path, there: frozenset[str] | None) -> Path:
    """Return the folder of a run of data with one of these fingerprints, a finished one if there is any.

    Of several the last, because a run that was trained anew has its record from there. None: whatever data it is of.
    """
    own = [path for path in takewhile(Path.exists, _numbered(folder)) if _is_of(path, there)]
    finished = [path for path in own if Run(path).is_finished]
    return [_new(folder), *own[-1:], *finished[-1:]][-1]


class Again:
    """The folders of runs that are trained anew, in a file as long as it goes on: one that is stopped can go on."""

    def __init__(self, path: Path) -> None:
        self._path, self._used = path, set[str]()
        self._folders = self._there()
        begun = sum(Run(path.parent / name).is_finished for name in self._folders.values())
        if begun:
            anew = f"{check.amount(begun, 'run')} trained anew already; without {path} it begins anew"
            console.say(f"--again was stopped before, and goes on: {anew}.")

    def _there(self) -> dict[str, str]:
        folders = read_json(self._path) if self._path.is_file() else {}
        if not isinstance(folders, dict):
            check.fail(str(self._path), "what --again has trained, by run", "another file: put it elsewhere")
        return folders

    def folder(self, key: str, folder: Path, there: frozenset[str] | None) -> Path:
        """Return where a run is trained anew, beside what is there of before."""
        self._used.add(key)
        if key not in self._folders or not _is_of(folder.with_name(self._folders[key]), there):
            self._folders = {**self._there(), key: _new(folder).name}  # another cell may be trained anew by others
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self._folders)
        return folder.with_name(self._folders[key])

    def end(self) -> None:
        """Forget those that were asked for: all of them are trained."""
        left = {key: name for key, name in self._there().items() if key not in self._used}
        if left:
            write_json(self._path, left)
        else:
            self._path.unlink(missing_ok=True)


def _is_of(folder: Path, there: frozenset[str] | None) -> bool:
    """Say whether a run is of data with one of these fingerprints, or may become so: one that knows no data yet."""
    return there is None or not (folder / "data.json").is_file() or Run(folder).data["fingerprint"] in there


def _new(folder: Path) -> Path:
    return next(path for path in _numbered(folder) if not path.exists())


def _numbered(folder: Path) -> Iterator[Path]:
    return chain([folder], (folder.with_name(f"{folder.name}-{number}") for number in count(2)))
