"""Experiment: a table or figure as what has to be trained for it, what the paper reports, and how it is shown."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rectifier
from rectifier._base import check
from rectifier.networks.registry import NETWORKS, network_options
from rectifier.training.config import Config
from rectifier.training.presets import PAPER, preset

if TYPE_CHECKING:
    from rectifier.reproduce.result import ExperimentResult
    from rectifier.training.run.folder import Run

Where = tuple[str, str]
"""A row and a column."""

BALANCED = "class_balanced_accuracy"
GROUPS = "group_top5"
"""The metric of labels that come in groups: top-5 class-balanced accuracy of each group."""

Settings = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]
"""Settings with several values each, of which validation chooses one."""

PaperValue = float | Mapping[str, float] | None
"""What the paper reports, in percent: one number, or one for each label and perhaps for ``mean``."""

PICTURES = {False: "pictures", True: "quick-pictures"}
"""Folders, next to the runs, of pictures that show images of the data: full and small version."""


@dataclass(frozen=True)
class Cell:
    """Runs that differ in their seed alone: one cell of a table, or one point of a curve.

    Args:
        row: the row of the table, such as ``imb(1) + CRL``.
        column: the column of the table, such as ``ResNet32``.
        settings: settings of a ``Config``; they override those of the experiment.
        paper: what the paper reports here.
        against: the row in the same column, or the row and column, to compare against.
        control_of: a row of the same column that this cell is a control of. The two differ only in what is tested, and
            the table shows their difference.
        control_when: settings that validation must have chosen for that row; otherwise this is no control.
        choose: settings with several values. Validation chooses one before anything is scored on test.
        quick: settings of the small version; they override those of the experiment.
    """

    row: str
    column: str = ""
    settings: Settings = field(default_factory=dict)
    paper: PaperValue = None
    against: str | Where | None = None
    control_of: str | None = None
    control_when: Settings = field(default_factory=dict)
    choose: Grid = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)

    @property
    def name(self) -> str:
        return place_name((self.row, self.column))

    def paper_of(self, label: str = "mean") -> float | None:
        """Return what the paper reports, for all labels together or for one."""
        if isinstance(self.paper, Mapping):
            return self.paper.get(label)
        return self.paper if label == "mean" else None


def place_name(place: Sequence[str]) -> str:
    """Return a row and a column in one text; either may be empty."""
    return " ".join(filter(None, place))


@dataclass(frozen=True)
class Context:
    """What the functions ``measure`` and ``draw`` of an experiment are given."""

    data_root: str | None
    quick: bool
    before: Mapping[str, Any]  # what was measured last time, or nothing
    pictures: Path  # a folder for pictures that show images of the data; they stay on this machine
    runs: Callable[[str, str], list[Run]]  # the runs of a cell, in the order of their seeds
    config: Callable[[str, str], Config]  # the config of a cell with its first seed


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        title: what it shows.
        source: where it is in the paper, or whose question it answers.
        about: what differs from the source, and why.
        show: renders a result as Markdown and figures.
        settings: settings of a ``Config`` for all cells; ``preset`` names one to start from.
        cells: what is trained.
        recipe: settings with several values. Validation chooses one for the first cell of each column, before anything
            else; the whole column is trained with it.
        quick: settings of a small version on generated data that runs in seconds. They override all others except a
            cell's own learning rate.
        seeds: number of seeds of each cell.
        finding: the conclusion in words, printed below the tables of the full version.
        metric: metric of the gain in the list of results.
        measure: measures what is not among the runs' scores, as values for JSON.
        draw: draws ``NAME.png`` among the pictures that show images of the data, from what was measured ``before``.
        alone: train one run after another, so that their times can be compared.
        scored: score runs on test; False where validation alone is of interest.
    """

    title: str
    source: str
    about: str
    show: Callable[[ExperimentResult], str]
    settings: Settings = field(default_factory=dict)
    cells: Sequence[Cell] = ()
    recipe: Grid = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    seeds: int = 3
    finding: str = ""
    metric: str = BALANCED
    measure: Callable[[Context], dict[str, Any]] | None = None
    draw: Callable[[Context], None] | None = None
    alone: bool = False
    scored: bool = True

    def __post_init__(self) -> None:
        """Refuse at once what would otherwise fail after hours of training."""
        places = [(cell.row, cell.column) for cell in self.cells]
        if len(set(places)) < len(places):
            row, column = max(places, key=places.count)
            raise ValueError(f"Two cells share row {row!r} and column {column!r}.")
        check.raise_all([check.that("seeds", self.seeds, "a positive integer", check.is_count(self.seeds))])
        _check_settings("settings", self.settings)
        _check_grid("recipe", self.recipe)
        for cell in self.cells:
            _check_cell(cell)
            for what, own in (("settings", cell.settings), ("choose", cell.choose)):
                if twice := self.recipe.keys() & own.keys():
                    wanted = "without settings of the recipe, which is chosen for the whole column"
                    check.fail(f"{what} of {cell.name!r}", wanted, ", ".join(sorted(twice)))
        for cell in self.cells:
            self.base(cell)
            self._check_control(cell)

    def _check_control(self, cell: Cell) -> None:
        if cell.control_of == cell.row:
            check.fail(f"control_of of {cell.name!r}", "another row", repr(cell.control_of))
        chosen = {} if cell.control_of is None else self.cell(cell.control_of, cell.column).choose
        for name, value in cell.control_when.items():
            if value not in chosen.get(name, ()):
                wanted = "settings and values that validation chooses from for that row"
                check.fail(f"control_when of {cell.name!r}", wanted, f"{name} {value!r}")

    def seeds_of(self, quick: bool) -> int:
        """Return how many seeds every cell has."""
        return 2 if quick else self.seeds

    def base(self, cell: Cell) -> Cell | None:
        """Return the cell that another is compared against."""
        if isinstance(cell.against, str):
            return self.cell(cell.against, cell.column)
        return None if cell.against is None else self.cell(*cell.against)

    def cell(self, row: str, column: str = "") -> Cell:
        """Return the cell in a row and column."""
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        check.fail("cell", "one of the experiment", f"row {row!r}, column {column!r}")

    def config(self, cell: Cell, *, quick: bool, more: Settings | None = None) -> Config:
        """Return the config of a cell's runs; ``more`` are settings that were chosen for it."""
        own = {**cell.settings, **(more or {})}
        settings = {**self.settings, **own}
        if quick:
            rate = {"lr": own["lr"]} if "lr" in own else {}
            settings = _understood({**settings, **self.quick, **rate, **cell.quick})
        start = settings.pop("preset", None)
        data = settings.pop("data", None)
        first = preset(start) if start else Config(data or "digits", **PAPER)
        return first.with_settings({**({"data": data} if data else {}), **settings})


