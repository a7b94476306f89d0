"""CelebA on a network that knows ImageNet: its head, last stage or whole, against training from scratch."""

from collections.abc import Iterator
from typing import Any

from rectifier.reproduce import Cell, Experiment, views

from .recipes import CELEBA, GENTLE_ETA, PRETRAINED, QUICK_LABELS

SCRATCH = "from scratch (DeepID2)"

METHODS: dict[str, dict[str, Any]] = {
    "cross-entropy": {"method": "ce"},
    "logit adjustment": {"method": "logit-adjustment"},
    "CRL": {"method": "crl", "eta": GENTLE_ETA},
}
TUNED: dict[str, dict[str, Any]] = {
    "head": {"tune": "head"},
    "last stage": {"tune": "last"},
    "whole network, 128 px": {"tune": "all", "size": "128x128"},  # the photographs have 78 x 64 pixels
}


def cells() -> Iterator[Cell]:
    for column, method in METHODS.items():
        yield Cell(SCRATCH, column, {**CELEBA, **method})
        for row, how in TUNED.items():
            yield Cell(row, column, {**PRETRAINED, **how, **method}, against=SCRATCH)


EXPERIMENT = Experiment(
    title="CelebA on a pretrained network: its head, its last stage, the whole network",
    source="Not in the paper, which trains DeepID2 from scratch",
    about=(
        "EfficientNet-Lite0 starts with ImageNet weights. Trained are five heads of 512 units on its frozen last layer;"
        " from them the last stage; or all of the network, on images of 128 pixels. `rectifier train` now differs:"
        " it reads the last two layers, with 256 units and twice the rate. The first row has runs of `celeba` and"
        " `readings-celeba`. CRL has eta 0.1, which is not chosen here."
    ),
    show=views.table(),
    settings={"data": "celeba", "tensorboard": False, "features": False, "baselines": False},
    cells=list(cells()),
    quick={**QUICK_LABELS, "tune": "auto"},
    seeds=3,
)
