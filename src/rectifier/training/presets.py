"""PRESETS: settings to begin with, by name. Those of the paper's benchmarks are the paper's.

The paper states rate, weight decay, momentum, batch size and epochs. It does not state a schedule; ours falls as a
cosine. Where it does not speak of augmentation there is none, but on CIFAR the usual shifts and mirrored images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rectifier._base import check
from rectifier.training.config import Config


@dataclass(frozen=True)
class Preset:
    """Some settings of a ``Config``, and one line about them."""

    about: str
    settings: dict[str, Any]


def _paper(about: str, **settings: Any) -> Preset:
    return Preset(about, {"optimizer": "sgd", "momentum": 0.9, "schedule": "cosine", **settings})


PRESETS: dict[str, Preset] = {
    "celeba": _paper(
        "CelebA in the paper: DeepID2, 921 epochs",
        data="celeba",
        network="deepid2",
        lr=0.001,
        weight_decay=0.0005,
        batch_size=256,
        epochs=921,
        padding=0,
        flip=False,
        validate_every=10,
    ),
    "xdomain": _paper(
        "X-Domain in the paper: MTCT, 256 epochs (there from ImageNet's weights)",
        data="xdomain",
        network="mtct",
        lr=0.001,
        weight_decay=0.0005,
        batch_size=128,
        epochs=256,
        padding=0,
        flip=False,
    ),
    "deepfashion": _paper(
        "DeepFashion in the paper: ResNet50, 141 epochs",
        data="deepfashion",
        network="resnet50",
        lr=0.01,
        weight_decay=0.00004,
        batch_size=64,
        epochs=141,
        padding=0,
        flip=False,
    ),
    "cifar100": _paper(
        "CIFAR-100 imb(1) in the paper: ResNet32, eta 0.5, 200 epochs",
        data="cifar100:imb=1",
        network="resnet32",
        method="crl",
        eta=0.5,
        lr=0.1,
        weight_decay=0.0005,
        batch_size=256,
        epochs=200,
        validate_every=5,
    ),
    "cifar100-balanced": _paper(
        "CIFAR-100 as it is in the paper, CRL and cross-entropy weighted equally: ResNet32, 200 epochs",
        data="cifar100",
        network="resnet32",
        method="crl",
        alpha=0.5,
        lr=0.1,
        weight_decay=0.0005,
        batch_size=256,
        epochs=200,
        validate_every=5,
    ),
    "cifar100-lt": Preset(
        "CIFAR-100-LT (1:100) as most of the long-tailed literature trains it since LDAM: ResNet32, 200 epochs",
        {
            "data": "cifar100:exp=100",
            "network": "resnet32",
            "lr": 0.1,
            "weight_decay": 0.0002,
            "batch_size": 128,
            "epochs": 200,
            "warmup": 5.0,
            "schedule": "step",
            "milestones": [0.8, 0.9],
            "decay": 0.01,
            "validate_every": 20,
            "select": "last",
        },
    ),
    "digits": Preset(
        "the demo: a small MLP on imbalanced 8 x 8 digits",
        {
            "data": "digits",
            "network": "mlp",
            "epochs": 60,
            "batch_size": 64,
            "lr": 0.05,
            "padding": 0,
            "validate_every": 5,
        },
    ),
}


def preset(name: str) -> Config:
    """Return a preset as a config.

    >>> preset("cifar100").epochs
    200
    """
    check.raise_all([check.choice("preset", name, tuple(PRESETS))])
    settings = dict(PRESETS[name].settings)
    return Config(settings.pop("data")).with_settings(settings)
