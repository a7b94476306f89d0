"""DeepFashion: ResNet50 with and without CRL, top-5 class-balanced accuracy."""

from rectifier.reproduce import Cell, Experiment, views

from .paper import DEEPFASHION as PAPER
from .recipes import QUICK_LABELS

EXPERIMENT = Experiment(
    title="DeepFashion: ResNet50 with and without CRL",
    source="Table 7 of the paper",
    about="Its metric is class-balanced accuracy of the five likeliest classes; eta is not stated, and is 0.01 here.",
    show=views.table("top5_class_balanced_accuracy"),
    settings={"preset": "deepfashion", "tensorboard": False, "features": False},
    cells=[
        Cell("ResNet50", "mean", {"method": "ce"}, PAPER["ResNet50"]["mean"]),
        Cell("ResNet50 + CRL", "mean", {"method": "crl"}, PAPER["ResNet50 + CRL"]["mean"], against="ResNet50"),
    ],
    quick=QUICK_LABELS,
)
