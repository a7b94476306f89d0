"""When CRL helps on CelebA."""

from rectifier.reproduce import Cell, Experiment, views

from .readings import BASE, readings
from .recipes import CELEBA, QUICK_LABELS

SEVERAL_LABELS = [
    Cell("CRL, one mean over all labels", settings={"method": "crl", "eta": 0.1, "pooled": True}, against=BASE),
    Cell("CRL, the same weight for all labels", settings={"method": "crl", "alpha": 0.07}, against=BASE),
]

EXPERIMENT = Experiment(
    title="CelebA, DeepID2: readings of CRL and what it can be combined with",
    source="Beyond the paper: when CRL helps",
    about="The recipe of the table of CelebA for all.",
    show=views.ranking(),
    settings=CELEBA,
    cells=[*readings(eta=0.1, log_eta=0.05), *SEVERAL_LABELS],
    quick={**QUICK_LABELS, "epochs": 5},
)
