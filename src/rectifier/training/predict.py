"""predict_images: from a run and new images to a table of classes and probabilities.

New images go the way that the run's own went: decoded as they were, through the same loader, into the same network.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from lightning.fabric import Fabric
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier._base.settings import SETTINGS
from rectifier.data.dataset import PARTS, ImageData, Pixels
from rectifier.data.decode import UnreadableError, decode
from rectifier.data.folder import is_hidden
from rectifier.data.loader import Loader
from rectifier.data.store import available_cores
from rectifier.data.table import IMAGE_SUFFIXES, PARQUET_SUFFIXES, image_column, read_columns
from rectifier.evaluation.by_features import DECISIONS, Decision
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.evaluation.rules.calibration import TemperatureScaling
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace
from rectifier.methods import find_method, needed_of_network
from rectifier.networks.registry import build_network
from rectifier.training.config import Config
from rectifier.training.engine.devices import make_fabric
from rectifier.training.engine.predict import outputs
from rectifier.training.run.atomic import write_bytes
from rectifier.training.run.folder import Run

_TABLES = PARQUET_SUFFIXES | {".csv", ".tsv", ".txt"}


@dataclass(frozen=True)
class PredictionTable:
    """What a run says about N images: the class of each label ``(N, A)`` and its probability ``(N, A)``.

    An unreadable image has class -1 and probability NaN; ``unreadable`` lists these images, with what is wrong.
    ``rule`` is the decision rule, and ``why`` says why this one.
    """

    images: tuple[str, ...]
    classes: Tensor
    probabilities: Tensor
    space: LabelSpace
    rule: str
    why: str
    unreadable: tuple[tuple[str, str], ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns of the table: ``image``, and for every label ``<label>`` and ``<label>_probability``.

        A name that is taken gets ``_`` behind it until it is free: a label called image has the column ``image_``.
        """
        taken = {"image", *self.space.names}
        named = [_free(label, taken) if label == "image" else label for label in self.space.names]
        beside = [_free(f"{label}_probability", taken) for label in self.space.names]
        return ["image", *(name for pair in zip(named, beside, strict=True) for name in pair)]

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the table, one an image, as text; an unreadable image's cells are blank."""
        names = self.columns
        found = zip(self.images, self.classes.tolist(), self.probabilities.tolist(), strict=True)
        return [dict(zip(names, self._cells(*each), strict=True)) for each in found]

    def _cells(self, image: str, classes: list[int], probabilities: list[float]) -> list[str]:
        cells = [image]
        for names, k, probability in zip(self.space.classes, classes, probabilities, strict=True):
            cells += ["", ""] if k < 0 else [names[k], f"{probability:.6f}"]
        return cells

    def text(self) -> str:
        """Return the table as CSV."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows())
        return text.getvalue()

    def write(self, path: str | Path) -> None:
        """Write the table as CSV, whole or not at all. Cells stay as they are, with an = in front too."""
        path = Path(path)
        check_writable(path)
        write_bytes(path, self.text().encode(errors="surrogateescape"))


def check_writable(path: Path) -> None:
    """Refuse a path that no table can be written to; better before the work than after it."""
    if path.is_dir():
        check.fail(str(path), "a file to write", "a folder")
    if not path.parent.is_dir():
        check.no_file(str(path.parent), "the folder to write to", "")


def predict_images(
    run: Run | str | Path,
    images: Sequence[str | Path],
    *,
    rule: str | None = None,
    root: str | Path | None = None,
    batch_size: int = 256,
    device: str = "auto",
    calibrated: bool = False,
) -> PredictionTable:
    """Predict every label of new images with a finished run.

    Args:
        run: the run, or its folder.
        images: image files, folders of images, whatever their depth, and tables (CSV or Parquet) with a column of image
            paths. They are predicted in this order, an image named twice twice. A table's images are called what
            the table calls them.
        rule: a decision rule of the run: ``argmax``, ``prior``, ``tuned``. By default the one that validation prefers.
        root: the folder that the paths of tables start from; each table's own folder if not given.
        batch_size: images per batch; no more than a few batches of them are in memory.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        calibrated: the rule decides as ever, but a class's probability is what validation found it to be among images
            like the run's: from the logits over their temperature, without the offsets of the rule.
    """
    run = Run.open(run)
    check.raise_all(
        [
            check.choice("device", device, SETTINGS["accelerator"].choices),
            check.that("batch_size", batch_size, "a positive integer", check.is_count(batch_size)),
        ]
    )
    rules = run.rules
    name, why = _chosen_rule(rules, rule)
    named = _find_images(images, root, run.config.data_options.get("image"))
    height, width, channels = run.data["shape"]
    files = _FilesOnDemand(tuple(image.path for image in named), (height, width, channels), run.data["fit"])
    applied = _Rule(torch.tensor(rules["offsets"][name]), _calibration(run) if calibrated else None)
    classes, probabilities = _predict(run, files, applied, batch_size, device)
    bad = dict(sorted(files.unreadable.items()))
    if len(bad) == len(named):
        got = f"none of {check.amount(len(named), 'image')}, such as {named[0].path} ({bad[0]})"
        hint = "" if root else " The paths of a table start from its own folder, or from --images."
        raise ValueError(check.sentence("images", "images of which one at least can be read", got) + hint)
    classes[list(bad)], probabilities[list(bad)] = -1, torch.nan
    unreadable = tuple((named[row].name, reason) for row, reason in bad.items())
    return PredictionTable(
        tuple(image.name for image in named), classes, probabilities, run.space, name, why, unreadable
    )


def _chosen_rule(rules: dict[str, Any], wanted: str | None) -> tuple[str, str]:
    """Return the rule's name, and why it is this one."""
    if wanted is not None:
        check.raise_all([check.choice("rule", wanted, tuple(rules["offsets"]))])
        return wanted, "asked for"
    name = rules["preferred"]
    return name, f"preferred by validation, with a class-balanced accuracy of {100 * rules['validation'][name]:.1f} %"


