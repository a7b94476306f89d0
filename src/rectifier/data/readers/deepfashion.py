"""DeepFashion, category and attribute prediction benchmark: 289,222 clothes with 1,000 binary attributes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from rectifier._base import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.text_files import counted_rows, find_folder, image_parts, image_targets, place
from rectifier.labels.space import LabelSpace

GROUPS = ("texture", "fabric", "shape", "part", "style")  # the attribute types 1 to 5 of list_attr_cloth.txt
_HINT = (
    "Request the Category and Attribute Prediction Benchmark at"
    " https://mmlab.ie.cuhk.edu.hk/projects/DeepFashion.html and put its folders Anno, Eval and img into"
    " {root}/deepfashion."
)
_VALUES = {"1": 1, "-1": 0, "0": -1}  # 0 means that an attribute was not annotated


def deepfashion(root: Path, *, groups: str = "/".join(GROUPS)) -> ImageData:
    """Read DeepFashion from ``root/deepfashion``: ``Anno/list_attr_*.txt``, ``Eval/list_eval_partition.txt``, ``img``.

    Every attribute is a binary label, named after its group: ``texture/floral``. A group is not a label, because an
    image has several attributes of one group. ``groups`` selects some of them, as in ``texture/style``.
    """
    chosen = groups.split("/")
    check.raise_all([check.choice("groups", group, GROUPS) for group in chosen])
    hint = _HINT.format(root=root)
    folder = find_folder(root, "deepfashion", "Eval/list_eval_partition.txt", hint)
    newer = (folder / "Anno_coarse").is_dir() and not (folder / "Anno").is_dir()
    path = folder / ("Anno_coarse" if newer else "Anno") / "list_attr_cloth.txt"
    attributes = _attribute_names(path, hint)
    keep = np.array([name.split("/")[0] in chosen for name in attributes], bool)
    if not keep.any():
        check.fail(str(path), f"a list with attributes of {', '.join(chosen)}", "none")
    path = path.with_name("list_attr_img.txt")
    names, targets = image_targets(_rows(path, "images", hint), path, keep, _VALUES)
    path = folder / "Eval" / "list_eval_partition.txt"
    split = image_parts(_rows(path, "images", hint), path, names, ("train", "val", "test"), "list_attr_img.txt")
    return ImageData(
        "deepfashion",
        ImageFiles(folder, tuple(names)),
        torch.from_numpy(targets),
        LabelSpace.from_names({name: ["no", "yes"] for name, kept in zip(attributes, keep, strict=True) if kept}),
        torch.from_numpy(split),
        tuple(names),
        (f"{int(keep.sum()):,} attributes of the groups {', '.join(chosen)}; official partition.",),
    )


def _attribute_names(path: Path, hint: str) -> list[str]:
    """Return ``group/attribute`` for every row; an attribute's own name may contain blanks."""
    names: dict[str, None] = {}
    for number, line in _rows(path, "attributes", hint):
        *words, kind = line.split()
        if not words or kind not in ("1", "2", "3", "4", "5"):
            check.fail(place(path, number), "an attribute and its type, 1 to 5", repr(line))
        name = f"{GROUPS[int(kind) - 1]}/{' '.join(words)}"
        if name in names:
            check.fail(place(path, number), "an attribute named once", f"{name!r} again")
        names[name] = None
    return list(names)


def _rows(path: Path, what: str, hint: str) -> Iterator[tuple[int, str]]:
    rows = counted_rows(path, what, hint)
    next(rows)  # the names of the columns
    return rows
