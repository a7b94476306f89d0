"""METHODS: all training methods by name. A method is data: the parts it puts into the slots of a training.

Methods that fill different slots combine: ``crl+logit-adjustment`` rectifies an adjusted loss, and
``ldam+over-sampling`` draws rare classes more often. Two methods that fill the same slot do not combine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from rectifier._base import check
from rectifier.data.mixing import Mixup, Remix
from rectifier.labels.imbalance import loss_weight
from rectifier.labels.space import LabelSpace
from rectifier.losses import (
    LMLE,
    AsymmetricLoss,
    BalancedSoftmaxLoss,
    Design,
    FocalLoss,
    LDAMLoss,
    LogitAdjustedLoss,
    RankedCrossEntropy,
    SemiHardTripletLoss,
    cost_weights,
    effective_number_weights,
)
from rectifier.losses.lmle import MARGINS, ROLES
from rectifier.methods.method import Afterwards, Method, Part, joined
from rectifier.samplers import (
    ClassBalancedSampler,
    CurriculumSampler,
    DownSampler,
    EpochSampler,
    OverSampler,
    ProgressiveSampler,
    QuintupletSampler,
    SquareRootSampler,
)
from rectifier.samplers.lmle.clusters import CLUSTER_SIZE


def _rectification(**fixed: Any) -> Part:
    def build(counts: Sequence[Tensor], *, eta: float = 0.01, alpha: Any = None, **options: Any) -> dict[str, Any]:
        given = {**fixed, **options}
        own = {name: given.pop(name) for name in _OBJECTIVES_OWN if name in given}
        weight = loss_weight(list(counts), eta) if alpha is None else alpha
        return {"rectification": Design(**given), "alpha": weight, **own}

    return Part(build, tuple(name for name in _CRL_OPTIONS if name not in fixed))


_OBJECTIVES_OWN = ("falling", "rectify_from", "pooled", "full_if_unmined", "memory", "memory_age")
_CRL_OPTIONS = ("eta", "alpha", *Design._fields, *_OBJECTIVES_OWN)
_CRL = "Dong, Gong, Zhu: Imbalanced deep learning by minority class incremental rectification, 2019"
_DRUMMOND = "Drummond, Holte: C4.5, class imbalance, and cost sensitivity, 2003"
_DECOUPLING = "Kang et al.: Decoupling representation and classifier for long-tailed recognition, 2020"
_LDAM = "Cao et al.: Learning imbalanced datasets with label-distribution-aware margin loss, 2019"
_MENON = "Menon et al.: Long-tail learning via logit adjustment, 2021"
_CUI = "Cui et al.: Class-balanced loss based on effective number of samples, 2019"


def _crl(level: str, comparison: str) -> Method:
    about = f"Class Rectification Loss added to the loss: {level} level, {comparison} comparison"
    return Method(about, _CRL, rectification=_rectification(level=level, comparison=comparison))


def _remix(
    counts: Sequence[Tensor], space: LabelSpace, *, mix_kappa: float = 3.0, mix_tau: float = 0.5, **options: Any
) -> Remix:
    return Remix(counts, space, kappa=mix_kappa, tau=mix_tau, **options)  # CRL also has a kappa, logit adjustment a tau


def _sampler(kind: Callable[..., EpochSampler[Any]], *options: str) -> Part:
    return Part(lambda targets, space, *, epochs, batch_size, **common: kind(targets, space, **common), options)


def _lmle(counts: Sequence[Tensor], space: LabelSpace, *, gather: bool, margins: Any = MARGINS, **options: Any) -> LMLE:
    return LMLE(space, gather=gather, margins=margins, **options)


def _quintuplets(
    targets: Tensor, space: LabelSpace, *, epochs: int, batch_size: int, cluster_size: int = CLUSTER_SIZE, **common: Any
) -> Any:
    check.raise_all([check.count("cluster_size", cluster_size)])
    if batch_size < ROLES * len(space):
        wanted = f"at least {ROLES * len(space)} for each process, five samples for each label"
        check.fail("batch_size", wanted, batch_size)
    return QuintupletSampler(targets, space, quintuplets=batch_size // ROLES, size=cluster_size, **common)


def _rounds(epochs: int, *, rounds: int = 4, pretrain: float = 0.2) -> frozenset[int]:
    """Return the epochs, at equal distances, at which LMLE's rounds start; the first when pre-training ends."""
    check.raise_all([check.count("rounds", rounds), check.portion("pretrain", pretrain)])
    first = next(epoch for epoch in range(epochs + 1) if epoch / epochs >= pretrain)  # the same comparison as in LMLE
    if first == epochs:
        check.fail("epochs", f"enough for a round after pre-training, the share {pretrain:g} of training", epochs)
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
_MARGINS = Part(lambda counts, space, **options: LDAMLoss(counts, **options), ("largest",))
_ADJUSTED = Part(lambda counts, space, **options: LogitAdjustedLoss(counts, **options), ("tau",), adjusts_prior=True)

