"""predict_images: from a run and new images to a table of classes and probabilities.

New images are processed like the run's own: the same decoding, the same loader, the same network.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier._base.files import write_bytes
from rectifier.data.dataset import PARTS, ImageData
from rectifier.data.loader import Loader
from rectifier.evaluation.by_features import DECISIONS, Decision
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.evaluation.rules.calibration import TemperatureScaling
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace
from rectifier.methods import find_method
from rectifier.training.engine.devices import make_fabric
from rectifier.training.engine.options import Options
from rectifier.training.engine.predict import outputs
from rectifier.training.image_files import FilesOnDemand, find_images
from rectifier.training.job import network_of
from rectifier.training.run.folder import Run
from rectifier.training.settings import SETTINGS


@dataclass(frozen=True)
class PredictionTable:
    """The predictions of a run for N images: the class of each label ``(N, A)`` and its probability ``(N, A)``.

    An unreadable image has class -1 and probability NaN; ``unreadable`` lists these images with the errors. ``rule`` is
    the decision rule, and ``why`` is the reason for it.
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

        A taken name gets ``_`` at its end: a label called image has the column ``image_``.
        """
        taken = {"image", *self.space.names}
        named = [_free(label, taken) if label == "image" else label for label in self.space.names]
        shares = [_free(f"{label}_probability", taken) for label in self.space.names]
        return ["image", *(name for pair in zip(named, shares, strict=True) for name in pair)]

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the table as text, one per image; the cells of an unreadable image are blank."""
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
        """Write the table as CSV, atomically. Cells that start with = stay as they are."""
        path = Path(path)
        check_writable(path)
        write_bytes(path, self.text().encode(errors="surrogateescape"), durable=True)


def check_writable(path: Path) -> None:
    """Refuse a path that no table can be written to, before any work."""
    if path.is_dir():
        check.fail(str(path), "a file to write", "a folder")
    if not path.parent.is_dir():
        check.no_file(f"The folder {path.parent}")


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
        images: image files, folders of images of any depth, and tables (CSV or Parquet) with a column of image paths.
            The order and duplicates are kept. Images of a table have the names that the table gives them.
        rule: a decision rule of the run: ``argmax``, ``prior``, ``tuned``. By default the one that validation prefers.
        root: the folder that the paths of tables start from; by default the folder of each table.
        batch_size: images per batch; only a few batches are in memory.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        calibrated: return calibrated probabilities: from the logits divided by their temperature, without the offsets
            of the rule. The rule still decides the class.
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
    named = find_images(images, root, run.config.data_options.get("image"))
    height, width, channels = run.data["shape"]
    files = FilesOnDemand(tuple(path for _, path in named), (height, width, channels), run.data["fit"])
    calibration = TemperatureScaling.from_dict(rules["calibration"]) if calibrated else None
    offsets, found = torch.tensor(rules["offsets"][name]), []
    with _ignored_warnings(), console.progress() as display:
        task = display.add_task("predicting", total=len(files))
        for logits in _logits(run, files, batch_size, make_fabric(_options(run.config.precision, device), alone=True)):
            # On the CPU, because some devices lack double precision.
            found.append(decide(logits.cpu(), run.space.sizes, offsets, calibration))
            display.advance(task, len(logits))
    classes, probabilities = (torch.cat(each) for each in zip(*found, strict=True))
    bad = dict(sorted(files.unreadable.items()))
    if len(bad) == len(named):
        hint = "" if root else " Paths in a table start from the table's folder, or from root."
        example = f"{named[0][1]} ({bad[0]})"
        raise ValueError(f"None of {check.amount(len(named), 'image')} can be read, such as {example}.{hint}")
    classes[list(bad)], probabilities[list(bad)] = -1, torch.nan
    unreadable = tuple((named[row][0], reason) for row, reason in bad.items())
    names = tuple(image for image, _ in named)
    return PredictionTable(names, classes, probabilities, run.space, name, why, unreadable)


def _chosen_rule(rules: dict[str, Any], wanted: str | None) -> tuple[str, str]:
    """Return the name of the rule, and the reason for it."""
    if wanted is not None:
        check.raise_all([check.choice("rule", wanted, tuple(rules["offsets"]))])
        return wanted, "as requested"
    name = rules["preferred"]
    return name, f"preferred by validation, with a class-balanced accuracy of {100 * rules['validation'][name]:.1f} %"


def decide(
    logits: Tensor, sizes: tuple[int, ...], offsets: Tensor, calibration: TemperatureScaling | None = None
) -> tuple[Tensor, Tensor]:
    """Return the best class of every label under ``offsets`` ``(K,)`` and its probability, both ``(N, A)``.

    Probabilities come from the adjusted logits, or from calibrated ones.

    >>> decide(torch.tensor([[0.0, 0.0, 9.0, 0.0, 0.0]]).log1p(), (3, 2), torch.zeros(5))
    (tensor([[2, 0]]), tensor([[0.8333, 0.5000]], dtype=torch.float64))
    """
    logits = logits.double()  # rules are scored in double precision
    adjusted = logits + offsets.double()
    classes = columns.argmax(adjusted, sizes)
    shares = columns.softmax(adjusted if calibration is None else calibration(logits), sizes)
    return classes, shares.gather(1, columns.own_columns(classes, sizes))


def _logits(run: Run, files: FilesOnDemand, batch_size: int, fabric: Fabric) -> Iterator[Tensor]:
    """Yield the logits of the images, batch by batch: the classifier's, or the scores of a decision by features."""
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
    network, loader = load_network(run).to(fabric.device), _loader(run, files, batch_size, fabric)
    for _, output in outputs(fabric, network, loader):
        yield output.logits if decide is None else decide(output.features)


def _options(precision: str, device: str) -> Options:
    """Return the options for one device, in the precision of training; a CPU has float32 in place of float16."""
    cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    return Options(accelerator=device, precision="32" if cpu and precision == "16" else precision)


def load_network(run: Run) -> nn.Module:
    """Return the network of a run with the weights of the chosen epoch."""
    config = run.config
    # The run's weights replace pretrained ones, so timm need not fetch any.
    more = {"pretrained": False} if config.network.startswith("timm:") else {}
    network = network_of(config, run.space, run.data["shape"], **more)
    network = network.double() if config.precision == "64" else network
    network.load_state_dict(run.weights())
    return network


def _loader(run: Run, files: FilesOnDemand, batch_size: int, fabric: Fabric) -> Loader:
    targets = torch.full((len(files), len(run.space)), -1)
    data = ImageData("images", files, targets, run.space, torch.full((len(files),), PARTS.index("test")))
    with console.quiet():  # users need not know where the loader keeps pixels
        return Loader(data, "test", batch_size, device=fabric.device, mode="streamed", normalise=run.normalisation)


@contextmanager
def _ignored_warnings() -> Iterator[None]:
    """Ignore warnings while all images are decoded.

    Decoding also does so for each image. But one thread restores what another has set, so the state must be saved
    around all threads.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _free(name: str, taken: set[str]) -> str:
    """Return the name with underscores at its end until it is free, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
