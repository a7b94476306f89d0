"""Losses with one value per sample and label, called like ``torch.nn.CrossEntropyLoss``, and the means of them."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts
from rectifier.losses.inputs import IGNORED, Inputs, no_autocast, prepare
from rectifier.losses.module import LossModule
from rectifier.losses.training_counts import TrainingCounts

REDUCTIONS = ("mean", "sum", "none")


class Conventions(TypedDict, total=False):
    """The options that every loss of single samples shares with PyTorch's; ``SampleLoss`` explains them."""

    weight: Tensor | list[float] | None
    ignore_index: int
    label_smoothing: float
    reduction: str
    label_reduction: str


class Weighted(NamedTuple):
    """Weighted losses of the samples, and the weight of each, both ``(N, A)`` and 0 where the label is missing."""

    losses: Tensor
    weight: Tensor

    def means(self) -> Tensor:
        """Return ``(A,)``: the weighted mean over the samples that have the label, 0 where none has it."""
        total, count = self.losses.sum(0), self.weight.sum(0)
        return total / count.where(count > 0, 1)


class SampleLoss(LossModule):
    """The base class of losses of single samples: ``loss(logits, targets)``.

    Logits are ``(N, K)``. Targets are class indices ``(N,)`` or ``(N, A)``, negative where missing, or probabilities
    ``(N, K)`` (mixup, CutMix, soft labels). In these, a label whose columns are all 0 is missing.

    Args:
        sizes: Number of classes of each label: a list, one number, or a LabelSpace. None is one label with all columns.
        weight: One weight per class, ``(K,)``.
        ignore_index: This target is missing too. Negative targets always are.
        label_smoothing: Share of the target that is spread evenly over all classes, from 0 to 1.
        reduction: ``"mean"`` of each label over the samples that have it, weighted by the weights of their classes;
            ``"sum"``, or ``"none"`` for one value per sample (and label). A mean without any sample is 0, not NaN.
        label_reduction: ``"sum"`` over labels, ``"mean"``, or ``"none"`` for ``(A,)``. A single label has no effect.

    All of it is as in ``torch.nn.CrossEntropyLoss``, label by label.

    A subclass gives the loss of each sample's own class and, for soft targets and smoothing, of every class.
    """

    weight: Tensor | None
    of_probabilities = True  # the subclass reads log-probabilities; else the logits

    def __init__(
        self,
        sizes: Sizes | None = None,
        *,
        weight: Tensor | list[float] | None = None,
        ignore_index: int = IGNORED,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
        label_reduction: str = "sum",
    ) -> None:
        super().__init__()
        check.raise_all(
            [
                check.choice("reduction", reduction, REDUCTIONS),
                check.choice("label_reduction", label_reduction, ("sum", "mean", "none")),
                check.portion("label_smoothing", label_smoothing),
                check.that("ignore_index", ignore_index, "an integer", check.is_natural(abs(ignore_index))),
            ]
        )
        self.sizes = None if sizes is None else columns.kept_sizes(sizes)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.reduction, self.label_reduction = reduction, label_reduction
        self.configure("weight", class_weight(weight, self.sizes))

    @property
    def adjusts_prior(self) -> bool:
        """Whether the loss already corrects for class frequencies, so that a prior rule would correct twice."""
        return self.weight is not None

    def own_losses(self, scores: Tensor, targets: Tensor, sizes: tuple[int, ...], own: Tensor | None = None) -> Tensor:
        """Return ``(N, A)``: the loss of each sample's own class, 0 where its label is missing.

        ``scores`` ``(N, K)`` are log-probabilities, or logits if the loss is not ``of_probabilities``. ``own`` are
        those of the own classes, if they have been read.
        """
        raise NotImplementedError

    def class_losses(self, scores: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Return ``(N, K)``: the loss that each class would have if it were the sample's own."""
        raise NotImplementedError

    def count(self, targets: Tensor) -> None:
        """Note the targets ``(N, A)`` of a batch. Only losses that count classes do."""

    def forward(self, logits: Tensor, targets: Any) -> Tensor:
        with no_autocast(logits):
            given = prepare(logits, targets, None, self.sizes, ignore_index=self.ignore_index)
            if self.weight is not None and len(self.weight) != sum(given.sizes):
                check.fail(
                    "weight", f"one number for each of {sum(given.sizes)} classes", f"{len(self.weight)} numbers"
                )
            self.count(given.targets)
            scores = columns.log_softmax(given.logits, given.sizes) if self.of_probabilities else given.logits
            found = self.weighted(scores, given, self.weight)
        if self.reduction == "none":
            return found.losses[:, 0] if len(given.sizes) == 1 and _is_flat(targets, logits) else found.losses
        per_label = found.means() if self.reduction == "mean" else found.losses.sum(0)
        return reduce_labels(per_label, self.label_reduction)

    def weighted(self, scores: Tensor, given: Inputs, weight: Tensor | None, own: Tensor | None = None) -> Weighted:
        """Return the weighted losses of a batch, from ``scores`` and ``own`` as in ``own_losses``."""
        sizes, smoothing = given.sizes, self.label_smoothing
        labelled = (given.targets >= 0).to(scores.dtype)
        spread = scores.new_ones(()) if weight is None else weight.to(scores.dtype)
        if given.soft is not None:
            even = columns.label_sizes(sizes, scores.device)[columns.label_of_column(sizes, scores.device)].reciprocal()
            share = (1 - smoothing) * given.soft + smoothing * even * over_columns(labelled, sizes)
            return Weighted(sum_columns(share * spread * self.class_losses(scores, sizes), sizes), labelled)
        counted = labelled if weight is None else own_values(spread.expand_as(scores), given.targets, sizes)
        losses = counted * self.own_losses(scores, given.targets, sizes, own)
        if smoothing:
            mean = sum_columns(spread * self.class_losses(scores, sizes), sizes) / columns.label_sizes(
                sizes, scores.device
            )
            losses = (1 - smoothing) * losses + smoothing * labelled * mean
        return Weighted(losses, counted)

    def extra_repr(self) -> str:
        return described(self)


class ProbabilityLoss(SampleLoss):
    """A loss that depends only on the probability of the own class."""

    def cost(self, log_p: Tensor) -> Tensor:
        """Return the loss of a class with this log-probability, in the same shape; 0 for log 1."""
        raise NotImplementedError

    def own_losses(self, scores: Tensor, targets: Tensor, sizes: tuple[int, ...], own: Tensor | None = None) -> Tensor:
        return self.cost(own_values(scores, targets, sizes) if own is None else own)

    def class_losses(self, scores: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return self.cost(scores)


class CountedLoss(SampleLoss):
    """A loss of the logits with one number per class, ``per_class``, which follows from the training counts.

    ``class_counts`` are counts in any form, a data set, a DataLoader, or ``"auto"``, which counts the first epoch and
    needs ``sizes``. ``from_counts`` turns counts ``(K,)`` and sizes into float32 ``(K,)``.
    """

    of_probabilities = False
    _per_class: Tensor | None

    def __init__(
        self,
        class_counts: Counts,
        sizes: Sizes | None,
        from_counts: Callable[[Tensor, tuple[int, ...]], Tensor],
        **conventions: Unpack[Conventions],
    ) -> None:
        counts = TrainingCounts(class_counts, sizes, conventions.get("ignore_index", IGNORED))
        super().__init__(counts.sizes, **conventions)
        self.counts, self.from_counts = counts, from_counts
        self.configure("_per_class", None if counts.auto else self._computed())

    def count(self, targets: Tensor) -> None:
        self.counts(targets)

    @property
    def per_class(self) -> Tensor:
        return self._computed() if self._per_class is None else self._per_class

    def _computed(self) -> Tensor:
        return self.from_counts(self.counts.counts, columns.as_sizes(self.counts.sizes))


def own_values(values: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the value ``(N, K)`` of each sample's own class, 0 where its label is missing.

    >>> own_values(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1], [-1]]), (2,))
    tensor([[2.],
            [0.]])
    """
    own = columns.own_columns(targets, sizes)
    return values.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)


def sum_columns(values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the sum of the values ``(N, K)`` over the columns of each label."""
    if len(set(sizes)) == 1:
        return values.reshape(-1, len(sizes), sizes[0]).sum(-1)
    return values.new_zeros(len(values), len(sizes)).index_add(1, columns.label_of_column(sizes, values.device), values)


