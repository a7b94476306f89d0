"""NETWORKS lists the networks by name. build_network builds one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.networks.anet import anet
from rectifier.networks.cifarnet import cifarnet
from rectifier.networks.darn import darn
from rectifier.networks.ddan import ddan
from rectifier.networks.deepid2 import deepid2
from rectifier.networks.densenet import densenet
from rectifier.networks.fashionnet import fashionnet
from rectifier.networks.layers import seeded
from rectifier.networks.mlp import mlp
from rectifier.networks.mtct import mtct
from rectifier.networks.network import Network
from rectifier.networks.panda import panda
from rectifier.networks.pretrained.efficientnet_lite import VARIANTS, efficientnet_lite
from rectifier.networks.pretrained.libraries import LIBRARIES, library_network, published_size
from rectifier.networks.pretrained.loading import check_backbone, is_pretrained
from rectifier.networks.pretrained.weights import weights_file
from rectifier.networks.resnet import resnet, resnet50


@dataclass(frozen=True)
class Architecture:
    """A network's builder, one line about it, the image shape ``(H, W, C)`` of its publication, and a learning rate.

    SGD with momentum 0.9 starts well with this rate on one label. The losses of several labels add up.
    """

    build: Callable[..., Network]
    about: str
    shape: tuple[int, int, int]
    rate: float


def _efficientnet_lite(name: str, about: str) -> Architecture:
    size = VARIANTS[name].size
    return Architecture(partial(efficientnet_lite, name), about, (size, size, 3), 0.01)


NETWORKS = {
    "deepid2": Architecture(deepid2, "DeepID2 for faces, a 64-d branch for each attribute", (55, 47, 3), 0.06),
    "mtct": Architecture(mtct, "MTCT for clothing, five NIN units, three layers per label", (256, 256, 3), 0.01),
    "cifarnet": Architecture(cifarnet, "CifarNet; form=tensorflow or cuda-convnet", (32, 32, 3), 0.02),
    "resnet32": Architecture(resnet, "ResNet for small images; depth=6n+2", (32, 32, 3), 0.1),
    "densenet": Architecture(densenet, "DenseNet for small images; depth=40, growth=12", (32, 32, 3), 0.1),
    "resnet50": Architecture(resnet50, "ResNet50 for large images", (224, 224, 3), 0.1),
    "panda": Architecture(panda, "PANDA, a network for each part; parts=face or grid", (112, 112, 3), 0.01),
    "anet": Architecture(anet, "ANet for faces, locally shared weights, shifted crops", (61, 53, 3), 0.02),
    "ddan": Architecture(ddan, "DDAN for clothing, four NIN units, three layers per label", (227, 227, 3), 0.005),
    "darn": Architecture(darn, "DARN for clothing, five NIN units, a tree of layers", (227, 227, 3), 0.005),
    "fashionnet": Architecture(fashionnet, "FashionNet for clothing, VGG-16 without landmarks", (224, 224, 3), 0.005),
    "mlp": Architecture(mlp, "fully connected layers, for vectors and tiny images", (8, 8, 1), 0.05),
    "efficientnet-lite0": _efficientnet_lite("efficientnet-lite0", "EfficientNet-Lite0 for CPUs; has ImageNet weights"),
    "efficientnet-lite1": _efficientnet_lite("efficientnet-lite1", "EfficientNet-Lite1, larger; has ImageNet weights"),
    "efficientnet-lite2": _efficientnet_lite(
        "efficientnet-lite2", "EfficientNet-Lite2, larger still; has ImageNet weights"
    ),
}


def build_network(name: str, sizes: Sizes, shape: Sequence[int], *, seed: int | None = None, **options: Any) -> Network:
    """Build a network by name.

    Args:
        name: a name in ``NETWORKS``, or ``timm:NAME`` or ``torchvision:NAME`` for a network of that installed library,
            or ``hf:FOLDER`` for a local model of transformers.
        sizes: number of classes of each label, or a ``LabelSpace``.
        shape: ``(H, W, C)`` of the images.
        seed: fixes the initial weights and leaves PyTorch's random state unchanged. None draws from that state.
        options: options of the network; see its builder. ``pretrained=True`` starts from published weights, where a
            network has some; without it they are random, also those of EfficientNet-Lite.

    >>> import torch
    >>> network = build_network("deepid2", [2] * 40, (55, 47, 3), seed=0)
    >>> logits, features = network(torch.randn(8, 3, 55, 47))
    >>> logits.shape, features.shape
    (torch.Size([8, 80]), torch.Size([8, 40, 64]))
    >>> build_network("resnet32", [10], (8, 8, 1), depht=20)
    Traceback (most recent call last):
    TypeError: Expected every option of resnet32 to be among depth, ..., but got 'depht'. Did you mean 'depth'?
    """
    library, colon, model = str(name).partition(":")
    with seeded(seed):
        if colon and library in LIBRARIES:
            return library_network(library, model, sizes, shape, **options)
        _check_name(name)
        build = NETWORKS[name].build
        check.options_of(name, options, network_options(name), TypeError)
        return build(sizes, shape, **options)


def check_available(name: str, weights: Path | str | None = None) -> None:
    """Raise an error at once where a network cannot be built or cannot start from ``weights``.

    It checks the name, the packages that it needs, and that the file, run or folder exists. ``weights=None`` is the
    published weights, for networks that have some.

    >>> check_available("resnet32")
    >>> check_available("resnet23")
    Traceback (most recent call last):
    ValueError: No network 'resnet23'. Did you mean 'resnet32'? NETWORKS lists them.
    """
    if is_pretrained(name):
        check_backbone(name, weights)
    else:
        _check_name(name)
        if weights is not None:
            weights_file(weights)


def default_rate(name: str) -> float:
    """Return the default learning rate. Backbones of other libraries, often pre-trained, get a small one."""
    return NETWORKS[name].rate if name in NETWORKS else 0.01


def default_size(name: str) -> tuple[int, int]:
    """Return height and width of the images in the network's publication, or as the weights of a library say."""
    library, colon, model = name.partition(":")
    if name in NETWORKS or not colon:
        return NETWORKS[name].shape[:2] if name in NETWORKS else (224, 224)
    return published_size(library, model)


def _check_name(name: str) -> None:
    check.raise_all(
        [check.choice("network", name, (*NETWORKS, "timm:NAME", "torchvision:NAME", "hf:FOLDER"), "NETWORKS")]
    )


def network_options(name: str) -> tuple[str, ...]:
    """Return the names of a network's options.

    >>> network_options("deepid2")
    ('local', 'branch', 'dropout', 'classifier')
    """
    parameters = inspect.signature(NETWORKS[name].build).parameters.values()
    return tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)
