"""Experiment: a table or figure as what has to be trained for it, what the paper has there, and how it is shown."""

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
from rectifier.training.presets import preset

if TYPE_CHECKING:
    from rectifier.reproduce.result import ExperimentResult
    from rectifier.training.run.folder import Run

Where = tuple[str, str]
"""A row and a column."""

BALANCED = "class_balanced_accuracy"
GROUPS = "group_top5"
"""The metric of labels that come in groups: of a group's likeliest five, by group in place of labels."""

Settings = Mapping[str, Any]
PaperValue = float | Mapping[str, float] | None
"""What the paper has, in percent: a number, or one for each label and perhaps for ``mean``."""


@dataclass(frozen=True)
class Cell:
    """Runs that differ in their seed alone: one cell of a table, one line of a table of labels, one point of a curve.

    Args:
        row: the line it stands in, as ``imb(1) + CRL``.
        column: the column it stands in, as ``ResNet32``; in a table of labels there is one for all.
        settings: of a ``Config``, over those of the experiment.
        paper: what the paper has there.
        against: the row in the same column, or the row and column, that its gain is counted from.
        control_of: a row of the same column that this is a control of, as it differs from it in nothing but what is
            asked about; a table has the difference between the two.
        control_when: what validation must have chosen for that row; else this is no control of it.
        choose: settings with several values, of which validation chooses one before anything is scored on test.
        quick: settings of the small version, over those of the experiment's.
    """

    row: str
    column: str = ""
    settings: Settings = field(default_factory=dict)
    paper: PaperValue = None
    against: str | Where | None = None
    control_of: str | None = None
    control_when: Settings = field(default_factory=dict)
    choose: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)

    @property
    def name(self) -> str:
        return place_name((self.row, self.column))

    def paper_of(self, label: str = "mean") -> float | None:
        """Return what the paper has, of all labels together or of one."""
        if isinstance(self.paper, Mapping):
            return self.paper.get(label)
        return self.paper if label == "mean" else None


def place_name(place: Sequence[str]) -> str:
    """Return a row and a column in one, either of which may be empty."""
    return " ".join(filter(None, place))


PICTURES = {False: "pictures", True: "quick-pictures"}
"""Where pictures lie that show images of the data, of the full and of the small version, beside the runs."""


QUICK_SEEDS = 2


@dataclass(frozen=True)
class Context:
    """What an experiment that does more than train has at hand."""

    data_root: str | None
    quick: bool
    before: Mapping[str, Any]  # what it found the last time, or nothing
    pictures: Path  # a folder for pictures that show images of the data, which stay where the data is
    runs: Callable[[str, str], list[Run]]  # the folders of a cell's runs, in the order of their seeds
    config: Callable[[str, str], Config]  # what a cell trains, with its first seed


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Args:
        title: what it shows.
        source: where it stands in the paper, or whose question it answers.
        about: what is done otherwise than there, and why.
        show: renders an result as Markdown and figures.
        settings: of a ``Config``, of all cells; ``preset`` names one to begin with.
        cells: what is trained.
        recipe: settings with several values, of which validation chooses one for the first cell of each column, before
            all else; the whole column is trained with it.
        quick: settings over all others but a cell's own rate, for a small version on generated data that runs in
            seconds.
        seeds: of each cell.
        finding: what came out, in words, which stands below; not of the small version.
        metric: what the gain in the list of results is of.
        measure: finds what is not in the runs' scores, as values for JSON.
        draw: draws ``NAME.png`` among the pictures that show images of the data, from what was found ``before``.
        alone: trains one run after another, so that their times can be compared.
        scored: whether runs are scored on test; not where validation alone is asked.
    """

    title: str
    source: str
    about: str
    show: Callable[[ExperimentResult], str]
    settings: Settings = field(default_factory=dict)
    cells: Sequence[Cell] = ()
    recipe: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    quick: Settings = field(default_factory=dict)
    seeds: int = 3
    finding: str = ""
    metric: str = BALANCED
    measure: Callable[[Context], dict[str, Any]] | None = None
    draw: Callable[[Context], None] | None = None
    alone: bool = False
    scored: bool = True

    def __post_init__(self) -> None:
        places = [(cell.row, cell.column) for cell in self.cells]
        if len(set(places)) < len(places):
            check.fail("cells", "each in a place of its own", repr(max(places, key=places.count)))
        check.raise_all([check.that("seeds", self.seeds, "a positive integer", check.is_count(self.seeds))])
        _check_no_seed("settings", self.settings)
        _check_choice("recipe", self.recipe)
        for cell in self.cells:
            _check_cell(cell)
            for what, own in (("settings", cell.settings), ("choose", cell.choose)):
                if twice := self.recipe.keys() & own.keys():
                    wanted = "without what the recipe chooses for the whole column"
                    check.fail(f"{what} of {cell.name!r}", wanted, ", ".join(sorted(twice)))
        for cell in self.cells:
            self.base(cell)
            self._check_control(cell)

    def seeds_of(self, quick: bool) -> int:
        """Return how many seeds every cell has."""
        return QUICK_SEEDS if quick else self.seeds

    def base(self, cell: Cell) -> Cell | None:
        """Return the cell that another's gain is counted from."""
        if isinstance(cell.against, str):
            return self.cell(cell.against, cell.column)
        return None if cell.against is None else self.cell(*cell.against)

    def _check_control(self, cell: Cell) -> None:
        if cell.control_of == cell.row:
            check.fail(f"control_of of {cell.name!r}", "another row", repr(cell.control_of))
        chosen = {} if cell.control_of is None else self.cell(cell.control_of, cell.column).choose
        for name, value in cell.control_when.items():
            if value not in chosen.get(name, ()):
                wanted = "of settings and values that validation chooses from for that row"
                check.fail(f"control_when of {cell.name!r}", wanted, f"{name} {value!r}")

    def cell(self, row: str, column: str = "") -> Cell:
        """Return the cell in a row and column."""
        for cell in self.cells:
            if (cell.row, cell.column) == (row, column):
                return cell
        check.fail("cell", "one of the experiment", f"row {row!r}, column {column!r}")

    def config(self, cell: Cell, *, quick: bool, more: Settings | None = None) -> Config:
        """Return what a cell trains."""
        own = {**cell.settings, **(more or {})}
        settings = {**self.settings, **own}
        if quick:
            rate = {"lr": own["lr"]} if "lr" in own else {}
            settings = _understood({**settings, **self.quick, **rate, **cell.quick})
        start = settings.pop("preset", None)
        data = settings.pop("data", None)
        begun = preset(start) if start else Config(data or "digits")
        return begun.with_settings({**({"data": data} if data else {}), **settings})