def over_columns(values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, K)``: the value ``(N, A)`` of its label for each column."""
    return values.index_select(1, columns.label_of_column(sizes, values.device))


def label_means(losses: Tensor, targets: Tensor) -> Tensor:
    """Return ``(A,)``: the mean of losses ``(N, A)`` over the samples that have the label, 0 where none has it."""
    return losses.sum(0) / (targets >= 0).sum(0).clamp(min=1)


def reduce_labels(per_label: Tensor, label_reduction: str) -> Tensor:
    """Sum or average ``(A,)`` over the labels; ``"none"`` returns it unchanged."""
    if label_reduction == "none":
        return per_label
    return per_label.sum() if label_reduction == "sum" else per_label.mean()


def mean_or_sum(what: str, value: str) -> str | None:
    """Return the complaint about the reduction of a loss that compares samples."""
    complaint = check.choice(what, value, ("mean", "sum"))
    return complaint and f"{complaint} A loss that compares samples has no value per sample."


def check_reduction(label_reduction: str) -> str:
    check.raise_all([check.choice("label_reduction", label_reduction, ("sum", "mean", "none"))])
    return label_reduction


def class_weight(weight: Tensor | list[float] | None, sizes: Sizes | None) -> Tensor | None:
    """Check the weights ``(K,)`` of a loss."""
    if weight is None:
        return None
    if isinstance(weight, (list, tuple)) and weight and not isinstance(weight[0], Number):  # one list per label
        weight = torch.cat([check.as_tensor("weight", label).float() for label in weight])
    given = check.as_tensor("weight", weight).detach()
    given = given if given.is_floating_point() else given.float()
    wanted = "one number of at least 0 for each class" if sizes is None else ""
    classes = given.numel() if sizes is None else sum(columns.as_sizes(sizes))
    if given.shape != (classes,) or (not given.is_cuda and not bool((given >= 0).all())):
        check.fail("weight", wanted or f"{classes} numbers of at least 0, one for each class", given.tolist())
    return given


def described(module: torch.nn.Module, *own: str) -> str:
    """Return a module's own options, and those of PyTorch's that are not the default, as written in a call."""
    plain = {"ignore_index": IGNORED, "label_smoothing": 0.0, "reduction": "mean", "label_reduction": "sum"}
    given = [name for name, default in plain.items() if getattr(module, name, default) != default]
    return ", ".join(f"{name}={getattr(module, name)!r}" for name in (*own, *given))


def _is_flat(targets: object, logits: Tensor) -> bool:
    shape = check.as_tensor("targets", targets).shape
    return len(shape) == 1 or shape == logits.shape