def _calibration(run: Run) -> TemperatureScaling:
    if "calibration" not in run.rules:
        check.fail(f"the rules of {run.path}", "with a calibration", "those of an older run, without one")
    return TemperatureScaling.from_dict(run.rules["calibration"])


class _Rule(NamedTuple):
    """Decide by logits plus ``offsets`` ``(K,)``, and take probabilities from the same or from calibrated logits."""

    offsets: Tensor
    calibration: TemperatureScaling | None = None

    def decide(self, logits: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return the best class of every label and its probability, both ``(N, A)``.

        >>> _Rule(torch.zeros(5)).decide(torch.tensor([[0.0, 0.0, 9.0, 0.0, 0.0]]).log1p(), (3, 2))
        (tensor([[2, 0]]), tensor([[0.8333, 0.5000]], dtype=torch.float64))
        """
        logits = logits.double()  # as the rules are scored
        adjusted = logits + self.offsets.double()
        believed = adjusted if self.calibration is None else self.calibration(logits)
        classes = columns.argmax(adjusted, sizes)
        return classes, columns.softmax(believed, sizes).gather(1, columns.own_columns(classes, sizes))


def _predict(run: Run, files: _FilesOnDemand, rule: _Rule, batch_size: int, device: str) -> tuple[Tensor, Tensor]:
    """Return each label's class and its probability under the rule, both ``(N, A)``."""
    fabric = make_fabric(_for_prediction(run.config, device), alone=True)
    sizes, found = run.space.sizes, []
    with _ignored_warnings(), console.progress() as display:
        task = display.add_task("predicting", total=len(files))
        for logits in _logits(run, files, batch_size, fabric):
            found.append(rule.decide(logits.cpu(), sizes))  # in double precision, which not every device has
            display.advance(task, len(logits))
    return torch.cat([classes for classes, _ in found]), torch.cat([probabilities for _, probabilities in found])


def _logits(run: Run, files: _FilesOnDemand, batch_size: int, fabric: Fabric) -> Iterator[Tensor]:
    """Yield the logits of the images, batch by batch: the classifier's, or the scores of what decides by features."""
    kept = run.decision()
    decide = None
    if kept is not None:
        state = {name: tensor.to(fabric.device) for name, tensor in kept[1].items()}
        decide = DECISIONS[kept[0]].from_state(state)
    if find_method(run.config.method).features is not None:
        for start in range(0, len(files), batch_size):
            pixels = files.gather(np.arange(start, min(start + batch_size, len(files))))
            yield cast(Decision, decide)(hog_features(pixels).to(fabric.device))
        return
    network, loader = _network(run).to(fabric.device), _loader(run, files, batch_size, fabric)
    for _, output in outputs(fabric, network, loader):
        yield output.logits if decide is None else decide(output.features)


def _for_prediction(config: Config, device: str) -> Config:
    """Return the run's config for one device; half precision, which a CPU lacks, is left for float32 there."""
    cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    precision = "32" if cpu and config.precision == "16" else config.precision
    return replace(config, accelerator=device, devices=1, nodes=1, precision=precision)


def _network(run: Run) -> nn.Module:
    """Build the run's network, with the weights of the epoch that was chosen."""
    config = run.config
    options = needed_of_network(config.method, config.network_options)
    if config.network.startswith("timm:"):  # the run's weights take the place of pre-trained ones: none is fetched
        options = {**options, "pretrained": False}
    network = build_network(config.network, run.space, run.data["shape"], seed=config.seed, **options)
    network = network.double() if config.precision == "64" else network
    network.load_state_dict(run.weights())
    return network


def _loader(run: Run, files: _FilesOnDemand, batch_size: int, fabric: Fabric) -> Loader:
    targets = torch.full((len(files), len(run.space)), -1)
    data = ImageData("images", files, targets, run.space, torch.full((len(files),), PARTS.index("test")))
    with console.quiet():  # where the loader keeps pixels is of no interest here
        return Loader(data, "test", batch_size, device=fabric.device, mode="streamed", normalise=run.normalisation)


@contextmanager
def _ignored_warnings() -> Iterator[None]:
    """Ignore warnings until all is decoded.

    Decoding does so by itself, image by image, but what one thread restores another has set: only around all
    threads is the state before well known.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class _FilesOnDemand:
    """Image files that are decoded whenever a batch is gathered: an unreadable one is black, and noted."""

    paths: tuple[Path, ...]
    shape: tuple[int, int, int]
    fit: str
    unreadable: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def checksum(self) -> str:
        return ""  # they are looked at once, and never compared

    def select(self, index: NDArray[np.int64]) -> _FilesOnDemand:
        return replace(self, paths=tuple(self.paths[i] for i in index.tolist()), unreadable={})

    def gather(self, index: NDArray[np.int64], out: Pixels | None = None) -> Pixels:
        pixels = np.empty((len(index), *self.shape), np.uint8) if out is None else out
        with ThreadPoolExecutor(available_cores(), "rectifier-decode") as threads:
            for row, image in enumerate(threads.map(self._decode, index.tolist())):
                pixels[row] = image
        return pixels

    def _decode(self, position: int) -> Pixels:
        try:
            pixels = decode(self.paths[position], self.shape[:2], self.fit)
        except UnreadableError as error:
            self.unreadable[position] = str(error)
            return np.zeros(self.shape, np.uint8)
        return np.asarray(Image.fromarray(pixels).convert("L"))[:, :, None] if self.shape[2] == 1 else pixels


class _Named(NamedTuple):
    """An image as the user calls it, and where it lies."""

    name: str
    path: Path


def _find_images(given: Sequence[str | Path], root: str | Path | None, column: str | None) -> list[_Named]:
    """Return the images of all files, folders and tables; ``column`` is the image column that the run was told."""
    paths = [_existing(path) for path in ([given] if isinstance(given, str | Path) else given)]
    if not paths:
        check.fail("images", "at least one image, folder or table", "none")
    if root is not None:
        if not any(map(_is_table, paths)):
            check.fail("the folder of a table's images (--images)", "given with a table alone", f"{root} without one")
        if not Path(root).is_dir():
            check.no_file(str(root), "the folder that a table's paths start from", "")
    return [image for path in paths for image in _images_at(path, root, column)]


def _existing(path: str | Path) -> Path:
    if not str(path).strip() or not Path(path).exists():
        check.no_file(repr(str(path)), "an image, a folder of images or a table of them", "")
    return Path(path)


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in _TABLES and path.is_file()


def _images_at(path: Path, root: str | Path | None, column: str | None) -> list[_Named]:
    if path.is_dir():
        return [_Named(str(file), file) for file in _in_folder(path)]
    if _is_table(path):
        start = path.parent if root is None else Path(root)
        return [_Named(name, start / name) for name in _in_table(path, column)]
    return [_Named(str(path), path)]


def _in_folder(folder: Path) -> list[Path]:
    """Return the images of a folder and the folders in it, without what is hidden."""
    images = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    found = sorted(f for f in images if not is_hidden(f, folder))
    if not found:
        check.fail(str(folder), "a folder with images", f"none (known are {', '.join(sorted(IMAGE_SUFFIXES))})")
    return found


def _in_table(path: Path, column: str | None) -> list[str]:
    """Return the image paths as a table has them."""
    table = read_columns(path)
    if not len(table):
        check.fail(str(path), "a table with at least one row", "a header only")
    column = column if column in table.columns else image_column(table)
    names = [value.strip() for value in table.columns[column]]
    if "" in names:
        check.fail(f"{table.place(names.index(''))} column {column!r}", "an image path", "a blank")
    return names


def _free(name: str, taken: set[str]) -> str:
    """Return the name with as many underscores behind it as make it differ from those that are taken, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
