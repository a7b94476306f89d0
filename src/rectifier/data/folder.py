"""Your own data as folders: one per class, or one per part with the classes inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from rectifier._base import check
from rectifier.data.dataset import ImageData, ImageFiles
from rectifier.data.split import PART_NAMES, SHARES, drawn_split, with_validation
from rectifier.data.table import IMAGE_SUFFIXES
from rectifier.labels.space import LabelSpace


def read_folder(
    path: Path, *, label: str = "class", shares: str | Sequence[float] = SHARES, seed: int = 0
) -> ImageData:
    """Read a folder of images, one folder per class: ``path/cat/1.jpg``. Deeper folders belong to their class.

    The folders below ``path`` may also be train, val (valid, validation) and test, with the classes inside them.
    Otherwise ``seed`` draws a stratified split with the given ``shares`` of train, validation and test. ``label`` names
    the one label.
    """
    folders = _folders(path)
    by_part = [f for f in folders if f.name.lower() in PART_NAMES]
    has_parts = any(_folders(f) for f in by_part)
    if has_parts and len(by_part) < len(folders):
        other = next(f.name for f in folders if f not in by_part)
        check.fail(str(path), "either one folder per class or one per part", f"both {by_part[0].name!r} and {other!r}")
    places = [(f, PART_NAMES[f.name.lower()]) for f in by_part] if has_parts else [(path, 0)]
    found, skipped, loose = _scan(path, places)
    if loose and not folders:
        remedy = f"Use a table (labels.csv) with images={path}, or sort the images into one folder per class."
        raise ValueError(f"{path} has images but no subfolders per class. {remedy}")
    if not found:
        got = f"no image in such a folder (known suffixes: {', '.join(sorted(IMAGE_SUFFIXES))})"
        check.fail(str(path), "a folder with one folder of images per class", got)
    paths, names, parts = zip(*found, strict=True)
    if len(set(names)) == 1:
        check.fail(str(path), "a folder with at least two classes", f"only images of {names[0]!r}")
    if has_parts and 0 not in parts:
        check.fail(str(path), "a folder with images in train", f"images in {by_part[0].name!r} only")
    space = LabelSpace.infer({label: names})
    targets = space.encode({label: names})
    images = ImageFiles(path, paths)
    if has_parts:
        split, notes = with_validation(torch.tensor(parts), images, targets, space, seed, "The folders hold the split.")
    else:
        split, notes = drawn_split(images, targets, space, shares, seed)
    every_class = {folder.name for place, _ in places for folder in _folders(place)}
    if empty := sorted(every_class - set(names)):
        notes.append(f"Ignored {check.amount(len(empty), 'folder')} without images ({', '.join(empty[:5])}).")
    if skipped:
        notes.append(f"Ignored {check.amount(skipped, 'non-image file')}.")
    if loose:
        notes.append(f"Ignored {check.amount(loose, 'image')} outside the class folders.")
    return ImageData(path.resolve().name, images, targets, space, split, images.paths, tuple(notes))


def _scan(root: Path, places: list[tuple[Path, int]]) -> tuple[list[tuple[str, str, int]], int, int]:
    """Return path, class and part of every image in class folders, and the numbers of other files and images."""
    listing: list[tuple[Path, str, int]] = []
    for place, part in places:
        for folder in _folders(place):
            listing += [(file, folder.name, part) for file in sorted(folder.rglob("*"))]
        listing += [(file, "", part) for file in place.iterdir()]  # of no class
    files = [entry for entry in listing if entry[0].is_file() and not is_hidden(entry[0], root)]
    images = [entry for entry in files if entry[0].suffix.lower() in IMAGE_SUFFIXES]
    found = [(file.relative_to(root).as_posix(), name, part) for file, name, part in images if name]
    return found, len(files) - len(images), len(images) - len(found)


def _folders(path: Path) -> list[Path]:
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith("."))


def is_hidden(file: Path, root: Path) -> bool:
    """Say whether a file, or a folder between ``root`` and it, is hidden."""
    return any(part.startswith(".") for part in file.relative_to(root).parts) or file.name == "Thumbs.db"
