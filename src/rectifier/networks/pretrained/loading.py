"""load_backbone: a pretrained network by name. check_backbone: whether it can be built, before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from rectifier._base import check
from rectifier.networks.options import image_shape
from rectifier.networks.pretrained import packages
from rectifier.networks.pretrained.backbone import Backbone, Preprocessing, digest
from rectifier.networks.pretrained.efficientnet_lite import FEATURES, SMALLEST, VARIANTS, EfficientNetLite
from rectifier.networks.pretrained.libraries import (
    LIBRARIES,
    check_name,
    feature_count,
    installed,
    pretrained_trunk,
)
from rectifier.networks.pretrained.weights import Rename, fit, read_weights, sha256_of, weights_file

NAMES = (*VARIANTS, *(f"{library}:NAME" for library in LIBRARIES if library != "hf"), "hf:FOLDER")
"""What load_backbone accepts."""


def load_backbone(
    name: str, weights: Path | str | None = None, *, size: int | tuple[int, int] | None = None
) -> Backbone:
    """Load a pretrained network without its classifier.

    Args:
        name: ``efficientnet-lite0``, ``-lite1`` or ``-lite2``, ``timm:NAME``, ``torchvision:NAME``, or ``hf:FOLDER``.
        weights: a file of weights, or the folder of a finished run. None takes the published ImageNet weights: from the
            installed package for EfficientNet-Lite, else from the library's cache or hub.
        size: height and width of the images. None takes the size that the weights were trained with.

    >>> backbone = load_backbone("efficientnet-lite0")
    >>> backbone.width, backbone.preprocessing.size, backbone.licence
    (1280, (224, 224), 'Apache-2.0')
    >>> backbone.fitted
    '245 of 245 tensors fitted, 3,413,024 weights; not used: _fc.weight, _fc.bias'
    """
    check_backbone(name, weights)
    sides = (size, size) if isinstance(size, int) else size
    library, colon, model = name.partition(":")
    loaded = _from_library(library, model, weights, sides) if colon else _efficientnet_lite(name, weights)
    known = loaded.preprocessing
    prepared = Preprocessing(sides or known.size, known.mean, known.std, known.interpolation)
    image_shape(name, (*prepared.size, 3), 1 if colon else SMALLEST)
    width = feature_count(name, loaded.trunk, (*prepared.size, 3)) if colon else FEATURES
    trunk = loaded.trunk.eval()
    return Backbone(name, trunk, width, prepared, loaded.licence, loaded.source, loaded.sha256, loaded.fitted)


def is_pretrained(name: str) -> bool:
    """Say whether a name is one that ``load_backbone`` accepts."""
    library, colon, _ = name.partition(":")
    return name in VARIANTS or (bool(colon) and library in LIBRARIES)


def check_backbone(name: str, weights: Path | str | None = None) -> None:
    """Raise an error at once where a backbone cannot be loaded: an unknown name, a missing package, folder or file."""
    library, colon, model = str(name).partition(":")
    if weights is not None:
        weights_file(weights)
    if name in VARIANTS:
        if weights is None:
            packages.check_installed(name)
    elif colon and library in LIBRARIES:
        module = installed(library)
        if library != "hf":
            check_name(library, module, model)
        elif not Path(model).is_dir():
            check.no_file(model, "hf:FOLDER takes the local folder of a transformers model.")
    else:
        check.raise_all([check.choice("the network", name, NAMES)])


@dataclass(frozen=True)
class _Loaded:
    trunk: nn.Module
    preprocessing: Preprocessing
    licence: str
    source: str
    sha256: str
    fitted: str


def _efficientnet_lite(name: str, weights: Path | str | None) -> _Loaded:
    side, trunk = VARIANTS[name].size, EfficientNetLite(VARIANTS[name])
    prepared = Preprocessing((side, side), (packages.MEAN,) * 3, (packages.STD,) * 3, "bicubic")
    if weights is not None:
        return _Loaded(trunk, prepared, "that of the file", *_from_file(trunk, weights, name, packages.our_name))
    fitted = packages.load_packaged(trunk, name)
    source = f"ImageNet weights of the package {packages.package(name)}"
    return _Loaded(trunk, prepared, packages.LICENCE, source, packages.SHA256[name], fitted)


def _from_library(library: str, name: str, weights: Path | str | None, size: tuple[int, int] | None) -> _Loaded:
    trunk, prepared, licence = pretrained_trunk(library, name, weights is None, size)
    if weights is not None:
        return _Loaded(trunk, prepared, "that of the file", *_from_file(trunk, weights, f"{library}:{name}"))
    source = f"the folder {name}" if library == "hf" else f"weights of {library}"
    return _Loaded(trunk, prepared, licence, source, digest(trunk), "")


def _from_file(trunk: nn.Module, weights: Path | str, name: str, rename: Rename | None = None) -> tuple[str, str, str]:
    """Load a file into the trunk. Return where the weights are from, their checksum, and what fitted."""
    fitted = fit(trunk, read_weights(weights), str(weights), name, rename, same_shapes=True)
    return str(weights), sha256_of(weights_file(weights)), fitted
