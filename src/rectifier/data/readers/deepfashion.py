"""DeepFashion, category and attribute prediction benchmark: 289,222 clothes with 1,000 binary attributes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.readers.annotations import check_count, image_parts, image_rows, take_count, take_line
from rectifier.data.readers.text_files import find_folder, numbered_lines, place
from rectifier.labels.space import LabelSpace

GROUPS = ("texture", "fabric", "shape", "part", "style")
"""The attribute types 1 to 5 of ``list_attr_cloth.txt``."""

_HINT = (
    "Ask for the Category and Attribute Prediction Benchmark at"
    " https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html and put its folders Anno, Eval and img into"
    " {root}/deepfashion."
)
_VALUES = {"1": 1, "-1": 0, "0": -1}  # 0 is written where an attribute was not annotated


def deepfashion(root: Path, *, groups: str = "/".join(GROUPS)) -> ImageData:
    """Read DeepFashion from ``root/deepfashion``: ``Anno/list_attr_*.txt``, ``Eval/list_eval_partition.txt``, ``img``.

    Every attribute is a binary label, named after its group: ``texture/floral``. An image has several attributes of one
    group, so a group is no label of its own. ``groups`` picks some, as in ``texture/style``.
    """
    chosen = groups.split("/")
    check.raise_all([check.choice("groups", group, GROUPS) for group in chosen])
    hint = _HINT.format(root=root)
    folder = find_folder(root, ["deepfashion"], "Eval/list_eval_partition.txt", hint)
    newer = folder / "Anno_coarse"
    annotations = newer if newer.is_dir() and not (folder / "Anno").is_dir() else folder / "Anno"
    attributes = _attribute_names(annotations / "list_attr_cloth.txt", hint)
    keep = np.array([name.split("/")[0] in chosen for name in attributes], bool)
    if not keep.any():
        check.fail(f"{annotations / 'list_attr_cloth.txt'}", f"a list with attributes of {', '.join(chosen)}", "none")
    names, targets = _image_attributes(annotations / "list_attr_img.txt", keep, hint)
    split = _partition(folder / "Eval" / "list_eval_partition.txt", names, hint)
    space = LabelSpace.from_names({name: ["no", "yes"] for name, kept in zip(attributes, keep, strict=True) if kept})
    note = f"{int(keep.sum()):,} attributes of the groups {', '.join(chosen)}; official partition."
    return ImageData(
        "deepfashion",
        ImageFiles(folder, tuple(names)),
        torch.from_numpy(targets),
        space,
        torch.from_numpy(split),
        tuple(names),
        (note,),
    )


def _attribute_names(path: Path, hint: str) -> list[str]:
    """Return ``group/attribute`` for every row; an attribute's own name may hold blanks."""
    lines = numbered_lines(path, hint)
    total = take_count(lines, path)
    take_line(lines, path, "the names of its columns")
    names: dict[str, None] = {}
    for number, line in lines:
        *words, kind = line.split()
        if not words or kind not in ("1", "2", "3", "4", "5"):
            check.fail(place(path, number), "an attribute and its type, 1 to 5", repr(line))
        name = f"{GROUPS[int(kind) - 1]}/{' '.join(words)}"
        if name in names:
            check.fail(place(path, number), "an attribute named once", f"{name!r} again")
        names[name] = None
    check_count(path, total, len(names), "attributes")
    return list(names)


def _image_attributes(path: Path, keep: NDArray[np.bool_], hint: str) -> tuple[list[str], NDArray[np.int64]]:
    lines = numbered_lines(path, hint)
    total = take_count(lines, path)
    take_line(lines, path, "the names of its columns")
    names, targets = image_rows(lines, path, np.flatnonzero(keep), len(keep), _VALUES)
    check_count(path, total, len(names), "images")
    return names, targets


def _partition(path: Path, names: list[str], hint: str) -> NDArray[np.int64]:
    lines = numbered_lines(path, hint)
    total = take_count(lines, path)
    take_line(lines, path, "the names of its columns")
    parts = image_parts(lines, path, names, {"train": 0, "val": 1, "test": 2}, "list_attr_img.txt")
    check_count(path, total, len(parts), "images")
    return parts
