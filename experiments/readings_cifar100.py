"""When CRL helps on CIFAR-100 imb(1)."""

from rectifier.reproduce import Cell, Experiment

from .figures import ranking
from .readings import BASE, CHANGED_LEAST, LEFT_OUT_WORDS, readings
from .recipes import CIFAR, HELD_OUT_WORDS, IMBALANCED, QUICK_ONE_LABEL

ETA = 0.5
OF_ONE_LABEL = {  # on the others a table or a figure has them
    "CRL, eta 0.1": {"eta": 0.1},
    "CRL with a memory of 1,024": {"memory": 1024},
}
WITHOUT = (*CHANGED_LEAST, "logit adjustment and mixup", "CRL with logit adjustment and mixup")
OTHERWISE = {
    "batches of 1,024": {"batch_size": 1024, "lr": 0.4, "warmup": 5.0},
    "a step schedule": {"schedule": "step", "milestones": [0.5, 0.75], "decay": 0.1},
}


def other_trainings() -> list[Cell]:
    """Return cross-entropy and CRL beside it, trained otherwise: CRL mines in the batch, and a larger one has more."""
    return [
        cell
        for how, settings in OTHERWISE.items()
        for cell in (
            Cell(f"CE, {how}", settings={"method": "ce", **settings}, against=BASE),
            Cell(f"CRL, {how}", settings={"method": "crl", "eta": ETA, **settings}, against=f"CE, {how}"),
        )
    ]


EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1), ResNet32: readings of CRL and what it can be combined with",
    source="Beyond the paper: when CRL helps",
    about=(
        "60 epochs in place of the paper's 200. Weight decay is chosen for cross-entropy on validation, and then"
        f" used for all methods. With batches four times as large the rate is four times as large. {LEFT_OUT_WORDS}"
        f" {HELD_OUT_WORDS}"
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
