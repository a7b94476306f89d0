"""Open the data of a run: check its parts, and decode image files once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rectifier._base import check, console
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageFiles, as_size
from rectifier.data.sources import open_data
from rectifier.data.store import build_store, is_store, unreadable_images
from rectifier.networks.registry import default_size
from rectifier.training.config import Config


def open_for_training(config: Config) -> ImageData:
    """Open the data of a run. Image files are decoded once, into a store in the cache."""
    data = _opened(config)
    _check_parts(data)  # before decoding, which takes time
    size = as_size(config.size)
    if isinstance(data.images, ImageFiles):
        size = size or default_size(config.network)
        folder = store_folder(data, size, config.fit)
        if not is_store(folder):
            console.say(f"Decoding images into {folder}.")
        stored = build_store(data, folder, size, fit=config.fit, unreadable=config.unreadable)
        if len(stored) < len(data):  # unreadable images are left out
            _check_parts(stored)
        return stored
    if isinstance(data.images, ImageArray):
        return build_store(data, "", size, fit=config.fit)
    if size is not None and data.images.shape[:2] != size:  # type: ignore[attr-defined]
        check.fail("size", "None for a store, whose images have a size", config.size)
    return data


def data_settings(config: Config) -> str:
    """Return the settings that runs with the same data have in common."""
    named = (config.data, config.data_root, config.images, config.data_options, config.resplit, _split_seed(config))
    # Images are decoded to the size of the network.
    return repr((*named, config.size, config.fit, config.unreadable, config.network))


def _split_seed(config: Config) -> int | None:
    return config.seed if config.resplit else config.split_seed


def _opened(config: Config) -> ImageData:
    options = {**config.data_options, "seed": _split_seed(config)}
    return open_data(config.data, root=config.data_root, images=config.images, **options)


def fingerprints(config: Config) -> frozenset[str]:
    """Return the fingerprints that the data of a run can have: with and without unreadable images.

    The store's own record does not count, because it may describe earlier labels.
    """
    data = _opened(config)
    found = {data.fingerprint}
    if isinstance(data.images, ImageFiles):
        folder = store_folder(data, as_size(config.size) or default_size(config.network), config.fit)
        lost = unreadable_images(folder)
        kept = [i for i, path in enumerate(data.images.paths) if path not in lost]
        found |= {data.select(kept).fingerprint} if lost else set()
    return frozenset(found)


def store_folder(data: ImageData, size: tuple[int, int], fit: str) -> Path:
    """Return the folder for decoded images: in ``RECTIFIER_CACHE``, or else in the user's cache."""
    cache = Path(os.environ.get("RECTIFIER_CACHE") or Path.home() / ".cache" / "rectifier")
    root = str(data.images.root.absolute())  # type: ignore[attr-defined]
    key = hashlib.sha256(f"{root}\n{data.name}\n{size}\n{fit}".encode()).hexdigest()[:12]
    return cache / "stores" / f"{data.name}-{size[0]}x{size[1]}-{key}"


def _check_parts(data: ImageData) -> None:
    """Refuse data without labelled images in every part, or with a label of one class."""
    for part in PARTS:
        if not len(data.indices(part)):
            remedy = "Add images, or set larger shares for validation and test, such as shares=0.6/0.2/0.2."
            raise ValueError(f"The {part} split of {data.name!r} has no images. {remedy}")
        if not bool((data.targets[data.indices(part)] >= 0).any()):
            raise ValueError(f"The {part} split of {data.name!r} has no labelled images.")
    classes = [int((counts > 0).sum()) for counts in data.counts("train")]
    for name, found in zip(data.space.names, classes, strict=True):
        if found < 2:
            got = "only one class" if found else "no class"
            remedy = f"Leave the label out (for a table: ignore={name!r})."
            raise ValueError(f"Label {name!r} has {got} in training; at least two are needed. {remedy}")
