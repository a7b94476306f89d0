"""Balanced CIFAR-100: three networks, with and without CRL."""

from rectifier.reproduce import Cell, Experiment, views

from .paper import CIFAR_BALANCED
from .recipes import CIFAR, QUICK_ONE_LABEL, lighter

ALPHA = 0.5
CELLS = [
    cell
    for network, (without, with_crl) in CIFAR_BALANCED.items()
    for cell in (
        Cell("CE", network, {"network": network.lower(), "method": "ce"}, without),
        Cell("+ CRL", network, {"network": network.lower(), "method": "crl", "alpha": ALPHA}, with_crl, against="CE"),
    )
]
CELLS += [
    Cell(
        "CE, counted half",
        network,
        {"network": network.lower(), "method": "ce", **lighter(ALPHA)},
        against="CE",
        control_of="+ CRL",
    )
    for network in ("CifarNet", "ResNet32")
]

EXPERIMENT = Experiment(
    title="Balanced CIFAR-100: CifarNet, ResNet32 and DenseNet with and without CRL",
    source="Table 8 of the paper",
    about=(
        "The classes are balanced, so CRL and cross-entropy have equal weight (alpha 0.5), as in the paper. Training"
        " takes 30 epochs instead of 200, with a cosine schedule. CRL halves the weight of cross-entropy. For two of"
        " the networks, a control row halves it without CRL, by half the learning rate and twice the weight decay."
    ),
    show=views.table(),
    settings={**CIFAR, "preset": "cifar100-balanced", "epochs": 30},
    cells=CELLS,
    quick=QUICK_ONE_LABEL,
)