def _check_cell(cell: Cell) -> None:
    if not isinstance(cell.row, str) or not isinstance(cell.column, str):
        check.fail("row and column of a cell", "text", f"{cell.row!r}, {cell.column!r}")
    for what, value in (("settings", cell.settings), ("control_when", cell.control_when), ("quick", cell.quick)):
        _check_settings(f"{what} of {cell.name!r}", value)
    _check_grid(f"choose of {cell.name!r}", cell.choose)
    numbers = cell.paper.values() if isinstance(cell.paper, Mapping) else [cell.paper]
    if not all(number is None or check.is_real(number) for number in numbers):
        check.fail(f"paper of {cell.name!r}", "a number, or one for each label", repr(cell.paper))


def _check_grid(what: str, grid: Grid) -> None:
    _check_settings(what, grid)
    for name, values in grid.items():
        if not isinstance(values, (list, tuple)) or not values:
            check.fail(f"{name} in {what}", "a list of values", repr(values))


def _check_settings(what: str, settings: Settings) -> None:
    if not isinstance(settings, Mapping):
        check.fail(what, "a mapping of settings to values", repr(settings))
    if "seed" in settings:
        check.fail(what, "without a seed, because seeds are 0, 1, 2 and so on", repr(dict(settings)))


def _understood(settings: dict[str, Any]) -> dict[str, Any]:
    """Drop options that the network of the small version does not have.

    >>> _understood({"network": "mlp", "network.dropout": 0.5, "network.growth": 12})
    {'network': 'mlp', 'network.dropout': 0.5}
    """
    network = settings.get("network")
    if network is None:
        network = (preset(settings["preset"]) if "preset" in settings else Config("digits", **PAPER)).network
    if network not in NETWORKS:  # of another library, which reports unknown options itself
        return settings
    known = {f"network.{name}" for name in network_options(network)}
    return {key: value for key, value in settings.items() if not key.startswith("network.") or key in known}


def find_experiments(folder: Path | None = None) -> dict[str, Path]:
    """Return the files of all experiments by name.

    Without ``folder`` these are the experiments in ``./experiments``, or those of the checkout.
    """
    near = [Path("experiments"), Path(rectifier.__file__).resolve().parents[2] / "experiments"]
    if folder and any(folder.glob("*.py")) and not (folder / "__init__.py").is_file():
        hint = "It may be empty, and makes the folder a package."
        check.no_file(folder / "__init__.py", hint)
    for place in [folder] if folder else near:
        if (place / "__init__.py").is_file():
            files = sorted(path for path in place.glob("*.py") if not path.stem.startswith("_"))
            if found := {path.stem.replace("_", "-"): path for path in files if _is_experiment(path)}:
                return found
    where = folder or "./experiments or the checkout's experiments"
    raise FileNotFoundError(f"{where} contains no experiments. The project's repository has them.")


def _is_experiment(path: Path) -> bool:
    return re.search(r"^EXPERIMENT\b.*=", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def load_experiment(name: str, folder: Path | None = None) -> Experiment:
    """Return the experiment of this name."""
    files = find_experiments(folder)
    check.raise_all([check.choice("experiment", name, tuple(files), "find_experiments()")])
    path = files[name]
    try:
        found = importlib.import_module(f"{_package(path.parent.resolve())}.{path.stem}").EXPERIMENT
    except Exception as error:  # the file may hold anybody's code
        check.fail(str(path), "a file that Python can import", f"{type(error).__name__}: {error}")
    if not isinstance(found, Experiment):
        check.fail(f"EXPERIMENT of {path}", "an Experiment", type(found).__name__)
    return found


def _package(folder: Path) -> str:
    """Import a folder as a package, so that its files can import each other, and return the package's name.

    A folder that is already imported, under any name, is not loaded a second time.
    """
    importlib.invalidate_caches()  # a file may be new
    for name, module in list(sys.modules.items()):
        if list(getattr(module, "__dict__", {}).get("__path__", ())) == [str(folder)]:
            return name
    package = "rectifier_experiments"  # whatever the folder is called
    for loaded in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[loaded]  # from another folder, which may have files of the same names
    where = [str(folder)]
    spec = importlib.util.spec_from_file_location(package, folder / "__init__.py", submodule_search_locations=where)
    sys.modules[package] = module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return package
