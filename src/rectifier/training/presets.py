"""PRESETS: named sets of settings to start from. Those named after the paper's benchmarks follow the paper.

The paper states learning rate, weight decay, momentum, batch size and epochs. It states no schedule; we use a cosine.
It states no augmentation; we use none, except the usual shifts and flips on CIFAR.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rectifier._base import check
from rectifier.training.config import Config


class Preset(NamedTuple):
    """Some settings of a ``Config``, and a line that describes them."""

    about: str
    settings: dict[str, Any]


PAPER: dict[str, Any] = {
    **{"network": "resnet32", "method": "crl", "epochs": 30, "batch_size": 128},
    **{"optimizer": "sgd", "weight_decay": 5e-4, "select": "argmax", "baselines": False},
}
"""What presets and experiments start from: settings that the recipe would choose by the data otherwise."""

_SGD = {"momentum": 0.9, "weight_decay": 0.0005}
_PAPER = {**_SGD, "padding": 0, "flip": False}
_CIFAR = {**_SGD, "network": "resnet32", "lr": 0.1, "batch_size": 256, "epochs": 200, "validate_every": 5}

PRESETS = {
    "celeba": Preset(
        "CelebA as in the paper: DeepID2, 921 epochs",
        {"data": "celeba", "network": "deepid2", "lr": 0.001, "batch_size": 256, "epochs": 921, "validate_every": 10}
        | _PAPER,
    ),
    "xdomain": Preset(
        "X-Domain as in the paper: MTCT, 256 epochs (the paper starts from ImageNet weights)",
        {"data": "xdomain", "network": "mtct", "lr": 0.001, "batch_size": 128, "epochs": 256} | _PAPER,
    ),
    "deepfashion": Preset(
        "DeepFashion as in the paper: ResNet50, 141 epochs",
        {"data": "deepfashion", "network": "resnet50", "lr": 0.01, "batch_size": 64, "epochs": 141}
        | {**_PAPER, "weight_decay": 0.00004},
    ),
    "cifar100": Preset(
        "Imbalanced CIFAR-100, imb(1), as in the paper: ResNet32, eta 0.5, 200 epochs",
        {"data": "cifar100:imb=1", "eta": 0.5} | _CIFAR,
    ),
    "cifar100-balanced": Preset(
        "Balanced CIFAR-100 as in the paper: ResNet32, CRL and cross-entropy weighted equally, 200 epochs",
        {"data": "cifar100", "alpha": 0.5} | _CIFAR,
    ),
    "cifar100-lt": Preset(
        "CIFAR-100-LT (1:100) as in most papers since LDAM: ResNet32, 200 epochs",
        {"data": "cifar100:exp=100", "network": "resnet32", "lr": 0.1, "weight_decay": 0.0002, "batch_size": 128}
        | {"epochs": 200, "validate_every": 20, "select": "last"}
        | {"warmup": 5.0, "schedule": "step", "milestones": [0.8, 0.9], "decay": 0.01},
    ),
    "digits": Preset(
        "Demo: a small MLP on imbalanced 8 x 8 digits",
        {"data": "digits", "network": "mlp", "lr": 0.05, "batch_size": 64, "epochs": 60}
        | {"padding": 0, "validate_every": 5},
    ),
}


def preset(name: str) -> Config:
    """Return a preset as a config.

    >>> preset("cifar100").epochs
    200
    """
    check.raise_all([check.choice("preset", name, tuple(PRESETS))])
    settings = {**PAPER, **PRESETS[name].settings}
    return Config(settings.pop("data")).with_settings(settings)
