"""Training cost of CRL and LMLE."""

from typing import Any

from rectifier.reproduce import Cell, Experiment, ExperimentResult

from .paper import HOURS
from .recipes import CELEBA, FASHION, GENTLE_ETA, QUICK_LABELS
from .times import time_remark, time_table, times_of

METHODS: dict[str, dict[str, Any]] = {
    "cross-entropy": {"method": "ce"},
    "CRL": {"method": "crl", "eta": GENTLE_ETA},
    "LMLE": {"method": "lmle"},
    "LMLE, weight 0.0001": {"method": "lmle", "weight": 0.0001},
}

# LMLE's batches consist of quintuplets. With a size that is divisible by five and no smaller last batch, all methods
# see equally many images. No other experiment shares these runs, so their times are measured here.
DATA = {
    "CelebA, DeepID2": ({**CELEBA, "epochs": 10, "batch_size": 255}, HOURS["CelebA"]),
    "fashion, MTCT": ({**FASHION, "epochs": 5, "batch_size": 125}, HOURS["X-Domain"]),
}


def show(result: ExperimentResult) -> str:
    tables = [
        f"## {data}\n\n{time_table(times_of(result, METHODS, data), 'CRL', hours)}" for data, (_, hours) in DATA.items()
    ]
    return "\n\n".join([*tables, time_remark("".join(tables))])


EXPERIMENT = Experiment(
    title="Training cost: CRL, LMLE and cross-entropy",
    source='"Model Training Cost Analysis" in Sections 4.1 and 4.2 of the paper; the second uses X-Domain',
    about=(
        "Runs are trained one after another, because the time of a run that shares its device is not its cost. All"
        " methods see the same number of batches of the same size, in 10 epochs of CelebA and 5 of fashion products."
        " LMLE spends the first fifth of them on pre-training. The paper gives LMLE 20,000 batches with its authors'"
        " code, and CRL its own number of epochs. Fashion products replace X-Domain. The validation images are"
        " predicted once, at the end. `benchmarks/methods.py` times single steps and short trainings on generated"
        " images."
    ),
    finding=(
        "LMLE collapses to constant predictions here: in all runs with its default weight, and with 0.0001 on fashion"
        " products. A step then computes the same; whether clustering takes as long is unknown."
    ),
    show=show,
    settings={"drop_last": True},
    cells=[
        Cell(row, data, {**recipe, **method, "validate_every": recipe["epochs"]})
        for data, (recipe, _) in DATA.items()
        for row, method in METHODS.items()
    ],
    quick={**QUICK_LABELS, "batch_size": 60},
    alone=True,
)
