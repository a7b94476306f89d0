"""When CRL helps on fashion products."""

from rectifier.reproduce import Experiment, views

from .readings import readings
from .readings_celeba import ETA, for_several_labels
from .recipes import FASHION, QUICK_LABELS

# What has an experiment of its own on fashion products: mining, scope.
ELSEWHERE = ("CRL, random pairs", "CRL, all classes")

EXPERIMENT = Experiment(
    title="Fashion products, MTCT: readings of CRL and what it can be combined with",
    source="Beyond the paper: when CRL helps",
    about="The recipe of the table of clothing attributes for all.",
    show=views.ranking(),
    settings=FASHION,
    cells=[
        *(cell for cell in readings(eta=ETA, log_eta=0.05) if cell.row not in ELSEWHERE),
        *for_several_labels(omega=0.76),
    ],
    quick=QUICK_LABELS,
)
