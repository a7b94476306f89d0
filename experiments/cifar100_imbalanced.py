"""CIFAR-100 made imbalanced, imb(1), against as many images of balanced classes, bln(1)."""

from rectifier.reproduce import Cell, Experiment, views

from .paper import CIFAR_HOG, CIFAR_IMBALANCED
from .recipes import CIFAR, QUICK_ONE_LABEL

ETA = {"CifarNet": 0.01, "ResNet32": 0.5, "DenseNet": 0.5}  # the paper's
IMBALANCED = {"data": "cifar100:imb=1", "method": "ce"}

CELLS = []
for network, (balanced, imbalanced, rectified) in CIFAR_IMBALANCED.items():
    chosen = {"network": network.lower()}
    crl = {**IMBALANCED, **chosen, "method": "crl", "eta": ETA[network]}
    CELLS += [
        Cell("bln(1)", network, {**chosen, "data": "cifar100:bln=1", "method": "ce"}, balanced),
        Cell("imb(1)", network, {**chosen, **IMBALANCED}, imbalanced),
        Cell("imb(1) + CRL", network, crl, rectified, against="imb(1)"),
    ]
CELLS += [
    Cell(name, "HOG+kNN", {"data": data, "method": "hog-knn"}, paper)
    for name, data, paper in zip(("bln(1)", "imb(1)"), ("cifar100:bln=1", "cifar100:imb=1"), CIFAR_HOG, strict=True)
]

EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1): what imbalance costs three networks and HOG with kNN, and what CRL gives back",
    source="Table 9 of the paper",
    about="The paper's settings, with a cosine schedule, which it does not state.",
    show=views.table(),
    settings=CIFAR,
    cells=CELLS,
    quick=QUICK_ONE_LABEL,
    seeds=5,
)
