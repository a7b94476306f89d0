"""predict_images: from a run and new images to a table of classes and probabilities.

New images are processed like the run's own: the same decoding, the same loader, the same network.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier._base.files import as_csv, write_bytes
from rectifier.data.dataset import PARTS, ImageData
from rectifier.data.loader import Loader
from rectifier.evaluation.by_features import DECISIONS
from rectifier.evaluation.by_features.hog import hog_features
from rectifier.evaluation.rules import TemperatureScaling
from rectifier.labels import columns
from rectifier.labels.space import LabelSpace
from rectifier.methods import find_method
from rectifier.networks.pretrained import Backbone, extractor
from rectifier.training.engine.devices import make_fabric
from rectifier.training.engine.options import Options
from rectifier.training.engine.outputs import outputs
from rectifier.training.heads import FeatureHead
from rectifier.training.image_files import FilesOnDemand, find_images
from rectifier.training.job import network_of
from rectifier.training.recipe import is_on_features
from rectifier.training.run.folder import Run
from rectifier.training.settings import SETTINGS
from rectifier.training.tuned import WholeNetwork, saved_network

Pretrained = tuple[Backbone, FeatureHead]


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
        header, rows = self.columns, []
        for image, classes, shares in zip(self.images, self.classes.tolist(), self.probabilities.tolist(), strict=True):
            cells = [image]
            for names, k, share in zip(self.space.classes, classes, shares, strict=True):
                cells += ["", ""] if k < 0 else [names[k], f"{share:.6f}"]
            rows.append(dict(zip(header, cells, strict=True)))
        return rows

    def text(self) -> str:
        """Return the table as CSV."""
        return as_csv(self.rows())

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
    known = SETTINGS["accelerator"].choices
    check.raise_all([check.choice("device", device, known), check.count("batch_size", batch_size)])
    rules = run.rules
    name, why = rules["preferred"] if rule is None else rule, "as requested"
    check.raise_all([check.choice("rule", name, tuple(rules["offsets"]))])
    if rule is None:
        score = 100 * rules["validation"][name]
        why = f"preferred by validation, with a class-balanced accuracy of {score:.1f} %"
    named = find_images(images, root, run.config.data_options.get("image"))
    pretrained = saved_network(run) if is_on_features(run.config) else None
    files = _files(run, [path for _, path in named], pretrained)
    calibration = TemperatureScaling(**rules["calibration"]) if calibrated else None
    offsets, found = torch.tensor(rules["offsets"][name]), []
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    precision = "32" if on_cpu and run.config.precision == "16" else run.config.precision  # a CPU has no float16
    fabric = make_fabric(Options(accelerator=device, precision=precision), alone=True)
    # Decoding ignores warnings too, but one thread restores what another has set: it needs a block around all threads.
    with warnings.catch_warnings(action="ignore"), console.progress() as display:
        task = display.add_task("predicting", total=len(files))
        for logits in _logits(run, files, batch_size, fabric, pretrained):
            # On the CPU, because some devices lack double precision.
            found.append(decide(logits.cpu(), run.space.sizes, offsets, calibration))
            display.advance(task, len(logits))
    classes, probabilities = (torch.cat(each) for each in zip(*found, strict=True))
    bad, names = dict(sorted(files.unreadable.items())), tuple(image for image, _ in named)
    if len(bad) == len(named):
        hint = "" if root else " Paths in a table start from the table's folder, or from root."
        none = f"None of {len(named):,} images can be read, e.g. {named[0][1]}"
        what = f"{named[0][1]} cannot be read" if len(named) == 1 else none
        raise ValueError(f"{what} ({bad[0]}).{hint}")
    classes[list(bad)], probabilities[list(bad)] = -1, torch.nan
    unreadable = tuple((names[row], reason) for row, reason in bad.items())
    return PredictionTable(names, classes, probabilities, run.space, name, why, unreadable)


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


def _logits(
    run: Run, files: FilesOnDemand, batch_size: int, fabric: Fabric, pretrained: Pretrained | None
) -> Iterator[Tensor]:
    """Yield the logits of the images, batch by batch: the classifier's, or the scores of a decision by features."""
    decision: Any = None
    if (saved := run.decision()) is not None:
        decision = DECISIONS[saved[0]].from_state({name: each.to(fabric.device) for name, each in saved[1].items()})
    if find_method(run.config.method).features is not None:
        for start in range(0, len(files), batch_size):
            pixels = files.gather(np.arange(start, min(start + batch_size, len(files))))
            yield decision(hog_features(pixels).to(fabric.device))
        return
    if pretrained is not None:
        yield from _pretrained_logits(pretrained, files, batch_size, fabric, decision)
        return
    targets = torch.full((len(files), len(run.space)), -1)
    data = ImageData("images", files, targets, run.space, torch.full((len(files),), PARTS.index("test")))
    with console.quiet():  # users need not know where the loader keeps pixels
        options: dict[str, Any] = {"device": fabric.device, "mode": "streamed", "normalise": run.normalisation}
        loader = Loader(data, "test", batch_size, **options)
    for _, output in outputs(fabric, load_network(run).to(fabric.device), loader):
        yield output.logits if decision is None else decision(output.features)


def _files(run: Run, paths: Sequence[Path], pretrained: Pretrained | None) -> FilesOnDemand:
    """Return image files that are decoded as those of the run were."""
    fit = run.data["fit"]
    if pretrained is not None:
        known = pretrained[0].preprocessing
        return FilesOnDemand(tuple(paths), (*known.size, 3), fit, interpolation=known.interpolation)
    height, width, channels = run.data["shape"]
    return FilesOnDemand(tuple(paths), (height, width, channels), fit)


@torch.no_grad()
def _pretrained_logits(
    pretrained: Pretrained, files: FilesOnDemand, batch_size: int, fabric: Fabric, decision: Any
) -> Iterator[Tensor]:
    """Yield the logits of a pretrained network: its features by the fastest engine of this machine, then its head."""
    backbone, head = pretrained
    compute = extractor(backbone, backbone.layers, device=fabric.device.type)
    head = head.to(fabric.device)
    for start in range(0, len(files), batch_size):
        pixels = files.gather(np.arange(start, min(start + batch_size, len(files))))
        found = compute(pixels)
        features = np.concatenate([found[layer] for layer in backbone.layers], 1)
        output = head(torch.from_numpy(features).to(fabric.device))
        yield output.logits if decision is None else decision(output.features)


def load_network(run: Run) -> nn.Module:
    """Return the network of a run with the weights of the chosen epoch."""
    config = run.config
    if is_on_features(config):
        backbone, head = saved_network(run)
        return WholeNetwork(backbone.features, head)
    network = network_of(config, run.space, run.data["shape"])
    network = network.double() if config.precision == "64" else network
    network.load_state_dict(run.weights())
    return network


def _free(name: str, taken: set[str]) -> str:
    """Return the name with underscores at its end until it is free, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
