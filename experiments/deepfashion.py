"""DeepFashion: ResNet50 with and without CRL, top-5 class-balanced accuracy."""

from rectifier.reproduce import Cell, Experiment, views

from .paper import DEEPFASHION as PAPER
from .recipes import QUICK_LABELS

EXPERIMENT = Experiment(
    title="DeepFashion: ResNet50 with and without CRL",
    source="Table 7 of the paper",
    about="The metric is class-balanced accuracy of a group's five likeliest attributes. Eta is not stated; 0.01 here.",
    show=views.groups(),
    settings={"preset": "deepfashion", "tensorboard": False, "features": False},
    cells=[
        Cell("ResNet50", settings={"method": "ce"}, paper=PAPER["ResNet50"]),
        Cell("ResNet50 + CRL", settings={"method": "crl"}, paper=PAPER["ResNet50 + CRL"], against="ResNet50"),
    ],
    quick=QUICK_LABELS,
)
