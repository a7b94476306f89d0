"""Samples of photographs with a split, for benchmarks of pretrained networks; and folders with a table of them."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from rectifier.data import open_data
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageFiles
from rectifier.data.duplicates import duplicate_groups
from rectifier.data.split import stratified_split
from rectifier.labels.space import LabelSpace

SHARES = (0.6, 0.2, 0.2)
FEWEST = 5  # images of a class in a sample; the images of rarer classes miss the label
LEFT_OUT = ("year",)  # a label of the fashion products that no photograph shows


@dataclass(frozen=True)
class Source:
    """A data set, and the number of its images in a sample. None takes the data set as it is, with its own split."""

    spec: str
    images: int | None = None


DATASETS = {
    "fashion-2000": Source("fashion", 2000),
    "fashion-6000": Source("fashion", 6000),
    "celeba-2000": Source("celeba", 2000),
    "celeba-6000": Source("celeba", 6000),
    "cifar100-lt": Source("cifar100:exp=100"),
    "cifar100-imb1": Source("cifar100:imb=1"),
}


def draw(source: Source, seed: int, root: Path | None) -> ImageData:
    """Return a sample with its split, both drawn with a seed.

    A smaller sample of one seed is a part of a larger one. Exact duplicates are in one part of the split.
    """
    if source.images is None:
        return open_data(source.spec, root=root, seed=seed)
    whole = _opened(source.spec, root)
    data = whole.select(np.random.default_rng(seed).permutation(len(whole))[: source.images])
    values = classes_of(data)
    kept = {label: without_rare(column) for label, column in values.items() if label not in LEFT_OUT}
    space = LabelSpace.infer({label: column for label, column in kept.items() if len({*column} - {""}) > 1})
    targets = space.encode(kept)
    groups = duplicate_groups(data.images.root, data.images.paths) if isinstance(data.images, ImageFiles) else None
    split = stratified_split(targets, space, shares=SHARES, seed=seed, groups=groups)
    return replace(data, targets=targets, space=space, split=split)


@cache
def _opened(spec: str, root: Path | None) -> ImageData:
    return open_data(spec, root=root)


def classes_of(data: ImageData) -> dict[str, list[str]]:
    """Return the classes of all images label by label, blank where missing."""
    targets = data.targets.T.tolist()
    return {
        label: [classes[target] if target >= 0 else "" for target in column]
        for label, classes, column in zip(data.space.names, data.space.classes, targets, strict=True)
    }


def without_rare(column: Sequence[str], fewest: int = FEWEST) -> list[str]:
    """Blank the classes with fewer than ``fewest`` images.

    >>> without_rare(["hat", "shoe", "hat"], fewest=2)
    ['hat', '', 'hat']
    """
    counts = Counter(column)
    return [value if counts[value] >= fewest else "" for value in column]


def at_most(data: ImageData, part: str, number: int) -> ImageData:
    """Keep a fixed random choice of the images of one part."""
    own = data.indices(part)
    dropped = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(0))[number:]]
    kept = torch.ones(len(data), dtype=torch.bool)
    kept[dropped] = False
    return data.select(kept.nonzero()[:, 0])


def as_files(data: ImageData, folder: Path) -> ImageData:
    """Return data with image files: images in memory are written to a folder, except those that are there already."""
    if not isinstance(data.images, ImageArray):
        return data
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(f"{each.replace('/', '-')}.png" for each in data.ids)
    for name, pixels in zip(names, data.images.pixels, strict=True):
        if not (folder / name).exists():
            Image.fromarray(pixels).save(folder / name)
    return replace(data, images=ImageFiles(folder, names), ids=names)


def write_table(data: ImageData, path: Path) -> None:
    """Write table.csv: image, the labels, split."""
    values = classes_of(data)
    parts = [PARTS[part] for part in data.split.tolist()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", *values, "split"])
        writer.writerows(zip(data.ids, *values.values(), parts, strict=True))


def write_folder(data: ImageData, folder: Path, size: tuple[int, int] | None = None) -> None:
    """Write table.csv and images/. With a size (width, height) the photographs are resized and saved again."""
    write_table(data, folder / "table.csv")
    (folder / "images").mkdir()
    if not isinstance(data.images, ImageFiles):
        raise TypeError("Expected data with image files. as_files writes images in memory.")
    for name in data.images.paths:
        source, copy = data.images.root / name, folder / "images" / name
        if size is None:
            copy.write_bytes(source.read_bytes())
        else:
            Image.open(source).convert("RGB").resize(size, Image.Resampling.BICUBIC).save(copy, quality=90)


def generated(number: int, size: tuple[int, int], folder: Path) -> ImageData:
    """Write JPEG files with smooth random colours and some grain, as a stand-in for photographs."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    names = tuple(f"{place:05d}.jpg" for place in range(number))
    for name in names:
        colours = Image.fromarray(random.integers(0, 256, (12, 12, 3), np.uint8)).resize(size, Image.Resampling.BICUBIC)
        pixels = np.asarray(colours, np.int16) + random.integers(-12, 13, (size[1], size[0], 1), np.int16)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name, quality=90)
    targets = torch.arange(number)[:, None] % 2
    space = LabelSpace.from_names({"half": ["even", "odd"]})
    split = torch.from_numpy(random.choice(3, number, p=SHARES))
    return ImageData("generated", ImageFiles(folder, names), targets, space, split, names)
