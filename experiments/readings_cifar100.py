"""When CRL helps on CIFAR-100 imb(1)."""

from rectifier.reproduce import Experiment, views

from .readings import readings
from .recipes import CIFAR, QUICK_ONE_LABEL

EXPERIMENT = Experiment(
    title="CIFAR-100 imb(1), ResNet32: readings of CRL and what it can be combined with",
    source="Beyond the paper: when CRL helps",
    about=(
        "Weight decay is chosen for cross-entropy on validation, and then used for every method. Validation has 50"
        " images of each class that training leaves some of."
    ),
    show=views.ranking(),
    settings={**CIFAR, "data": "cifar100:imb=1,validation=50"},
    recipe={"weight_decay": (0.0005, 0.001, 0.002)},
    cells=readings(eta=0.5, log_eta=0.35),
    seeds=5,
    quick={**QUICK_ONE_LABEL, "epochs": 5},
)
