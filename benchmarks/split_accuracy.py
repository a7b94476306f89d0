"""Class-balanced accuracy on the same photographs and splits: the ten-line script and ``rectifier train``.

Used by pretrained.py. Each split has its own seed, which draws the sample, the split and the seed of the run. A folder
keeps tables, features, answers and runs, so that a stopped benchmark resumes there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from photographs import DATASETS, as_files, at_most, draw, write_table
from ten_lines import Table, Texts, balanced_accuracy, predicted

from rectifier.data import cached_features
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.evaluation.scoring import PREFERRED
from rectifier.labels import columns
from rectifier.networks.pretrained import extractor, load_backbone
from rectifier.training import Config, resume, train
from rectifier.training.run.folder import Run

VARIANTS: dict[str, dict[str, str]] = {"default": {}, "tune=last": {"tune": "last"}}
MOST_TESTED = 5000  # test images of a data set with its own split


def scores(
    name: str,
    seed: int,
    work: Path,
    root: Path | None,
    *,
    variants: Sequence[str] = tuple(VARIANTS),
    settings: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the ten-line script and each variant of ``rectifier train`` with its scores on one split."""
    source, folder = DATASETS[name], work / name / str(seed)
    data = draw(source, seed, root)
    if source.images is None:
        data = at_most(data, "test", MOST_TESTED)
    data = as_files(data, work / f"{name}-images")
    images = data.images
    if not isinstance(images, ImageFiles):
        raise TypeError(f"Expected {name} to have image files.")
    path = folder / "table.csv"
    if not path.exists():
        write_table(data, path)
    table = Table.read(path)
    answer = kept(folder / "ten_lines.json", lambda: ten_lines_answer(table, data))
    labels, truth = {label: np.array(found) for label, found in answer["classes"].items()}, table.test()
    yield "ten lines", {"score": balanced_accuracy(truth, labels), "labels": len(labels), "seconds": answer["seconds"]}
    for variant in variants:
        config = Config(str(path), images=str(images.root), seed=seed)
        run = finished_run(config.with_settings({**VARIANTS[variant], **(settings or {})}), folder / variant)
        yield variant, scores_of_run(run, table, list(labels))


def ten_lines_answer(table: Table, data: ImageData) -> dict[str, Any]:
    """Return the classes that the ten-line script gives the test images, and its seconds after the features.

    The features are ours, from the cache that the runs use. A test compares them with those of the script's network.
    """
    backbone = load_backbone("efficientnet-lite0")
    images: Any = cached_features(data, extractor(backbone, backbone.with_penultimate().layers)).images
    x = images.gather(np.arange(len(data)))[:, : backbone.width]  # the last layer, as in the script
    start = time.perf_counter()
    classes = {label: found.tolist() for label, found in predicted(x, table).items()}
    return {"classes": classes, "seconds": time.perf_counter() - start}


def scores_of_run(run: Run, table: Table, labels: Sequence[str]) -> dict[str, Any]:
    """Score a finished run as the ten-line script is scored, under the rule that it prefers and under argmax."""
    rule, truth = run.rules[PREFERRED], table.test()
    seconds = sum(session.get("seconds", 0) for session in run.environment["sessions"])
    return {
        "score": balanced_accuracy(truth, classes_of_run(run, rule, table, labels)),
        "argmax": balanced_accuracy(truth, classes_of_run(run, "argmax", table, labels)),
        **{"rule": rule, "seconds": seconds},
    }


def classes_of_run(run: Run, rule: str, table: Table, labels: Sequence[str]) -> dict[str, Texts]:
    """Return the classes ``(N,)`` that a run gives the test images of a table under a rule, label by label."""
    found = run.predictions("test")
    place = {image: position for position, image in enumerate(found.ids)}
    rows = [place[image] for image, part in zip(table.images, table.part, strict=True) if part == "test"]
    decided = columns.argmax(found.logits + torch.tensor(run.rules["offsets"][rule]), found.space.sizes)[rows]
    return {
        label: np.array(classes)[decided[:, a].numpy()]
        for a, (label, classes) in enumerate(zip(found.space.names, found.space.classes, strict=True))
        if label in labels
    }


def finished_run(config: Config, out: Path) -> Run:
    """Return the run in a folder: train it, resume it, or take it as it is."""
    if not (out / "config.json").is_file():
        return train(config, out)
    if Run(out).asked != config.anchored():
        raise ValueError(f"{out} has other settings. Delete it, or give another --work.")
    return Run(out) if Run(out).is_finished else resume(out)


def kept(path: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a JSON file holds. If there is none, compute and write it."""
    if not path.exists():
        _replace(path, lambda draft: draft.write_text(json.dumps(compute())))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under another name first, so that a kill leaves no half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    write(draft)
    draft.replace(path)
