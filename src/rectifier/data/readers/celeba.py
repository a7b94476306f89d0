"""CelebA: 202,599 faces with 40 binary attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from rectifier._base import check
from rectifier.data import text_files
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.labels.space import LabelSpace

_ATTRIBUTES, _PARTITION = "list_attr_celeba.txt", "list_eval_partition.txt"
_HINT = (
    f"Get the aligned images (img_align_celeba) and the annotations {_ATTRIBUTES} and {_PARTITION}"
    " from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html and put them into {root}/celeba."
)
_PAPER_VALIDATION = 10_000 / 162_770  # of the official training images


def celeba(root: Path, *, split: str = "official", seed: int = 0) -> ImageData:
    """Read CelebA from ``root/celeba``: its images, attributes and partition.

    ``split="official"`` takes the partition as it is. ``split="paper"`` follows the paper. It trains on the official
    training images, except for 10,000 that ``seed`` draws for validation. It tests on the 19,867 images of the
    official validation partition, and drops the official test images.
    """
    check.raise_all([check.choice("split", split, ("official", "paper"))])
    hint = _HINT.format(root=root)
    folder = text_files.find_folder(root, "celeba", _ATTRIBUTES, hint)
    path = folder / _ATTRIBUTES
    rows = text_files.counted_rows(path, "images", hint)
    line, header = next(rows)
    attributes = header.split()
    text_files.check_header(path, attributes, line)
    names, targets = text_files.image_targets(rows, path, np.ones(len(attributes), bool), {"1": 1, "-1": 0})
    path = folder / _PARTITION
    rows = text_files.numbered_lines(path, hint)
    partition = text_files.image_parts(rows, path, names, ("0", "1", "2"), _ATTRIBUTES)
    data = ImageData(
        "celeba",
        ImageFiles(folder / "img_align_celeba", tuple(names)),
        torch.from_numpy(targets),
        LabelSpace.from_names({attribute: ["no", "yes"] for attribute in attributes}),
        torch.from_numpy(partition),
        tuple(names),
        (f"Official partition of {len(names):,} of the 202,599 images.",),
    )
    return data if split == "official" else _paper_split(data, seed)


def _paper_split(data: ImageData, seed: int) -> ImageData:
    kept = data.select((data.split != 2).nonzero()[:, 0])
    train = kept.indices("train").numpy()
    held_out = np.random.default_rng(seed).permutation(train)[: round(len(train) * _PAPER_VALIDATION)]
    split = torch.where(kept.split == 1, 2, 0)
    split[torch.from_numpy(held_out)] = 1
    note = (
        f"The paper's split: {len(held_out):,} official training images for validation (seed {seed}), the official"
        f" validation images for test. {len(data) - len(kept):,} official test images are dropped."
    )
    return ImageData("celeba:split=paper", kept.images, kept.targets, kept.space, split, kept.ids, (note,))
