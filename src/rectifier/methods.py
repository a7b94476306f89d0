"""METHODS: every way to train, by name. A method is data: what it puts into which slot of a training.

Methods that fill different slots go together: ``crl+logit-adjustment`` rectifies beside an adjusted loss, and
``ldam+over-sampling`` draws rare classes more often for another. Two that fill the same slot do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from rectifier import check
from rectifier.imbalance import loss_weight
from rectifier.labels import LabelSpace
from rectifier.losses.adjusted import LogitAdjusted
from rectifier.losses.asymmetric import Asymmetric
from rectifier.losses.class_weights import cost_weights, effective_number_weights
from rectifier.losses.design import Design
from rectifier.losses.entropy import CrossEntropy
from rectifier.losses.focal import Focal
from rectifier.losses.ldam import LDAM
from rectifier.losses.lmle import LMLE, ROLES
from rectifier.losses.objective import Objective
from rectifier.losses.quintuplet import MARGINS
from rectifier.losses.ranking import RankedCrossEntropy
from rectifier.losses.rectified import checked_eta
from rectifier.losses.triplet import SemiHardTripletLoss
from rectifier.mixing import Mixup, Remix
from rectifier.quintuplets import QuintupletSampler
from rectifier.samplers import (
    ClassBalancedSampler,
    CurriculumSampler,
    DownSampler,
    EpochSampler,
    OverSampler,
    ProgressiveSampler,
    SquareRootSampler,
    UniformSampler,
)

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """What fills a slot, made when a training begins, and the names of the options that it takes."""

    build: Callable[..., Any]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Afterwards:
    """What is done to the classifier of a trained network, after the publication on decoupling.

    ``crt`` trains it anew, ``lws`` trains a factor for each class, both for some epochs with classes drawn equally
    often; ``tau`` divides the weights of a class by a power of their norm, chosen on validation.
    """

    kind: str | None = None
    epochs: int = 0


@dataclass(frozen=True)
class Method:
    """One way to train: some slots filled, the others left as plain cross-entropy training has them.

    ========================  =====================================================================================
    ``loss``                  of a sample, ``build(counts, space, **options)``
    ``weights``               of classes, ``build(counts, **options)`` gives ``weights`` and ``weights_from``
    ``rectification``         CRL beside the loss, ``build(counts, **options)`` gives its options of ``Objective``
    ``objective``             in place of these three, ``build(counts, space, gather=, **options)``
    ``sampler``               which sample comes, ``build(targets, space, epochs=, **common)``
    ``mixing``                of images, ``build(counts, space, **options)``
    ``classifier``            that the network must have: ``"cosine"``
    ``rounds``                the epochs before which the sampler looks at the features, ``build(epochs, **options)``
    ``features``              in place of a network's, which is then not trained: ``"hog"``
    ``afterwards``            what is done to the classifier of the trained network: ``"crt"``, ``"lws"``, ``"tau"``
    ``posthoc``               what is added to the logits, fitted on validation
    ``decision``              made from features in place of the classifier: ``"neighbours"``, ``"clusters"``, ``"svm"``
    ========================  =====================================================================================
    """

    about: str
    reference: str = ""
    loss: Part | None = None
    weights: Part | None = None
    rectification: Part | None = None
    objective: Part | None = None
    sampler: Part | None = None
    mixing: Part | None = None
    classifier: str | None = None
    rounds: Part | None = None
    features: str | None = None
    afterwards: Part | None = None
    posthoc: str | None = None
    decision: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """All options that the method takes."""
        return tuple(dict.fromkeys(name for part in self.parts.values() for name in part.options))

    @property
    def parts(self) -> dict[str, Part]:
        return {slot: part for slot in SLOTS if isinstance(part := getattr(self, slot), Part)}

    def build(self, slot: str, given: Options, *arguments: Any, **more: Any) -> Any:
        """Make what fills a slot, with those of the given options that are its own."""
        part = self.parts[slot]
        return part.build(*arguments, **more, **{name: given[name] for name in part.options if name in given})


SLOTS = tuple(f.name for f in fields(Method) if f.name not in ("about", "reference"))
_BRINGS = {
    "weights": "bring class weights",
    "objective": "bring an objective",
    "mixing": "mix images",
    "classifier": "need a classifier of their own",
    "afterwards": "do something to the classifier afterwards",
    "posthoc": "add something to the logits",
}
_OF_A_NETWORK = ("loss", "weights", "rectification", "objective", "sampler", "mixing", "classifier", "afterwards")
_EXCLUDES = {  # what a slot leaves nothing to do for
    "objective": ("which is a whole objective", ("loss", "weights", "rectification", "mixing")),
    "features": ("which trains no network", _OF_A_NETWORK),
    "decision": ("which decides without the classifier", ("afterwards",)),
}


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
    return LMLE(space, gather=gather, margins=tuple(margins), **options)


def _quintuplets(
    targets: Tensor, space: LabelSpace, *, epochs: int, batch_size: int, cluster_size: int = 200, **common: Any
) -> Any:
    if batch_size < ROLES * len(space):
        wanted = f"at least {ROLES * len(space)} for each process, five samples for each label"
        check.fail("batch_size", wanted, batch_size)
    return QuintupletSampler(targets, space, quintuplets=batch_size // ROLES, size=cluster_size, **common)


def _rounds(epochs: int, *, rounds: int = 4, pretrain: float = 0.2) -> frozenset[int]:
    """Return the epochs, equally far apart, at which LMLE's rounds begin; the first is at the end of pre-training."""
    check.raise_all([check.number("rounds", rounds, "a positive integer", check.is_count(rounds))])
    first = next(epoch for epoch in range(epochs + 1) if epoch / epochs >= pretrain)  # as its objective compares them
    if first == epochs:
        check.fail("epochs", f"enough for a round after the share {pretrain:g} that is pre-training", epochs)
    return frozenset(first + (epochs - first) * number // rounds for number in range(rounds))


_PROGRESSIVE = Part(
    lambda targets, space, *, epochs, batch_size, **common: ProgressiveSampler(targets, space, epochs=epochs, **common)
)
_EFFECTIVE = Part(lambda counts, **options: {"weights": effective_number_weights(counts, **options)}, ("beta",))
_DEFERRED_FROM = 0.8
_DEFERRED = Part(
    lambda counts, weights_from=_DEFERRED_FROM, **options: {
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
        objective=Part(_lmle, ("pretrain", "margins")),
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


def build_objective(
    name: str, counts: Sequence[Tensor], space: LabelSpace, *, gather: bool = False, **options: Any
) -> torch.nn.Module:
    """Make the objective of a method, or of several joined by ``+``, from the counts of the training split.

    It is called as ``objective(logits, targets, features, return_parts=True)`` and gives ``LossParts``.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> build_objective("crl+focal", [torch.tensor([90, 10])], space, eta=0.5, gamma=1).alpha
    tensor([0.2222])
    """
    method = find_method(name)
    check.options_of(f"method {name!r}", options, method.options)
    if tuple(map(len, counts)) != space.sizes:
        check.fail("counts", f"those of the label space, {space.sizes}", tuple(map(len, counts)))
    if method.objective is not None:
        made: torch.nn.Module = method.build("objective", options, counts, space, gather=gather)
        return made
    loss = method.build("loss", options, list(counts), space) if method.loss else CrossEntropy()
    more: dict[str, Any] = {}
    for slot in ("weights", "rectification"):
        more |= method.build(slot, options, list(counts)) if slot in method.parts else {}
    return Objective(loss, space, gather=gather, **more)


def build_sampler(
    name: str,
    targets: Tensor,
    space: LabelSpace,
    *,
    epochs: int = 1,
    batch_size: int = 256,
    options: Options | None = None,
    **common: Any,
) -> EpochSampler[Any]:
    """Make the sampler of a method over these training targets ``(N, A)``; ``common`` are seed, num_replicas and rank.

    ``epochs`` and ``batch_size`` are the training's, the latter of one process.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> len(build_sampler("over-sampling", torch.tensor([[0], [0], [0], [1]]), space))
    6
    """
    method = find_method(name)
    if method.sampler is None:
        return UniformSampler(targets, space, **common)
    more = {"epochs": epochs, "batch_size": batch_size, **common}
    made: EpochSampler[Any] = method.build("sampler", options or {}, targets, space, **more)
    return made


def check_method(name: str, epochs: int, options: Options) -> None:
    """Refuse what is wrong with options of a method that are used late, and trainings too short for them."""
    build_afterwards(name, options)
    rounds_of(name, epochs, options)
    if "weights_from" in find_method(name).options:
        share = options.get("weights_from", _DEFERRED_FROM)
        if check.is_real(share) and (epochs - 1) / epochs < share <= 1:
            wanted = f"enough for an epoch after the share {share:g} of training, where the weights of {name} begin"
            check.fail("epochs", wanted, epochs)


def rounds_of(name: str, epochs: int, options: Options) -> frozenset[int]:
    """Return the epochs before which the sampler of a method looks at the features of all training samples."""
    method = find_method(name)
    found: frozenset[int] = frozenset() if method.rounds is None else method.build("rounds", options, epochs)
    return found


def build_mixing(name: str, counts: Sequence[Tensor], space: LabelSpace, options: Options) -> torch.nn.Module | None:
    """Make what mixes the images of a method, or None."""
    method = find_method(name)
    return None if method.mixing is None else method.build("mixing", options, list(counts), space)


def build_afterwards(name: str, options: Options) -> Afterwards:
    """Say what is done to the classifier of a method's trained network."""
    method = find_method(name)
    found: Afterwards = Afterwards() if method.afterwards is None else method.build("afterwards", options)
    if found.kind in ("crt", "lws"):
        wrong = check.number("retrain_epochs", found.epochs, "a positive integer", check.is_count(found.epochs))
        check.raise_all([wrong])
    return found


def needed_of_network(name: str, given: Options) -> dict[str, Any]:
    """Return the options of the network with what the method needs of it.

    >>> needed_of_network("ldam", {"depth": 20})
    {'depth': 20, 'classifier': 'cosine'}
    """
    method = find_method(name)
    wanted = method.classifier
    if method.afterwards is not None and method.build("afterwards", {}).kind in ("lws", "tau"):
        if wanted is not None:
            check.fail(f"method {name!r}", "one that leaves the classifier linear, whose weights have a length", wanted)
        wanted = "linear"
    if wanted is None:
        return dict(given)
    if given.get("classifier", wanted) != wanted:
        check.fail("the network's classifier", f"{wanted} for method {name!r}", repr(given["classifier"]))
    return {**given, "classifier": wanted} if wanted != "linear" else dict(given)


def find_method(name: str) -> Method:
    """Return a method by name, or several joined by ``+``; a misspelt name is answered with the nearest.

    >>> find_method("crl+threshold-adjustment").posthoc
    'threshold-adjustment'
    """
    names = str(name).split("+")
    check.raise_all([check.choice("method", each, tuple(METHODS)) for each in names])
    if len(set(names)) < len(names):
        check.fail("method", "of different methods", repr(name))
    return METHODS[names[0]] if len(names) == 1 else _joined(name, [(each, METHODS[each]) for each in names])


def _joined(name: str, methods: list[tuple[str, Method]]) -> Method:
    filled: dict[str, str] = {}
    values: dict[str, Any] = {}
    for own, method in methods:
        for slot in SLOTS:
            value = getattr(method, slot)
            if value is None:
                continue
            # A cosine classifier beside another is the same one; everything else there can be but one of.
            if slot in filled and value != values[slot]:
                both = f"{filled[slot]} and {own}, which both {_BRINGS.get(slot, f'bring a {slot}')}"
                check.fail(f"method {name!r}", "of methods that go together", both)
            filled[slot], values[slot] = own, value
    for slot, (what, others) in _EXCLUDES.items():
        beside = [filled[other] for other in others if other in filled and filled[other] != filled.get(slot)]
        if slot in filled and beside:
            got = f"{filled[slot]}, {what}, and {beside[0]}"
            check.fail(f"method {name!r}", "of methods that go together", got)
    taken = Counter(option for _, method in methods for option in method.options)
    if twice := [option for option, times in taken.items() if times > 1]:
        check.fail(f"method {name!r}", "of methods whose options differ", f"{', '.join(twice)} of both")
    references = dict.fromkeys(method.reference for _, method in methods if method.reference)
    return Method("; ".join(method.about for _, method in methods), "; ".join(references), **values)