METHODS: dict[str, Method] = {
    "ce": Method("cross-entropy"),
    "crl": _crl("class", "relative"),
    "crl-class-absolute": _crl("class", "absolute"),
    "crl-class-distribution": _crl("class", "distribution"),
    "crl-instance-relative": _crl("instance", "relative"),
    "crl-instance-absolute": _crl("instance", "absolute"),
    "crl-instance-distribution": _crl("instance", "distribution"),
    "over-sampling": Method("repeat samples of rare classes", _DRUMMOND, sampler=_sampler(OverSampler, "combine")),
    "down-sampling": Method("drop samples of frequent classes", _DRUMMOND, sampler=_sampler(DownSampler, "combine")),
    "cost-sensitive": Method(
        "weight each class by exp(-its share of samples)",
        "He, Garcia: Learning from imbalanced data, 2009",
        weights=Part(lambda counts: {"weights": cost_weights(counts)}),
    ),
    "threshold-adjustment": Method(
        "multiply probabilities by exp(-class share)^T, with T chosen on validation",
        "Chen et al.: Decision threshold adjustment in class prediction, 2006",
        posthoc="threshold-adjustment",
    ),
    "lmle": Method(
        "train features on quintuplets from clusters; the nearest cluster decides",
        "Huang, Li, Loy, Tang: Learning deep representation for imbalanced classification, 2016",
        objective=Part(_lmle, ("pretrain", "margins", "weight")),
        sampler=Part(_quintuplets, ("cluster_size", "candidates")),
        rounds=Part(_rounds, ("rounds", "pretrain")),
        decision="clusters",
    ),
    "hog-knn": Method(
        "k nearest neighbours on histograms of oriented gradients; no training",
        "Dalal, Triggs: Histograms of oriented gradients for human detection, 2005",
        features="hog",
        decision="neighbours",
    ),
    "triplet-knn": Method(
        "train an embedding with semi-hard triplets; k nearest neighbours decide",
        "Schroff, Kalenichenko, Philbin: FaceNet, 2015",
        objective=Part(
            lambda counts, space, gather, **options: SemiHardTripletLoss(space, gather=gather, **options), ("margin",)
        ),
        decision="neighbours",
    ),
    "ranking": Method(
        "cross-entropy plus a triplet ranking of samples by shared labels (from DARN)",
        "Huang et al.: Cross-domain image retrieval with a dual attribute-aware ranking network, 2015",
        objective=Part(
            lambda counts, space, gather, weight=1.0, **options: RankedCrossEntropy(
                space, weight, gather=gather, **options
            ),
            ("weight", "margin"),
        ),
    ),
    "svm": Method(
        "one linear support vector machine per label on the features (as in ANet)",
        "Liu et al.: Deep learning face attributes in the wild, 2015",
        decision="svm",
    ),
    "focal": Method(
        "reduce the loss of easy samples",
        "Lin et al.: Focal loss for dense object detection, 2017",
        loss=Part(lambda counts, space, **options: FocalLoss(**options), ("gamma",)),
    ),
    "class-balanced": Method("weight classes by their effective number of samples", _CUI, weights=_EFFECTIVE),
    "drw": Method("weight classes by effective number in the last fifth of training", _LDAM, weights=_DEFERRED),
    "ldam": Method(
        "larger margins for rarer classes, with a cosine classifier", _LDAM, loss=_MARGINS, classifier="cosine"
    ),
    "ldam-drw": Method(
        "ldam, with class weights in the last fifth of training",
        _LDAM,
        loss=_MARGINS,
        weights=_DEFERRED,
        classifier="cosine",
    ),
    "balanced-softmax": Method(
        "add the log class prior to the logits in training",
        "Ren et al.: Balanced meta-softmax for long-tailed visual recognition, 2020",
        loss=Part(lambda counts, space: BalancedSoftmaxLoss(counts), adjusts_prior=True),
    ),
    "logit-adjustment": Method("add tau times the log class prior to the logits in training", _MENON, loss=_ADJUSTED),
    "posthoc-logit-adjustment": Method(
        "subtract tau times the log class prior from the logits, with tau chosen on validation",
        _MENON,
        posthoc="logit-adjustment",
    ),
    "asymmetric": Method(
        "reduce the loss of easy negatives, for labels of two classes",
        "Ridnik et al.: Asymmetric loss for multi-label classification, 2021",
        loss=Part(
            lambda counts, space, **options: AsymmetricLoss(sizes=space, **options),
            ("positive", "negative", "shift"),
            adjusts_prior=True,
        ),
    ),
    "class-balanced-sampling": Method(
        "draw all classes equally often", _DECOUPLING, sampler=_sampler(ClassBalancedSampler)
    ),
    "square-root-sampling": Method(
        "draw classes in proportion to the square root of their size",
        _DECOUPLING,
        sampler=_sampler(SquareRootSampler),
    ),
    "progressive-sampling": Method(
        "move from natural to equal class frequencies during training", _DECOUPLING, sampler=_PROGRESSIVE
    ),
    "crt": Method(
        "retrain the classifier on class-balanced samples",
        _DECOUPLING,
        afterwards=Part(lambda retrain_epochs=10: Afterwards("crt", retrain_epochs), ("retrain_epochs",)),
    ),
    "lws": Method(
        "train one scale per class on class-balanced samples",
        _DECOUPLING,
        afterwards=Part(lambda retrain_epochs=10: Afterwards("lws", retrain_epochs), ("retrain_epochs",)),
    ),
    "tau-normalisation": Method(
        "divide each class's weight vector by a power of its norm, chosen on validation",
        _DECOUPLING,
        afterwards=Part(lambda: Afterwards("tau")),
    ),
    "mixup": Method(
        "mix pairs of images and their labels",
        "Zhang et al.: mixup: Beyond empirical risk minimization, 2018",
        mixing=Part(lambda counts, space, **options: Mixup(**options), ("strength",)),
    ),
    "remix": Method(
        "mix pairs of images and favour the label of the rarer class",
        "Chou et al.: Remix: Rebalanced mixup, 2020",
        mixing=Part(_remix, ("strength", "mix_kappa", "mix_tau")),
    ),
    "dcl": Method(
        "feature triplets with easy anchors and a falling weight, sampling that moves to equal classes",
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
    """Return a method by name, or several joined by ``+``. The error for a misspelt name suggests the nearest one.

    >>> find_method("crl+threshold-adjustment").posthoc
    'threshold-adjustment'
    """
    names = str(name).split("+")
    if "" in names[1:]:
        raise ValueError(f"A method is missing after + in {name!r}.")
    check.raise_all([check.choice("method", each, tuple(METHODS), "METHODS") for each in names])
    if twice := [each for each in names if names.count(each) > 1]:
        raise ValueError(f"{name} names {twice[0]} twice.")
    return METHODS[names[0]] if len(names) == 1 else joined(name, [(each, METHODS[each]) for each in names])
