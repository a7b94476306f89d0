"""CIFAR-100 as it is: three networks, with and without CRL."""

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
    title="CIFAR-100 as it is: CifarNet, ResNet32 and DenseNet with and without CRL",
    source="Table 8 of the paper",
    about=(
        "Classes are balanced, so CRL and cross-entropy are weighted equally (alpha 0.5), as there. 30 epochs"
        " in place of the paper's 200, with a cosine schedule. With CRL cross-entropy counts half: one row has that"
        " without CRL, by half the rate and twice the decay, for two of the networks."
    ),
    show=views.table(),
    settings={**CIFAR, "preset": "cifar100-balanced", "epochs": 30},
    cells=CELLS,
    quick=QUICK_ONE_LABEL,
)
