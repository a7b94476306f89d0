"""Training recipes. The paper states rate, decay, momentum, batch and epochs; schedules are ours.

A recipe is chosen for cross-entropy and then used for every method. CelebA's is the best on validation of those in
``training_recipes.py``. That of fashion products is close to the best there, in a quarter of the epochs. CIFAR-100's is
the paper's with a cosine schedule, which validation cannot tell from steps. Pages list the settings.
"""

from __future__ import annotations

from typing import Any

from rectifier.training.presets import preset

_LEAN: dict[str, Any] = {"tensorboard": False, "features": False}

# CIFAR-100 as in the paper: rate 0.1, decay 0.0005, batches of 256, 200 epochs; with a cosine schedule.
CIFAR: dict[str, Any] = {"preset": "cifar100", "validate_every": 10, **_LEAN}


def lighter(alpha: float) -> dict[str, float]:
    """Return settings for CIFAR that give cross-entropy the weight that CRL of weight ``alpha`` leaves it.

    CRL scales the gradient of cross-entropy by ``1 - alpha`` and leaves that of the decay. For SGD this is the same as
    scaling the learning rate by ``1 - alpha`` and dividing the decay by it.
    """
    paper = preset(CIFAR["preset"])
    rate = paper.lr or 0.0  # which the preset states
    return {"lr": round(rate * (1 - alpha), 5), "weight_decay": round((paper.weight_decay or 0.0) / (1 - alpha), 6)}


HELD_OUT = "validation=50"
IMBALANCED = f"cifar100:imb=1,{HELD_OUT}"
HELD_OUT_WORDS = "Validation has 50 images of each class, or as many as training leaves."


def network_of(column: str) -> dict[str, Any]:
    """Return the settings of a network on CIFAR-100 imb(1); a step of DenseNet takes as long as four of ResNet32."""
    return {"network": column.lower(), **({"epochs": 60} if column == "DenseNet" else {})}


# CelebA and DeepID2. The paper trains 921 epochs at a rate of 0.001 and a decay of 0.0005, on about four times as many
# images. On validation cross-entropy does better with 60 epochs at a larger rate and decay, and worse with dropout.
CELEBA: dict[str, Any] = {
    "preset": "celeba",
    "epochs": 60,
    "lr": 0.02,
    "weight_decay": 0.002,
    "network.dropout": 0.0,
    "flip": True,
    "padding": 4,
    "validate_every": 5,
    **_LEAN,
}

# Fashion products replace X-Domain, which is not public. The paper's MTCT is trained from scratch: there are no
# ImageNet weights here, and without them the paper's SGD is slow. Photographs have 80 x 60 pixels;
# MTCT needs a side of 71.
FASHION: dict[str, Any] = {
    "preset": "xdomain",
    "data": "fashion",
    "size": "96x72",
    "epochs": 15,
    "optimizer": "adamw",
    "lr": 0.0005,
    "weight_decay": 0.01,
    "warmup": 1.0,
    "flip": True,
    "padding": 4,
    "validate_every": 5,
    **_LEAN,
}

# Pretrained networks: everything is open that the recipe of ``rectifier train`` chooses by the data.
PRETRAINED: dict[str, Any] = {
    **{"network": "efficientnet-lite0", "optimizer": "auto", "select": "auto"},
    **dict.fromkeys(("epochs", "batch_size", "weight_decay"), None),
}

GENTLE_ETA = 0.1
"""The weight of CRL where something else is varied; the paper's is 0.01, on other data."""

# Small versions on generated images, for a machine without the data.
_SMALL: dict[str, Any] = {
    "network": "mlp",
    "size": "16x16",
    "epochs": 3,
    "batch_size": 64,
    "lr": 0.05,
    "padding": 0,
    "flip": False,
}


def small_classes(ratio: int) -> dict[str, Any]:
    """Return the small version's data with this imbalance ratio."""
    return {"data": f"shapes:samples=160,size=16,ratio={ratio},labels=shape=5,validation=30,test=30"}


QUICK_ONE_LABEL: dict[str, Any] = {**small_classes(10), **_SMALL}
QUICK_LABELS: dict[str, Any] = {
    "data": "shapes:samples=160,size=16,ratio=10,labels=shape=4/colour=2/texture=2,validation=30,test=30",
    **_SMALL,
    "epochs": 5,  # LMLE needs the last one
}
