"""When CRL helps on fashion products."""

from rectifier.reproduce import Experiment, views

from .readings import CHANGED_LEAST, readings
from .readings_celeba import ETA, for_several_labels
from .recipes import FASHION, QUICK_LABELS

ELSEWHERE = ("CRL, random pairs", "CRL, all classes")  # which mining and scope are about
WORSE = (  # on CelebA: LDAM-DRW and mixup than cross-entropy, mixup beside logit adjustment than that alone
    "LDAM-DRW",
    "CRL with LDAM-DRW",
    "mixup",
    "CRL with mixup",
    "logit adjustment and mixup",
    "CRL with logit adjustment and mixup",
)
WITHOUT = (*CHANGED_LEAST, *ELSEWHERE, *WORSE)

EXPERIMENT = Experiment(
    title="Fashion products, MTCT: readings of CRL and what it can be combined with",
    source="Beyond the paper: when CRL helps",
    about="The recipe of the table of clothing attributes for all.",
    show=views.ranking(),
    settings=FASHION,
    cells=[*readings(eta=ETA, log_eta=0.05, without=WITHOUT), *for_several_labels(omega=0.76)],
    quick=QUICK_LABELS,
)
