"""CelebA: 202,599 faces with 40 binary attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.readers.annotations import (
    check_count,
    check_different,
    image_parts,
    image_rows,
    take_count,
    take_line,
)
from rectifier.data.readers.text_files import find_folder, numbered_lines
from rectifier.labels.space import LabelSpace

_HINT = (
    "Get the aligned images (img_align_celeba) and the annotations list_attr_celeba.txt and list_eval_partition.txt"
    " from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and put them into {root}/celeba."
)
_PAPER_VALIDATION = 10_000 / 162_770  # of the official training images


def celeba(root: Path, *, split: str = "official", seed: int = 0) -> ImageData:
    """Read CelebA from ``root/celeba``: its images, attributes and partition.

    ``split="official"`` takes the partition as it is. ``split="paper"`` follows the paper: it trains on the official
    training images but for 10,000 drawn by ``seed`` for validation, and tests on the 19,867 images of the official
    validation partition; the official test images are left out.
    """
    check.raise_all([check.choice("split", split, ("official", "paper"))])
    hint = _HINT.format(root=root)
    folder = find_folder(root, ["celeba"], "list_attr_celeba.txt", hint)
    names, attributes, targets = _attributes(folder / "list_attr_celeba.txt", hint)
    path = folder / "list_eval_partition.txt"
    partition = image_parts(numbered_lines(path, hint), path, names, {"0": 0, "1": 1, "2": 2}, "list_attr_celeba.txt")
    space = LabelSpace.from_names({attribute: ["no", "yes"] for attribute in attributes})
    images = ImageFiles(folder / "img_align_celeba", tuple(names))
    notes = (f"Official partition of {len(names):,} of the 202,599 images.",)
    data = ImageData(
        "celeba", images, torch.from_numpy(targets), space, torch.from_numpy(partition), tuple(names), notes
    )
    return data if split == "official" else _paper_split(data, seed)


def _attributes(path: Path, hint: str) -> tuple[list[str], list[str], NDArray[np.int64]]:
    lines = numbered_lines(path, hint)
    total = take_count(lines, path)
    number, header = take_line(lines, path, "the names of the attributes")
    attributes = header.split()
    check_different(path, number, attributes)
    names, targets = image_rows(lines, path, np.arange(len(attributes)), len(attributes), {"1": 1, "-1": 0})
    check_count(path, total, len(names), "images")
    return names, attributes, targets


def _paper_split(data: ImageData, seed: int) -> ImageData:
    kept = data.select((data.split != 2).nonzero()[:, 0])
    train = kept.indices("train").numpy()
    held_out = np.random.default_rng(seed).permutation(train)[: round(len(train) * _PAPER_VALIDATION)]
    split = torch.where(kept.split == 1, 2, 0)
    split[torch.from_numpy(held_out)] = 1
    note = (
        f"The paper's split: {len(held_out):,} of the official training images validate (seed {seed}), the official"
        f" validation images test; {len(data) - len(kept):,} official test images left out."
    )
    return ImageData("celeba:split=paper", kept.images, kept.targets, kept.space, split, kept.ids, (note,))
