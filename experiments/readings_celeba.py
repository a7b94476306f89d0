"""When CRL helps on CelebA."""

from typing import Any

from rectifier.reproduce import Cell, Experiment

from .figures import ranking
from .readings import BASE, readings
from .recipes import CELEBA, QUICK_LABELS

ETA = 0.1
OMEGA = 0.358  # the mean imbalance of the labels; runs are recorded with this rounding


def for_several_labels(omega: float) -> list[Cell]:
    """Return variants for several labels; ``omega`` is the mean imbalance of the labels."""
    alike = {"method": "crl", "alpha": round(ETA * omega, 4)}
    on_features = {"method": "crl-instance-relative+logit-adjustment", "eta": 0.01}  # the eta of the tables
    random: dict[str, Any] = {"method": "crl", "eta": ETA, "mining": "random"}  # random pairs tolerate more weight
    return [
        Cell("CRL, one mean over all labels", settings={"method": "crl", "eta": ETA, "pooled": True}, against=BASE),
        Cell("CRL, the same weight for all labels", settings=alike, against=BASE),
        Cell("CRL on features with logit adjustment", settings=on_features, against="logit adjustment"),
        Cell("CRL, random pairs, eta 0.5", settings={**random, "eta": 0.5}, against=BASE),
        Cell(
            "CRL, random pairs, with logit adjustment",
            settings={**random, "method": "crl+logit-adjustment"},
            against="logit adjustment",
        ),
    ]


EXPERIMENT = Experiment(
    title="CelebA, DeepID2: variants of CRL, and combinations with other methods",
    source="Beyond the paper: when CRL helps",
    about="All rows use the recipe of the CelebA table.",
    show=ranking(),
    settings=CELEBA,
    cells=[*readings(eta=ETA, log_eta=0.05), *for_several_labels(OMEGA)],
    quick=QUICK_LABELS,
)
