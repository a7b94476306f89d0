"""CIFAR-100 imb(1) where validation chooses: first how cross-entropy is trained, then how CRL is read."""

from collections.abc import Iterator

from rectifier.reproduce import Cell, Experiment, views

from .paper import CIFAR_IMBALANCED
from .recipes import CIFAR, HELD_OUT, HELD_OUT_WORDS, QUICK_ONE_LABEL

# What did best of the readings: a small weight, and a larger one on features that have come to mean something.
READINGS = {"eta": (0.1, 0.5), "rectify_from": (0.0, 0.8)}
COSTLY = "DenseNet"  # whose runs take as long as ten of the others


def cells() -> Iterator[Cell]:
    for column, (_, imbalanced, rectified) in CIFAR_IMBALANCED.items():
        network = {"network": column.lower()}
        yield Cell("CE", column, {**network, "method": "ce"}, imbalanced)
        yield Cell("CRL", column, {**network, "method": "crl"}, rectified, against="CE", choose=READINGS)
        if column == COSTLY:
            continue
        adjusted, joint = ({**network, "method": name} for name in ("logit-adjustment", "crl+logit-adjustment"))
        yield Cell("logit adjustment", column, adjusted, against="CE")
        yield Cell("CRL with logit adjustment", column, joint, against="logit adjustment", choose=READINGS)


EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1): CRL as validation chooses it, beside cross-entropy trained as well as we can",
    source="Beyond the paper: when CRL helps",
    about=(
        "60 epochs in place of the paper's 200. Weight decay is chosen for cross-entropy, network by network, and then"
        " used for all methods; CRL's eta, and whether it begins with training or in the last fifth, are chosen after"
        f" that. {COSTLY} has the two methods of the paper alone. {HELD_OUT_WORDS}"
    ),
    show=views.table(),
    settings={**CIFAR, "data": f"cifar100:imb=1,{HELD_OUT}", "epochs": 60},
    recipe={"weight_decay": (0.0005, 0.001, 0.002, 0.005)},
    cells=list(cells()),
    quick={**QUICK_ONE_LABEL, "epochs": 5},
    seeds=8,
)
