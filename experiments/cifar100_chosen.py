"""CIFAR-100 imb(1): validation chooses weight decay for cross-entropy, then CRL's weight and start."""

from collections.abc import Iterator

from rectifier.reproduce import Cell, Experiment, views

from .paper import CIFAR_IMBALANCED
from .recipes import CIFAR, HELD_OUT_WORDS, IMBALANCED, QUICK_ONE_LABEL, network_of

COLUMNS = ("CifarNet", "ResNet32")  # the same runs of a DenseNet would take longer than all of these
NOTHING_MINED = 1e-6  # a share of rare samples that no sample reaches
GRID = {"eta": (0.1, 0.5), "rectify_from": (0.0, 0.8)}


def cells() -> Iterator[Cell]:
    for column in COLUMNS:
        own = network_of(column)
        _, imbalanced, rectified = CIFAR_IMBALANCED[column]
        yield Cell("CE", column, {**own, "method": "ce"}, imbalanced)
        yield Cell("logit adjustment", column, {**own, "method": "logit-adjustment"}, against="CE")
        yield Cell("CRL", column, {**own, "method": "crl"}, rectified, against="CE", choose=GRID)
        # Other tables change rate and decay for this, but here the decay is chosen.
        light = {**own, "method": "crl", "eta": 0.5, "rho": NOTHING_MINED}
        name = "CE, counted as beside CRL of eta 0.5"
        same = {"eta": light["eta"], "rectify_from": 0.0}
        yield Cell(name, column, light, against="CE", control_of="CRL", control_when=same)


EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1): weight decay chosen for cross-entropy, then settings of CRL",
    source="Beyond the paper: when CRL helps",
    about=(
        "Settings are the paper's except weight decay, which is chosen for cross-entropy on each network and then"
        " used for all methods. After that, validation chooses CRL's eta, and whether CRL starts at once or in the"
        " last fifth of training. A control row mines nothing, so cross-entropy has the weight that CRL leaves it at"
        " eta 0.5. CRL is compared with this control if validation chose that eta from the start of training."
        f" {HELD_OUT_WORDS}"
    ),
    show=views.table(),
    settings={**CIFAR, "data": IMBALANCED},
    recipe={"weight_decay": (0.0005, 0.001, 0.002, 0.004, 0.008)},
    cells=list(cells()),
    quick={**QUICK_ONE_LABEL, "epochs": 5},
    seeds=5,
)