def _check_cell(cell: Cell) -> None:
    """Refuse at once what would be found out only when all is trained."""
    if not isinstance(cell.row, str) or not isinstance(cell.column, str):
        check.fail("row and column of a cell", "text", f"{cell.row!r}, {cell.column!r}")
    for what, value in (("settings", cell.settings), ("control_when", cell.control_when), ("quick", cell.quick)):
        if not isinstance(value, Mapping):
            check.fail(f"{what} of {cell.name!r}", "a mapping of settings to values", repr(value))
    _check_no_seed(f"settings of {cell.name!r}", cell.settings)
    _check_choice(f"choose of {cell.name!r}", cell.choose)
    numbers = cell.paper.values() if isinstance(cell.paper, Mapping) else [cell.paper]
    if not all(number is None or check.is_real(number) for number in numbers):
        check.fail(f"paper of {cell.name!r}", "a number, or one for each label", repr(cell.paper))


def _check_choice(what: str, choice: Mapping[str, Sequence[Any]]) -> None:
    if not isinstance(choice, Mapping):
        check.fail(what, "a mapping of settings to several values", repr(choice))
    _check_no_seed(what, choice)
    for name, values in choice.items():
        if not isinstance(values, (list, tuple)) or not values:
            check.fail(f"{name} in {what}", "a list of values", repr(values))


def _check_no_seed(what: str, settings: Settings) -> None:
    if "seed" in settings:
        check.fail(what, "without a seed: seeds are 0, 1, 2 and so on", repr(dict(settings)))


def _understood(settings: dict[str, Any]) -> dict[str, Any]:
    """Leave out the options of networks that another one takes the place of, and does not have.

    >>> _understood({"network": "mlp", "network.dropout": 0.5, "network.growth": 12})
    {'network': 'mlp', 'network.dropout': 0.5}
    """
    begun = preset(settings["preset"]).network if "preset" in settings else Config("digits").network
    network = settings.get("network", begun)
    if network not in NETWORKS:  # of another library, which says itself what it does not know
        return settings
    known = {f"network.{name}" for name in network_options(network)}
    return {key: value for key, value in settings.items() if not key.startswith("network.") or key in known}


def find_experiments(folder: Path | None = None) -> dict[str, Path]:
    """Return the files of all experiments by name: those of a folder, else of the checkout that one stands in."""
    near = [Path("experiments"), Path(rectifier.__file__).resolve().parents[2] / "experiments"]
    if folder and any(folder.glob("*.py")) and not (folder / "__init__.py").is_file():
        check.no_file(str(folder / "__init__.py"), "a file, which may be empty", "With it experiments are a package.")
    for place in [folder] if folder else near:
        if (place / "__init__.py").is_file():
            files = sorted(path for path in place.glob("*.py") if not path.stem.startswith("_"))
            if found := {path.stem.replace("_", "-"): path for path in files if _is_experiment(path)}:
                return found
    where = folder or "./experiments and beside the package"
    check.no_file(str(where), "the folder of the experiments", "It is part of the project's repository.")


def _is_experiment(path: Path) -> bool:
    return re.search(r"^EXPERIMENT\b.*=", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


def load_experiment(name: str, folder: Path | None = None) -> Experiment:
    """Return the experiment of this name."""
    files = find_experiments(folder)
    check.raise_all([check.choice("experiment", name, tuple(files))])
    path = files[name]
    try:
        found = importlib.import_module(f"{_package(path.parent.resolve())}.{path.stem}").EXPERIMENT
    except Exception as error:  # whatever is wrong with somebody's code
        check.fail(str(path), "a file that Python can import", f"{type(error).__name__}: {error}")
    if not isinstance(found, Experiment):
        check.fail(f"EXPERIMENT of {path}", "an Experiment", type(found).__name__)
    return found


def _package(folder: Path) -> str:
    """Import a folder as a package, so that its files can import each other, and return the package's name.

    A folder that is imported already, under any name, is not loaded a second time.
    """
    for name, module in list(sys.modules.items()):
        if list(getattr(module, "__dict__", {}).get("__path__", ())) == [str(folder)]:
            return name
    package = "rectifier_experiments"  # whatever the folder is called
    for loaded in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[loaded]  # from another folder, which may have files of the same names
    spec = importlib.util.spec_from_file_location(
        package, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    sys.modules[package] = module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return package
