"""Decoupled training (Kang et al. 2020): how to change a classifier after the features are learned.

Frequent classes end with longer weights, and so with larger logits. tau-normalisation divides the lengths out. LWS
learns one scale per class on class-balanced batches, cRT retrains the classifier; both freeze everything else. A
classifier is its weight ``(K, D)``, one row for each class of each label, and its bias ``(K,)`` or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rectifier._base import check
from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.networks.head import Output
from rectifier.networks.network import Network

TAUS = tuple(step / 10 for step in range(11))
"""The exponents to try: from 0, which changes nothing, to 1, where all weights have length 1."""


def class_logits(features: Tensor, weight: Tensor, bias: Tensor | None, sizes: Sizes) -> Tensor:
    """Return the logits ``(N, K)`` of saved features ``(N, D)``, or ``(N, A, D)``, as a network's head does.

    >>> features = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> class_logits(features, torch.arange(10.0).view(5, 2), None, [2, 3])
    tensor([[0., 2., 5., 7., 9.]])
    """
    known = columns.as_sizes(sizes)
    _check(features, weight, bias, known)
    features = features.to(weight.dtype)
    if features.dim() == 2:
        return linear(features, weight, bias)
    # One product per label. Networks have one for all labels, but this runs once per fit.
    products = [linear(own, rows) for own, rows in zip(features.unbind(1), weight.split(known), strict=True)]
    logits = torch.cat(products, 1)
    return logits if bias is None else logits + bias


def tau_normalised(weight: Tensor, tau: float) -> Tensor:
    """Divide each row of the weight ``(K, D)`` by its length to the power of ``tau``.

    0 changes nothing, 1 gives rows of length 1. A row of zeros stays.

    >>> tau_normalised(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 1.0)
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return weight * _row_scales(weight, tau)[:, None]


def choose_tau(
    features: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None, sizes: Sizes, taus: Sequence[float] = TAUS
) -> float:
    """Return the tau with the best class-balanced accuracy on these validation features. Ties go to the first.

    The published classifier of tau-normalisation has no bias: pass None, and remove it from the network too. A given
    bias is added unchanged.

    >>> weight, features = torch.tensor([[4.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.1], [1.0, 2.0]])
    >>> choose_tau(features, torch.tensor([[0], [1]]), weight, None, [2])
    0.6
    """
    if not taus:
        check.fail("taus", "a list of at least one number", "an empty one")
    _check(features, weight, bias, columns.as_sizes(sizes))
    logits = class_logits(features, weight, None, sizes)  # scaling a row scales its logit: one product for all taus

    def score(tau: float) -> float:
        scaled = logits * _row_scales(weight, tau)
        return float(class_balanced_accuracy(scaled if bias is None else scaled + bias, targets, sizes))

    return max(taus, key=score)


class LearnableScale(nn.Module):
    """Multiply the logits of a frozen linear classifier by one learned scale per class (LWS).

    A cosine classifier does not work: it divides by the length of its weights, and so by the scales.

    >>> scaled = LearnableScale(nn.Linear(4, 3))
    >>> [name for name, parameter in scaled.named_parameters() if parameter.requires_grad], scaled.scale.tolist()
    (['scale'], [1.0, 1.0, 1.0])
    """

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        weight = getattr(classifier, "weight", None)
        if not isinstance(weight, Tensor) or weight.dim() != 2:
            wanted = "a module with a weight of shape (K, D)"
            raise TypeError(check.sentence("classifier", wanted, type(classifier).__name__))
        self.classifier = classifier.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones_like(weight[:, 0]))

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(features)
        return logits * self.scale

    @torch.no_grad()
    def folded(self) -> tuple[Tensor, Tensor | None]:
        """Return weight ``(K, D)`` and bias of a plain classifier that gives the same logits."""
        weight, bias = self.classifier.get_parameter("weight"), getattr(self.classifier, "bias", None)
        return weight * self.scale[:, None], None if bias is None else bias * self.scale


class RetrainedClassifier(nn.Module):
    """Freeze a network, including batch statistics and dropout, and retrain its classifier from new weights (cRT).

    With ``scales`` the classifier stays, and one factor per class is trained (LWS).
    """

    def __init__(self, network: Network, *, scales: bool, seed: int) -> None:
        super().__init__()
        network.requires_grad_(False)
        self.network = network
        if scales:
            head: Any = network.head
            head.classifier = LearnableScale(head.classifier)
        else:
            network.reset_classifier(seed)
            network.head.classifier.requires_grad_(True)

    def train(self, mode: bool = True) -> RetrainedClassifier:
        """Set the mode, but keep the frozen network in evaluation mode."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, images: Tensor) -> Output:
        found: Output = self.network(images)
        return found

    def put_back(self) -> None:
        """Turn the network into a plain one again, with the new classifier."""
        head: Any = self.network.head
        if isinstance(head.classifier, LearnableScale):
            (weight, bias), head.classifier = head.classifier.folded(), head.classifier.classifier
            with torch.no_grad():
                head.classifier.weight.copy_(weight)
                head.classifier.bias.copy_(bias)
        self.network.requires_grad_(True)


def _row_scales(weight: Tensor, tau: float) -> Tensor:
    """Return ``(K,)``: the factor of each class's row, or logit."""
    check.raise_all([check.not_negative("tau", tau)])
    length = torch.linalg.vector_norm(weight, dim=1)
    scales: Tensor = length.where(length > 0, 1).pow(-tau)
    return scales


def _check(features: Tensor, weight: Tensor, bias: Tensor | None, sizes: tuple[int, ...]) -> None:
    labels, classes = len(sizes), sum(sizes)
    if weight.dim() != 2 or len(weight) != classes:
        check.fail("weight", f"of shape ({classes}, D), one row for each class", f"shape {tuple(weight.shape)}")
    if bias is not None and bias.shape != (classes,):
        check.fail("bias", f"of shape ({classes},), one for each class", f"shape {tuple(bias.shape)}")
    width = weight.shape[1]
    if features.shape[1:] not in ((width,), (labels, width)):
        check.fail("features", f"of shape (N, {width}) or (N, {labels}, {width})", f"shape {tuple(features.shape)}")
