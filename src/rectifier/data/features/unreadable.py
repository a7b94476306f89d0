"""The list of images whose features cannot be computed, next to the caches of features."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rectifier._base import check, console
from rectifier._base.files import write_bytes
from rectifier.data.cache_home import cache_home
from rectifier.data.dataset import ImageData, ImageFiles


def unreadable_list(data: ImageData) -> Path:
    """Return the path of the list: a CSV file with images and reasons, absent if all images can be read."""
    root = data.images.root.absolute() if isinstance(data.images, ImageFiles) else ""
    short = hashlib.sha256(f"{root}\n{data.name}".encode(errors="surrogateescape")).hexdigest()[:8]
    name = re.sub(r"[^\w.-]+", "-", data.name)
    return cache_home() / "features" / "unreadable" / f"{name}-{short}.csv"


def unreadable_images(data: ImageData) -> frozenset[str]:
    """Return the paths of the images that the last ``cached_features`` of this data left out."""
    try:
        with unreadable_list(data).open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            return frozenset(row["image"] for row in csv.DictReader(file))
    except FileNotFoundError:
        return frozenset()


def list_unreadable(data: ImageData, reasons: Mapping[int, str], unreadable: str) -> None:
    """Write the list and say so, or raise an error if ``unreadable`` is ``"raise"`` or no image is left."""
    path = unreadable_list(data)
    if not reasons:
        with suppress(OSError):
            path.unlink()
        return
    names = data.images.paths if isinstance(data.images, ImageFiles) else data.ids
    text = io.StringIO()
    csv.writer(text).writerows([("image", "reason"), *dict.fromkeys((names[p], why) for p, why in reasons.items())])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, text.getvalue().encode(errors="surrogateescape"))
    count = f"{len(reasons):,} of {check.amount(len(data), 'image')}"
    if len(reasons) < len(data) and unreadable == "skip":
        console.say(f"{count} cannot be read; see {path}.")
        return
    first, them = names[next(iter(reasons))], "it" if len(reasons) == 1 else "them"
    remedy = "No image is left."
    if len(reasons) < len(data):
        remedy = f"Repair or remove {them}, or set unreadable='skip'."
    raise ValueError(f"{count} cannot be read, e.g. {first}. {remedy} {path} gives the reason for each.")
