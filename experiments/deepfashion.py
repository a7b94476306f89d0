"""DeepFashion: ResNet50 with and without CRL, top-5 class-balanced accuracy."""

from rectifier.reproduce import Cell, Experiment, views
from rectifier.reproduce.experiment import GROUPS

from .methods import CHOSEN
from .paper import DEEPFASHION as PAPER
from .recipes import QUICK_LABELS

GROUPS_OF_LABELS = "shapes:samples=160,size=16,ratio=10,labels=texture/shape,binary=yes,validation=30,test=30"

EXPERIMENT = Experiment(
    title="DeepFashion: ResNet50 with and without CRL",
    source="Table 7 of the paper",
    about=(
        "The metric is class-balanced accuracy of a group's five likeliest attributes. Eta, which the paper does not"
        " state, and the epoch are chosen on validation, as everywhere, by class-balanced accuracy of all attributes."
    ),
    show=views.groups(),
    metric=GROUPS,
    settings={"preset": "deepfashion", "tensorboard": False, "features": False},
    cells=[
        Cell("ResNet50", settings={"method": "ce"}, paper=PAPER["ResNet50"]),
        Cell(
            "ResNet50 + CRL",
            settings={"method": "crl"},
            paper=PAPER["ResNet50 + CRL"],
            against="ResNet50",
            choose=CHOSEN["CRL"],
        ),
    ],
    quick={**QUICK_LABELS, "data": GROUPS_OF_LABELS},
)
