"""CelebA: 40 attributes, and every method of the paper's table."""

from rectifier.reproduce import Cell, Experiment, views

from .paper import CELEBA as PAPER
from .recipes import CELEBA, QUICK_LABELS

METHODS = {
    "Triplet-kNN": {"method": "triplet-knn"},
    "PANDA": {"method": "ce", "network": "panda"},
    "ANet": {"method": "svm", "network": "anet"},
    "DeepID2": {"method": "ce"},
    "Over-Sampling": {"method": "over-sampling"},
    "Down-Sampling": {"method": "down-sampling"},
    "Cost-Sensitive": {"method": "cost-sensitive"},
    "Threshold-Adjustment": {"method": "threshold-adjustment"},
    "LMLE": {"method": "lmle"},
    "CRL": {"method": "crl"},
}

CELLS = [
    Cell(
        name,
        settings=settings,
        paper=PAPER[name],
        against=None if name == "DeepID2" else "DeepID2",
        choose={"eta": (0.01, 0.1, 0.5)} if name == "CRL" else {},
    )
    for name, settings in METHODS.items()
]

EXPERIMENT = Experiment(
    title="CelebA, 40 attributes: CRL and nine other methods",
    source="Tables 3 and 4 and Figure 6 of the paper",
    about=(
        "The paper has 162,770 training images and 921 epochs. PANDA and ANet are built without landmarks and poses."
        " Networks begin with random weights. CRL's eta is chosen on validation, as the paper chooses its own."
    ),
    show=views.labels({"1:1 to 1:5": (0, 5.5), "1:6 to 1:43": (5.5, 1e9)}),
    settings=CELEBA,
    cells=CELLS,
    quick=QUICK_LABELS,
)
