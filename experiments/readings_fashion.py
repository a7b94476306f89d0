"""When CRL helps on fashion products."""

from rectifier.reproduce import Experiment

from .figures import ranking
from .readings import CHANGED_LEAST, LEFT_OUT_WORDS, readings
from .readings_celeba import ETA, for_several_labels
from .recipes import FASHION, QUICK_LABELS

OMEGA = 0.76  # the mean imbalance of the labels; runs are recorded with this rounding
ELSEWHERE = ("CRL, random pairs", "CRL, all classes")  # in the experiments mining and scope
WORSE = (  # on CelebA: LDAM-DRW and mixup than cross-entropy, logit adjustment with mixup than without
    "LDAM-DRW",
    "CRL with LDAM-DRW",
    "mixup",
    "CRL with mixup",
    "logit adjustment and mixup",
    "CRL with logit adjustment and mixup",
)
WITHOUT = (*CHANGED_LEAST, *ELSEWHERE, *WORSE)

EXPERIMENT = Experiment(
    title="Fashion products, MTCT: variants of CRL, and combinations with other methods",
    source="Beyond the paper: when CRL helps",
    about=f"All rows use the recipe of the clothing table. {LEFT_OUT_WORDS}",
    show=ranking(),
    settings=FASHION,
    cells=[*readings(eta=ETA, log_eta=0.05, without=WITHOUT), *for_several_labels(OMEGA)],
    quick=QUICK_LABELS,
)
