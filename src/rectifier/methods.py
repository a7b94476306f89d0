"""METHODS: every way to train, by name. A method is data: a loss, a sampler and what is done after training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rectifier import check
from rectifier.labels import LabelSpace
from rectifier.losses.rectified import RectifiedCrossEntropy
from rectifier.losses.weighted import MultiLabelCrossEntropy, cost_weights
from rectifier.samplers import DownSampler, EpochSampler, OverSampler, UniformSampler

Objective = torch.nn.Module
"""Called as ``objective(logits, targets, features, return_parts=True)``; gives ``LossParts``."""


@dataclass(frozen=True)
class Method:
    """One way to train.

    ``loss`` makes the objective from the counts of the training split (a list with one tensor per label) and the label
    space; ``sampler`` is the class of sampler that says which sample comes; ``posthoc`` names what is fitted on
    validation afterwards. ``options`` are the loss's and can be overridden; the sampler has none.
    """

    about: str
    reference: str
    loss: Callable[..., Objective]
    options: tuple[str, ...] = ()
    sampler: Callable[..., EpochSampler[Any]] = UniformSampler
    posthoc: str | None = None


def _cross_entropy(counts: Sequence[Tensor], space: LabelSpace, *, gather: bool) -> Objective:
    return MultiLabelCrossEntropy(space, gather=gather)


def _cost_sensitive(counts: Sequence[Tensor], space: LabelSpace, *, gather: bool) -> Objective:
    return MultiLabelCrossEntropy(space, cost_weights(counts), gather=gather)


def _rectified(level: str, comparison: str) -> Method:
    def loss(counts: Sequence[Tensor], space: LabelSpace, **options: Any) -> Objective:
        return RectifiedCrossEntropy(list(counts), sizes=space, level=level, comparison=comparison, **options)

    about = f"class rectification beside cross-entropy, {level} level, {comparison} comparison"
    return Method(about, _CRL, loss, _CRL_OPTIONS)


_CRL = "Dong, Gong, Zhu: Imbalanced deep learning by minority class incremental rectification, 2019"
_CRL_OPTIONS = ("eta", "alpha", "kappa", "rho", "margin", "scope", "mining", "bins", "normalize")
_DRUMMOND = "Drummond, Holte: C4.5, class imbalance, and cost sensitivity, 2003"

METHODS: dict[str, Method] = {
    "ce": Method("cross-entropy", "", _cross_entropy),
    "crl": _rectified("class", "relative"),
    "crl-class-absolute": _rectified("class", "absolute"),
    "crl-class-distribution": _rectified("class", "distribution"),
    "crl-instance-relative": _rectified("instance", "relative"),
    "crl-instance-absolute": _rectified("instance", "absolute"),
    "crl-instance-distribution": _rectified("instance", "distribution"),
    "over-sampling": Method("rare classes replicated", _DRUMMOND, _cross_entropy, sampler=OverSampler),
    "down-sampling": Method("frequent classes thinned out", _DRUMMOND, _cross_entropy, sampler=DownSampler),
    "cost-sensitive": Method(
        "class weights exp(-share)", "He, Garcia: Learning from imbalanced data, 2009", _cost_sensitive
    ),
    "threshold-adjustment": Method(
        "p * exp(-share)^T, T chosen on validation",
        "Chen et al.: Decision threshold adjustment in class prediction, 2006",
        _cross_entropy,
        posthoc="threshold-adjustment",
    ),
}


def build_objective(
    name: str, counts: Sequence[Tensor], space: LabelSpace, *, gather: bool = False, **options: Any
) -> Objective:
    """Make the objective of a method from the counts of the training split.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> build_objective("crl", [torch.tensor([90, 10])], space, eta=0.5).alpha
    tensor([0.2222])
    """
    method = find_method(name)
    check.options_of(f"method {name!r}", options, method.options)
    if tuple(map(len, counts)) != space.sizes:
        check.fail("counts", f"those of the label space, {space.sizes}", tuple(map(len, counts)))
    return method.loss(counts, space, gather=gather, **options)


def build_sampler(name: str, targets: Tensor, space: LabelSpace, **common: Any) -> EpochSampler[Any]:
    """Make the sampler of a method over these training targets ``(N, A)``; ``common`` are seed, num_replicas and rank.

    >>> space = LabelSpace.from_names({"kind": ["cat", "dog"]})
    >>> len(build_sampler("over-sampling", torch.tensor([[0], [0], [0], [1]]), space))
    6
    """
    return find_method(name).sampler(targets, space, **common)


def find_method(name: str) -> Method:
    """Return a method by name; a misspelt name is answered with the nearest."""
    check.raise_all([check.choice("method", name, tuple(METHODS))])
    return METHODS[name]
