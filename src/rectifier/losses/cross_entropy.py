"""Cross-entropy: of several labels at once, and with class rectification."""

from __future__ import annotations

from inspect import signature
from typing import Any, Unpack

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts
from rectifier.labels.imbalance import measure_of_counts
from rectifier.losses.crl.design import Design
from rectifier.losses.inputs import IGNORED
from rectifier.losses.objective import LossParts, Objective
from rectifier.losses.sample import Conventions, ProbabilityLoss
from rectifier.losses.training_counts import TrainingCounts


class CrossEntropyLoss(ProbabilityLoss):
    """Train with -log p of each sample's own class, with one softmax per label (Eq. 2).

    For one label it is ``torch.nn.CrossEntropyLoss``, except that every negative target is missing and that a batch
    without targets gives 0. ``SampleLoss`` explains the options.

    >>> CrossEntropyLoss([2, 2])(torch.zeros(3, 4), torch.tensor([[0, 1], [1, -1], [-1, 0]]))
    tensor(1.3863)
    """

    def cost(self, log_p: Tensor) -> Tensor:
        return -log_p


def cross_entropy(
    logits: Tensor, targets: Any, *, sizes: Sizes | None = None, **conventions: Unpack[Conventions]
) -> Tensor:
    """Compute the cross-entropy of a batch with several labels; see ``CrossEntropyLoss``.

    >>> cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, -1]))
    tensor(0.6931)
    """
    loss: Tensor = CrossEntropyLoss(sizes, **conventions)(logits, targets)
    return loss


class RectifiedCrossEntropy(Objective):
    """Train with alpha * CRL + (1 - alpha) * CE per label (Eq. 8), alpha = min(eta * Omega, 1).

    Omega is the imbalance of the label in the training set. Balanced labels keep plain cross-entropy.

    Own arguments (``Objective`` explains the others):
        class_counts: Training samples of each class: a list, array or tensor, a Counter or mapping by class, for
            several labels a list or mapping of these; a data set or a DataLoader to count; or ``"auto"``, which counts
            the first epoch and needs ``sizes``. May be left out if ``alpha`` is given.
        eta: Weight of the rectification per unit of imbalance.
        alpha: Set the weight directly, one number or one per label, in place of eta * Omega.
        sizes: Number of classes of each label, or a LabelSpace, so that errors name the label. Must agree with the
            counts.
        weight, ignore_index, label_smoothing: Of the cross-entropy, as in ``torch.nn.CrossEntropyLoss``.
        design: Options of ``ClassRectificationLoss`` such as level, comparison and kappa: the fields of ``Design``.

    >>> objective = RectifiedCrossEntropy([900, 100], eta=0.5)
    >>> objective.alpha
    tensor([0.2222])
    >>> parts = objective(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), return_parts=True)
    >>> parts.base_loss, parts.mined_classes
    (tensor([0.6931]), tensor([1]))
    """

    former_state = ("class_counts",)

    def __init__(
        self,
        class_counts: Counts = None,
        eta: float = 0.01,
        alpha: float | list[float] | Tensor | None = None,
        label_reduction: str = "sum",
        gather: bool = False,
        *,
        sizes: Sizes | None = None,
        weight: Tensor | list[float] | None = None,
        ignore_index: int = IGNORED,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        generator: torch.Generator | None = None,
        falling: bool = False,
        rectify_from: float = 0.0,
        pooled: bool = False,
        full_if_unmined: bool = False,
        memory: int = 0,
        memory_age: int | None = None,
        **design: Any,
    ) -> None:
        own = [name for name in signature(RectifiedCrossEntropy).parameters if name not in ("class_counts", "design")]
        check.options_of("RectifiedCrossEntropy", design, (*Design._fields, *own), TypeError)
        check.raise_all(
            [
                check.not_negative("eta", eta),
                check.that("class_counts", None, "given, or else alpha", class_counts is not None or alpha is not None),
                check.that("sizes", sizes, "given without class_counts", class_counts is not None or sizes is not None),
            ]
        )
        counts = None if class_counts is None else TrainingCounts(class_counts, sizes, ignore_index)
        sizes = sizes if counts is None else counts.sizes
        loss = CrossEntropyLoss(sizes, weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing)
        counted = alpha is None and counts is not None
        super().__init__(
            loss,
            sizes,  # type: ignore[arg-type]
            rectification=Design(**design),
            alpha=alpha_of_counts(counts, eta) if counted else alpha,  # type: ignore[arg-type]
            falling=falling,
            rectify_from=rectify_from,
            pooled=pooled,
            full_if_unmined=full_if_unmined,
            memory=memory,
            memory_age=memory_age,
            label_reduction=label_reduction,
            reduction=reduction,
            gather=gather,
            generator=generator,
        )
        self.eta = eta if counted else None
        self.counts = counts

    @property
    def class_counts(self) -> Tensor | None:
        """The training samples of each class, ``(K,)``."""
        return None if self.counts is None else self.counts.counts

    def count(self, targets: Tensor) -> None:
        if self.counts is not None:
            self.counts(targets)

    def full_alpha(self) -> Tensor:
        if self.eta is None or self.counts is None or not self.counts.auto:
            return self.alpha
        return alpha_of_counts(self.counts, self.eta)

    def extra_repr(self) -> str:
        return f"eta={self.eta}, {super().extra_repr()}"


def alpha_of_counts(counts: TrainingCounts, eta: float) -> Tensor:
    """Return alpha = min(eta * Omega, 1) of each label, ``(A,)``."""
    omega = measure_of_counts(counts.counts, columns.as_sizes(counts.sizes))
    return (eta * omega.float()).clamp(max=1)


def rectified_cross_entropy(
    logits: Tensor,
    targets: Any,
    features: Tensor | None = None,
    *,
    class_counts: Counts = None,
    eta: float = 0.01,
    alpha: float | list[float] | Tensor | None = None,
    sizes: Sizes | None = None,
    **options: Any,
) -> Tensor:
    """Compute alpha * CRL + (1 - alpha) * CE of a batch; see ``RectifiedCrossEntropy``.

    >>> rectified_cross_entropy(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]), class_counts=[900, 100], eta=0.5)
    tensor(0.6502)
    """
    for name in ("memory", "memory_age", "falling", "rectify_from"):
        if name in options:
            raise TypeError(f"A function has no state for {name}. Use RectifiedCrossEntropy({name}=...).")
    if class_counts is None and sizes is None:
        sizes = check.logits(logits).shape[1]
    objective = RectifiedCrossEntropy(class_counts, eta, alpha, sizes=sizes, **options)
    loss: Tensor | LossParts = objective(logits, targets, features)
    return loss  # type: ignore[return-value]
