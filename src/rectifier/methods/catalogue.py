"""METHODS: every way to train, by name. A method is data: what it puts into which slot of a training.

Methods that fill different slots go together: ``crl+logit-adjustment`` rectifies beside an adjusted loss, and
``ldam+over-sampling`` draws rare classes more often for another. Two that fill the same slot do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from rectifier._base import check
from rectifier.data.mixing import Mixup, Remix
from rectifier.labels.imbalance import loss_weight
from rectifier.labels.space import LabelSpace
from rectifier.losses.asymmetric import Asymmetric
from rectifier.losses.class_weights import cost_weights, effective_number_weights
from rectifier.losses.crl.design import Design
from rectifier.losses.focal import Focal
from rectifier.losses.ldam import LDAM
from rectifier.losses.lmle import LMLE, ROLES
from rectifier.losses.logit_adjusted import LogitAdjusted
from rectifier.losses.quintuplet import MARGINS
from rectifier.losses.ranked_triplet import RankedCrossEntropy
from rectifier.losses.rectified_cross_entropy import checked_eta
from rectifier.losses.semi_hard_triplet import SemiHardTripletLoss
from rectifier.methods.method import Afterwards, Method, Part, joined
from rectifier.samplers import (
    ClassBalancedSampler,
    CurriculumSampler,
    DownSampler,
    EpochSampler,
    OverSampler,
    ProgressiveSampler,
    SquareRootSampler,
)
from rectifier.samplers.lmle.clusters import CLUSTER_SIZE
from rectifier.samplers.lmle.quintuplets import QuintupletSampler


def _rectification(**fixed: Any) -> Part:
    def build(counts: Sequence[Tensor], *, eta: float = 0.01, alpha: Any = None, **options: Any) -> dict[str, Any]:
        given = {**fixed, **options}
        own = {name: given.pop(name) for name in _OBJECTIVES_OWN if name in given}
        weight = loss_weight(list(counts), checked_eta(eta)) if alpha is None else alpha
        return {"rectification": Design(**given), "alpha": weight, **own}

    return Part(build, tuple(name for name in _CRL_OPTIONS if name not in fixed))


_OBJECTIVES_OWN = ("falling", "rectify_from", "pooled", "memory", "memory_age")
_CRL_OPTIONS = ("eta", "alpha", *Design._fields, *_OBJECTIVES_OWN)
_CRL = "Dong, Gong, Zhu: Imbalanced deep learning by minority class incremental rectification, 2019"
_DRUMMOND = "Drummond, Holte: C4.5, class imbalance, and cost sensitivity, 2003"
_DECOUPLING = "Kang et al.: Decoupling representation and classifier for long-tailed recognition, 2020"
_LDAM = "Cao et al.: Learning imbalanced datasets with label-distribution-aware margin loss, 2019"
_MENON = "Menon et al.: Long-tail learning via logit adjustment, 2021"
_CUI = "Cui et al.: Class-balanced loss based on effective number of samples, 2019"


def _crl(level: str, comparison: str) -> Method:
    about = f"class rectification beside the loss, {level} level, {comparison} comparison"
    return Method(about, _CRL, rectification=_rectification(level=level, comparison=comparison))


def _remix(
    counts: Sequence[Tensor], space: LabelSpace, *, mix_kappa: float = 3.0, mix_tau: float = 0.5, **options: Any
) -> Remix:
    return Remix(counts, space, kappa=mix_kappa, tau=mix_tau, **options)  # CRL has a kappa, logit adjustment a tau


def _plain_sampler(kind: Callable[..., EpochSampler[Any]], *options: str) -> Part:
    return Part(lambda targets, space, *, epochs, batch_size, **common: kind(targets, space, **common), options)


def _lmle(counts: Sequence[Tensor], space: LabelSpace, *, gather: bool, margins: Any = MARGINS, **options: Any) -> LMLE:
    return LMLE(space, gather=gather, margins=margins, **options)


def _quintuplets(
    targets: Tensor, space: LabelSpace, *, epochs: int, batch_size: int, cluster_size: int = CLUSTER_SIZE, **common: Any
) -> Any:
    wrong = check.that("cluster_size", cluster_size, "a positive integer", check.is_count(cluster_size))
    check.raise_all([wrong])
    if batch_size < ROLES * len(space):
        wanted = f"at least {ROLES * len(space)} for each process, five samples for each label"
        check.fail("batch_size", wanted, batch_size)
    return QuintupletSampler(targets, space, quintuplets=batch_size // ROLES, size=cluster_size, **common)


def _rounds(epochs: int, *, rounds: int = 4, pretrain: float = 0.2) -> frozenset[int]:
    """Return the epochs, equally far apart, at which LMLE's rounds begin; the first is at the end of pre-training."""
    wrong = check.that("rounds", rounds, "a positive integer", check.is_count(rounds))
    check.raise_all([wrong, check.portion("pretrain", pretrain)])
    first = next(epoch for epoch in range(epochs + 1) if epoch / epochs >= pretrain)  # as its objective compares them
    if first == epochs:
        check.fail("epochs", f"enough for a round after the share {pretrain:g} that is pre-training", epochs)
    return frozenset(first + (epochs - first) * number // rounds for number in range(rounds))


_PROGRESSIVE = Part(
    lambda targets, space, *, epochs, batch_size, **common: ProgressiveSampler(targets, space, epochs=epochs, **common)
)
_EFFECTIVE = Part(lambda counts, **options: {"weights": effective_number_weights(counts, **options)}, ("beta",))
DEFERRED_FROM = 0.8
_DEFERRED = Part(
    lambda counts, weights_from=DEFERRED_FROM, **options: {
        "weights": effective_number_weights(counts, **{"beta": 0.9999, **options}),
        "weights_from": weights_from,
    },
    ("beta", "weights_from"),
)
_MARGINS = Part(lambda counts, space, **options: LDAM(counts, **options), ("largest",))
_ADJUSTED = Part(lambda counts, space, **options: LogitAdjusted(counts, **options), ("tau",))

METHODS: dict[str, Method] = {
    "ce": Method("cross-entropy"),
    "crl": _crl("class", "relative"),
    "crl-class-absolute": _crl("class", "absolute"),
    "crl-class-distribution": _crl("class", "distribution"),
    "crl-instance-relative": _crl("instance", "relative"),
    "crl-instance-absolute": _crl("instance", "absolute"),
    "crl-instance-distribution": _crl("instance", "distribution"),
    "over-sampling": Method("rare classes replicated", _DRUMMOND, sampler=_plain_sampler(OverSampler, "combine")),
    "down-sampling": Method("frequent classes thinned out", _DRUMMOND, sampler=_plain_sampler(DownSampler, "combine")),
    "cost-sensitive": Method(
        "class weights exp(-share)",
        "He, Garcia: Learning from imbalanced data, 2009",
        weights=Part(lambda counts: {"weights": cost_weights(counts)}),
    ),
    "threshold-adjustment": Method(
        "p * exp(-share)^T, T chosen on validation",
        "Chen et al.: Decision threshold adjustment in class prediction, 2006",
        posthoc="threshold-adjustment",
    ),
    "lmle": Method(
        "rounds of clusters and quintuplets, the nearest clusters decide",
        "Huang, Li, Loy, Tang: Learning deep representation for imbalanced classification, 2016",
        objective=Part(_lmle, ("pretrain", "margins", "weight")),
        sampler=Part(_quintuplets, ("cluster_size", "candidates")),
        rounds=Part(_rounds, ("rounds", "pretrain")),
        decision="clusters",
    ),
    "hog-knn": Method(
        "histograms of oriented gradients, k nearest neighbours decide; nothing is trained",
        "Dalal, Triggs: Histograms of oriented gradients for human detection, 2005",
        features="hog",
        decision="neighbours",
    ),
    "triplet-knn": Method(
        "embedding by semi-hard triplets, k nearest neighbours decide",
        "Schroff, Kalenichenko, Philbin: FaceNet, 2015",
        objective=Part(
            lambda counts, space, gather, **options: SemiHardTripletLoss(space, gather=gather, **options), ("margin",)
        ),
        decision="neighbours",
    ),
    "ranking": Method(
        "cross-entropy and a ranking of whole samples by their labels (DARN's)",
        "Huang et al.: Cross-domain image retrieval with a dual attribute-aware ranking network, 2015",
        objective=Part(
            lambda counts, space, gather, **options: RankedCrossEntropy(space, gather=gather, **options),
            ("weight", "margin"),
        ),
    ),
    "svm": Method(
        "a linear support vector machine a label on the features (ANet's decision)",
        "Liu et al.: Deep learning face attributes in the wild, 2015",
        decision="svm",
    ),
    "focal": Method(
        "hard samples count more",
        "Lin et al.: Focal loss for dense object detection, 2017",
        loss=Part(lambda counts, space, **options: Focal(**options), ("gamma",)),
    ),
    "class-balanced": Method("class weights by effective number", _CUI, weights=_EFFECTIVE),
    "drw": Method("class weights by effective number in the last fifth of training", _LDAM, weights=_DEFERRED),
    "ldam": Method("margins that widen with rarity, cosine classifier", _LDAM, loss=_MARGINS, classifier="cosine"),
    "ldam-drw": Method(
        "ldam, re-weighted in the last fifth of training", _LDAM, loss=_MARGINS, weights=_DEFERRED, classifier="cosine"
    ),
    "balanced-softmax": Method(
        "log prior added to the logits in training",
        "Ren et al.: Balanced meta-softmax for long-tailed visual recognition, 2020",
        loss=Part(lambda counts, space: LogitAdjusted(counts)),
    ),
    "logit-adjustment": Method("tau times the log prior added to the logits in training", _MENON, loss=_ADJUSTED),
    "posthoc-logit-adjustment": Method(
        "tau times the log prior taken off the logits, tau chosen on validation", _MENON, posthoc="logit-adjustment"
    ),
    "asymmetric": Method(
        "for labels of two classes: easy negatives count little",
        "Ridnik et al.: Asymmetric loss for multi-label classification, 2021",
        loss=Part(
            lambda counts, space, **options: Asymmetric(space.sizes, **options), ("positive", "negative", "shift")
        ),
    ),
    "class-balanced-sampling": Method(
        "classes drawn equally often", _DECOUPLING, sampler=_plain_sampler(ClassBalancedSampler)
    ),
    "square-root-sampling": Method(
        "classes drawn by the square root of their size", _DECOUPLING, sampler=_plain_sampler(SquareRootSampler)
    ),
    "progressive-sampling": Method("from natural to equal classes over training", _DECOUPLING, sampler=_PROGRESSIVE),
    "crt": Method(
        "the classifier trained once more, classes drawn equally often",
        _DECOUPLING,
        afterwards=Part(lambda retrain_epochs=10: Afterwards("crt", retrain_epochs), ("retrain_epochs",)),
    ),
    "lws": Method(
        "one factor for each class trained, classes drawn equally often",
        _DECOUPLING,
        afterwards=Part(lambda retrain_epochs=10: Afterwards("lws", retrain_epochs), ("retrain_epochs",)),
    ),
    "tau-normalisation": Method(
        "class weights divided by a power of their norm, chosen on validation",
        _DECOUPLING,
        afterwards=Part(lambda: Afterwards("tau")),
    ),
    "mixup": Method(
        "two images and their labels mixed",
        "Zhang et al.: mixup: Beyond empirical risk minimization, 2018",
        mixing=Part(lambda counts, space, **options: Mixup(**options), ("strength",)),
    ),
    "remix": Method(
        "two images mixed, the label of the rarer class favoured",
        "Chou et al.: Remix: Rebalanced mixup, 2020",
        mixing=Part(_remix, ("strength", "mix_kappa", "mix_tau")),
    ),
    "dcl": Method(
        "triplets of features with easy anchors that fade out, samples from natural to equal classes",
        "Wang et al.: Dynamic curriculum learning for imbalanced data classification, 2019",
        rectification=_rectification(level="instance", comparison="relative", anchors="easy", falling=True),
        sampler=Part(
            lambda targets, space, *, epochs, batch_size, **common: CurriculumSampler(
                targets, space, epochs=epochs, **common
            )
        ),
    ),
}


def find_method(name: str) -> Method:
    """Return a method by name, or several joined by ``+``; a misspelt name is answered with the nearest.

    >>> find_method("crl+threshold-adjustment").posthoc
    'threshold-adjustment'
    """
    names = str(name).split("+")
    check.raise_all([check.choice("method", each, tuple(METHODS)) for each in names])
    if len(set(names)) < len(names):
        check.fail("method", "of different methods", repr(name))
    return METHODS[names[0]] if len(names) == 1 else joined(name, [(each, METHODS[each]) for each in names])
