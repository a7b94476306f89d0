"""When CRL helps on CIFAR-100 imb(1)."""

from typing import Any

from rectifier.reproduce import Cell, Experiment

from .figures import ranking
from .readings import BASE, CHANGED_LEAST, LEFT_OUT_WORDS, readings
from .recipes import CIFAR, HELD_OUT_WORDS, IMBALANCED, QUICK_ONE_LABEL

ETA = 0.5
OF_ONE_LABEL: dict[str, dict[str, Any]] = {  # for other data, tables and figures have these
    "CRL, eta 0.1": {"eta": 0.1},
    "CRL with a memory of 1,024": {"memory": 1024},
}
WITHOUT = (*CHANGED_LEAST, "logit adjustment and mixup", "CRL with logit adjustment and mixup")
OTHERWISE: dict[str, dict[str, Any]] = {
    "batches of 1,024": {"batch_size": 1024, "lr": 0.4, "warmup": 5.0},
    "a step schedule": {"schedule": "step", "milestones": [0.5, 0.75], "decay": 0.1},
}


def other_trainings() -> list[Cell]:
    """Return cross-entropy and CRL with other training settings; a larger batch has more samples to mine."""
    return [
        cell
        for how, settings in OTHERWISE.items()
        for cell in (
            Cell(f"CE, {how}", settings={"method": "ce", **settings}, against=BASE),
            Cell(f"CRL, {how}", settings={"method": "crl", "eta": ETA, **settings}, against=f"CE, {how}"),
        )
    ]


EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1), ResNet32: variants of CRL, and combinations with other methods",
    source="Beyond the paper: when CRL helps",
    about=(
        "Training takes 60 epochs instead of the paper's 200. Weight decay is chosen for cross-entropy on validation"
        " and then used for all methods. Batches four times as large have a learning rate four times as large."
        f" {LEFT_OUT_WORDS} {HELD_OUT_WORDS}"
    ),
    show=ranking(),
    settings={**CIFAR, "data": IMBALANCED, "epochs": 60},
    recipe={"weight_decay": (0.0005, 0.001, 0.002)},
    cells=[
        *readings(eta=ETA, log_eta=0.35, without=WITHOUT),
        *(Cell(row, settings={"method": "crl", "eta": ETA, **own}, against=BASE) for row, own in OF_ONE_LABEL.items()),
        *other_trainings(),
    ],
    quick={**QUICK_ONE_LABEL, "epochs": 5},
)
