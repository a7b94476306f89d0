"""X-Domain: 245,467 shop images of clothes with nine labels. Its files are not public; this is the layout we read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rectifier.data.dataset import ImageData
from rectifier.data.table import read_table
from rectifier.data.text_files import find_folder

LABELS = ("category", "colour", "collar", "button", "pattern", "shape", "length", "sleeve-shape", "sleeve-length")
_SHARES = (155_467, 10_000, 80_000)  # the paper's numbers of images
_HINT = (
    "X-Domain is not public; ask its authors (Chen et al., Deep domain adaptation for describing people, 2015). Put"
    " labels.csv (columns image, " + ", ".join(LABELS) + ", and optionally split) and the folder images into"
    " {root}/xdomain."
)


def xdomain(root: Path, *, shares: str | Sequence[float] = _SHARES, seed: int = 0) -> ImageData:
    """Read X-Domain from ``root/xdomain``: ``labels.csv`` and the folder ``images``.

    ``labels.csv`` has the column ``image`` (a path below ``images``) and one column for each of the nine labels, with
    the class's name or a blank. It may have ``split``. Otherwise ``seed`` draws a stratified split in the paper's
    shares, 155,467 / 10,000 / 80,000.
    """
    folder = find_folder(root, "xdomain", "labels.csv", _HINT.format(root=root))
    data = read_table(
        folder / "labels.csv", images=folder / "images", image="image", labels=LABELS, shares=shares, seed=seed
    )
    classes = sum(data.space.sizes)
    note = [] if classes == 178 else [f"{classes} classes; the paper counts 178."]
    return replace(data, name="xdomain", notes=(*data.notes, *note))
