"""Open the data of a run: check its parts, settle the config, and decode images or compute their features once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rectifier._base import check, console
from rectifier.data.cache_home import cache_home
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageFiles, as_size
from rectifier.data.decode import INTERPOLATIONS
from rectifier.data.features import cached_features
from rectifier.data.features import unreadable_images as unreadable_features
from rectifier.data.sources import open_data
from rectifier.data.store import build_store, is_store, unreadable_images
from rectifier.methods import needed_of_network
from rectifier.networks.pretrained import Backbone, extractor, load_backbone, load_weights
from rectifier.networks.registry import build_network, default_size
from rectifier.training.config import Config
from rectifier.training.recipe import is_on_features
from rectifier.training.tuned import check_head, tune_of


@dataclass(frozen=True)
class Opened:
    """The data of a run, ready for its loader: pixels, or what lies below the cut of a pretrained ``backbone``.

    ``source`` has the images as they come: in files, in memory or in a store.
    """

    data: ImageData
    source: ImageData
    backbone: Backbone | None = None


def open_source(config: Config) -> ImageData:
    """Open the images of a run as they come. Nothing is decoded."""
    source = _opened(config)
    _check_parts(source)
    _say([note for note in source.notes if "label: " in note])  # columns that may have been meant otherwise
    return source


def open_for_training(settled: Config, source: ImageData, lines: Sequence[str] = ()) -> Opened:
    """Decode the images of a run, or compute their features, once. ``lines`` say what was chosen for it.

    They are printed when network and weights are known to fit.
    """
    if not is_on_features(settled):
        if settled.weights is not None:
            _check_weights(settled, source)
        _say(lines)
        opened = Opened(_pixels(settled, source), source)
    else:
        check_head(settled, source)
        backbone = load_backbone(settled.network, settled.weights, size=as_size(settled.size)).with_penultimate()
        _say([*lines, *([f"Weights of {settled.weights}: {backbone.fitted}."] if settled.weights else [])])
        opened = Opened(_below_the_cut(settled, source, backbone), source, backbone)
    if len(opened.data) < len(source):  # unreadable images are left out
        _check_parts(opened.data)
    return opened


def features_of(
    config: Config, source: ImageData, backbone: Backbone, layers: Sequence[str] | None = None
) -> ImageData:
    """Compute the features of all images once, into the cache."""
    compute = extractor(backbone, layers or backbone.layers, device="cpu" if config.accelerator == "cpu" else "auto")
    return cached_features(source, compute, views=config.views or 1, fit=config.fit, unreadable=config.unreadable)


def _below_the_cut(config: Config, source: ImageData, backbone: Backbone) -> ImageData:
    cut = tune_of(backbone, config.tune)
    if cut == "all":
        return _pixels(config, source, backbone.preprocessing.interpolation)
    return features_of(config, source, backbone, None if cut == "head" else ("maps",))


def _pixels(config: Config, data: ImageData, interpolation: str = "bilinear") -> ImageData:
    size = as_size(config.size)
    if isinstance(data.images, ImageFiles):
        size = size or default_size(config.network)
        folder = store_folder(data, size, config.fit, interpolation)
        if not is_store(folder):
            console.say(f"Decoding images into {folder}.")
        return build_store(
            data, folder, size, fit=config.fit, unreadable=config.unreadable, interpolation=interpolation
        )
    if isinstance(data.images, ImageArray):
        return build_store(data, "", size, fit=config.fit, interpolation=interpolation)
    if size is not None and data.images.shape[:2] != size:  # type: ignore[attr-defined]
        check.fail("size", "None for a store, whose images have a size", config.size)
    return data


def _check_weights(config: Config, source: ImageData) -> None:
    """Refuse weights of another network before anything is decoded."""
    images = source.images
    size = as_size(config.size) or (default_size(config.network) if isinstance(images, ImageFiles) else None)
    shape = (*(size or images.shape[:2]), 3 if isinstance(images, ImageFiles) else images.shape[2])  # type: ignore[attr-defined]
    options = needed_of_network(config.method, config.network_options)
    network = build_network(config.network, source.space, shape, **options)
    load_weights(network, str(config.weights), config.network)


def _say(lines: Sequence[str]) -> None:
    for line in lines:
        console.say(line)


def source_settings(config: Config) -> str:
    """Return the settings that runs with the same images, labels and split have in common."""
    named = (config.data, config.data_root, config.images, config.data_options)
    return repr((*named, config.resplit, _split_seed(config)))


def data_settings(config: Config) -> str:
    """Return the settings that runs with the same pixels or features have in common. The config is settled."""
    prepared = (config.size, config.fit, config.unreadable, config.network)  # the network's size, where none is given
    pretrained = (config.weights, config.tune, config.views, config.accelerator, is_on_features(config))
    return repr((source_settings(config), *prepared, *pretrained))


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
        size = as_size(config.size) or default_size(config.network)
        stores = (store_folder(data, size, config.fit, how) for how in INTERPOLATIONS)
        for lost in (*map(unreadable_images, stores), unreadable_features(data)):
            kept = [i for i, path in enumerate(data.images.paths) if path not in lost]
            found |= {data.select(kept).fingerprint} if lost else set()
    return frozenset(found)


def store_folder(data: ImageData, size: tuple[int, int], fit: str, interpolation: str = "bilinear") -> Path:
    """Return the folder for decoded images: in ``RECTIFIER_CACHE``, or else in the user's cache."""
    root = str(data.images.root.absolute())  # type: ignore[attr-defined]
    how = "" if interpolation == "bilinear" else f"\n{interpolation}"  # earlier stores have no name for it
    key = hashlib.sha256(f"{root}\n{data.name}\n{size}\n{fit}{how}".encode()).hexdigest()[:12]
    return cache_home() / "stores" / f"{data.name}-{size[0]}x{size[1]}-{key}"


def _check_parts(data: ImageData) -> None:
    """Refuse data without labelled images in every part, or with a label of one class."""
    for part in PARTS:
        if not len(data.indices(part)):
            shares = "set larger shares for validation and test (--set shares=0.6/0.2/0.2)"
            remedy = f"Add images, or {shares}." if len(data) > 4 else "Add images: a model needs more than these."
            raise ValueError(f"The {part} split of {data.name!r} has no images. {remedy}")
        if not bool((data.targets[data.indices(part)] >= 0).any()):
            raise ValueError(f"The {part} split of {data.name!r} has no labelled images.")
    classes = [int((counts > 0).sum()) for counts in data.counts("train")]
    for name, found in zip(data.space.names, classes, strict=True):
        if found < 2:
            got = "only one class" if found else "no class"
            remedy = f"Leave the label out (for a table: ignore={name!r})."
            raise ValueError(f"Label {name!r} has {got} in training; at least two are needed. {remedy}")
