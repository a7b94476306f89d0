"""Imbalanced CIFAR-100, imb(1), against the same number of images in balanced classes, bln(1)."""

from rectifier.labels.imbalance import loss_weight, power_law_profile
from rectifier.reproduce import Cell, Experiment, views

from .paper import CIFAR_HOG, CIFAR_IMBALANCED
from .recipes import CIFAR, HELD_OUT, HELD_OUT_WORDS, IMBALANCED, QUICK_ONE_LABEL, lighter, network_of, small_classes

ETA = {"CifarNet": 0.01, "ResNet32": 0.5, "DenseNet": 0.5}  # the paper's
SIZES = power_law_profile(100, 500, 25)  # of the classes of imb(1)
BALANCED = f"cifar100:bln=1,{HELD_OUT}"

CELLS = []
for network, (balanced, imbalanced, rectified) in CIFAR_IMBALANCED.items():
    chosen = network_of(network)
    crl = {**chosen, "data": IMBALANCED, "method": "crl", "eta": ETA[network]}
    CELLS += [
        Cell("bln(1)", network, {**chosen, "data": BALANCED, "method": "ce"}, balanced, quick=small_classes(1)),
        Cell("imb(1)", network, {**chosen, "data": IMBALANCED, "method": "ce"}, imbalanced),
        Cell("imb(1) + CRL", network, crl, rectified, against="imb(1)"),
    ]
    if ETA[network] > 0.1:  # otherwise cross-entropy keeps nearly all its weight
        alpha = float(loss_weight(SIZES, ETA[network]))
        light = {**chosen, "data": IMBALANCED, "method": "ce", **lighter(alpha)}
        small = {"lr": round(QUICK_ONE_LABEL["lr"] * (1 - alpha), 5)}
        name = "imb(1), CE counted less"
        CELLS.append(Cell(name, network, light, against="imb(1)", control_of="imb(1) + CRL", quick=small))
CELLS += [
    Cell("bln(1)", "HOG+kNN", {"data": BALANCED, "method": "hog-knn"}, CIFAR_HOG[0], quick=small_classes(1)),
    Cell("imb(1)", "HOG+kNN", {"data": IMBALANCED, "method": "hog-knn"}, CIFAR_HOG[1]),
]

EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1): what imbalance costs three networks and HOG with kNN, and what CRL recovers",
    source="Table 9 of the paper",
    about=(
        "Settings are the paper's, with a cosine schedule, which it does not state. DenseNet trains for 60 epochs"
        " instead of 200. CRL at eta 0.5 leaves cross-entropy 58 percent of its weight. A control row has that weight"
        " without CRL, by a smaller learning rate and a larger weight decay. CifarNet's eta is 0.01, which leaves 99"
        " percent. HOG with kNN uses no randomness, so all its seeds are equal. The paper does not describe its HOG"
        f" features. {HELD_OUT_WORDS}"
    ),
    show=views.table(),
    settings={**CIFAR, "features": True},  # the experiment `features` draws maps of them
    cells=CELLS,
    quick=QUICK_ONE_LABEL,
    seeds=5,
)
