"""Objective: a sample loss, class weights and the Class Rectification Loss, each chosen on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.loss import Rectification, rectify
from rectifier.losses.crl.memory import make_memory
from rectifier.losses.inputs import Inputs, no_autocast, prepare
from rectifier.losses.mixed_labels import Partner, Side, both_sides, larger_side
from rectifier.losses.sample import ProbabilityLoss, SampleLoss, check_reduction, reduce_labels


class LossParts(NamedTuple):
    """The loss and its parts, for logging. All parts except ``loss`` are detached and ``(A,)``.

    ``base_loss`` is the loss without rectification: cross-entropy, or the method's replacement. ``comparisons`` counts
    the triplets, or the positive and negative pairs. ``alpha`` is the current weight of the rectification.
    """

    loss: Tensor
    base_loss: Tensor
    rectification: Tensor
    alpha: Tensor
    mined_classes: Tensor
    comparisons: Tensor

    @classmethod
    def without_rectification(cls, loss: Tensor, base_loss: Tensor, comparisons: Tensor) -> LossParts:
        """Return the parts of an objective that has no Class Rectification Loss."""
        base = base_loss.detach()
        none = torch.zeros_like(base)
        return cls(loss, base, none, none, none.long(), comparisons)


class Objective(torch.nn.Module):
    """Train with alpha * CRL + (1 - alpha) * the weighted mean of a sample loss, per label (Eq. 8).

    The mean of a label is sum_i w_i l_i / sum_i w_i over the samples that have it, w_i the weight of sample i's class.

    Args:
        sample_loss: Gives one value per sample and label, such as ``CrossEntropy()`` or ``Focal()``.
        sizes: Number of classes of each label, or a LabelSpace.
        weights: One weight per class, ``(K,)``. None is the plain mean.
        weights_from: Share of training after which the weights apply (deferred re-weighting, Cao et al. 2019). Before,
            all weights are 1. Call ``set_progress``.
        rectification: Options of the Class Rectification Loss. None leaves it out.
        alpha: Weight of the rectification from 0 to 1, one number or one per label.
        falling: Decrease this weight over training to 0, as half a cosine wave (the loss schedule of Wang et al. 2019,
            Dynamic Curriculum Learning). Call ``set_progress``.
        rectify_from: Share of training after which the rectification starts. Before, its weight is 0.
        pooled: Take one mean over the comparisons of all labels, in place of one mean per label. This reads
            the paper's ``|T|`` in another way: labels with many comparisons count more. Needs the sum over labels.
        memory: Rectify together with this many recent samples (see ``ClassRectificationLoss``). The sample loss sees
            only the batch.
        memory_age: Ignore samples seen more than this many batches ago.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks.
        generator: Random generator of ``mining="random"``.

    >>> from rectifier.losses import Focal
    >>> objective = Objective(Focal(), [2], weights=torch.tensor([1.0, 9.0]), rectification=Design(), alpha=0.1)
    >>> objective(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]))
    tensor(0.2060)
    """

    weights: Tensor | None
    alpha: Tensor
    progress: Tensor

    def __init__(
        self,
        sample_loss: SampleLoss,
        sizes: Sizes,
        *,
        weights: Tensor | None = None,
        weights_from: float = 0.0,
        rectification: Design | None = None,
        alpha: float | Sequence[float] | Tensor | None = None,
        falling: bool = False,
        rectify_from: float = 0.0,
        pooled: bool = False,
        memory: int = 0,
        memory_age: int | None = None,
        label_reduction: str = "sum",
        gather: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        known, rectified, weighted = columns.as_sizes(sizes), rectification is not None, weights is not None
        only_rectified = {"falling": falling, "rectify_from": rectify_from, "pooled": pooled, "memory": memory}
        alone = [option for option, given in only_rectified.items() if given and not rectified]
        check.raise_all(
            [
                check.switch("falling", falling),
                check.switch("pooled", pooled),
                check.portion("weights_from", weights_from),
                check.portion("rectify_from", rectify_from),
                check.that("alpha", alpha, "given together with rectification", alpha is not None or not rectified),
                check.that("alpha", alpha, "None without rectification", alpha is None or rectified),
                check.that("weights", weights, "given together with weights_from", weighted or not weights_from),
                *(check.that("rectification", None, f"given together with {option}", False) for option in alone),
            ]
        )
        if weights is not None and (weights.shape != (sum(known),) or not bool((weights >= 0).all())):
            check.fail("weights", f"{sum(known)} numbers of at least 0, one for each class", f"{weights.tolist()}")
        self.sizes = columns.kept_sizes(sizes)
        self.sample_loss = sample_loss
        self.design = None if rectification is None else rectification.checked()
        self.label_reduction = check_reduction(label_reduction)
        self.gather, self.generator = gather, generator
        self.weights_from, self.rectify_from = weights_from, rectify_from
        self.falling, self.pooled = falling, pooled
        self.memory = make_memory(memory, self.sizes, memory_age)
        self.register_buffer("weights", weights)
        self.register_buffer("alpha", _alpha(0.0 if alpha is None else alpha, len(known)), persistent=alpha is not None)
        self.register_buffer("progress", torch.zeros(()), persistent=False)

    def set_progress(self, share: float) -> None:
        """Set the share of training that is done, from 0 to 1. It changes a tensor, which a captured step reads."""
        check.raise_all([check.portion("progress", share)])
        self.progress.fill_(share)

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        features: Tensor | None = None,
        *,
        partner: Partner | None = None,
        return_parts: bool = False,
    ) -> Tensor | LossParts:
        """Return the loss, or with ``return_parts`` a ``LossParts`` from the same pass.

        For mixed images, ``partner`` is (targets of the second images, share ``(N,)`` or ``(N, A)`` of the first). Both
        images count with their share. A label that one lacks belongs wholly to the other. The rectification uses the
        targets with the larger share.
        """
        with no_autocast(logits):
            level = self.design.level if self.design else "class"
            given = prepare(logits, targets, features, self.sizes, level, self.gather)
            sides = [Side(given.targets)]
            if partner is not None:
                sides = both_sides(given, logits, partner, self.sizes, self.gather)
            log_p = columns.log_softmax(given.logits, given.sizes)
            base = per_label = self._mean_loss(given, log_p, sides)
            mined, alpha = None, self._current_alpha()
            if self.design:
                scores = log_p if self.design.scores == "log-probability" else log_p.exp()
                rectified = (larger_side(sides), given.features, given.sizes, self.design)
                mined = rectify(scores, *rectified, self.generator, self.gather, self.memory)
                mined = _pooled(mined) if self.pooled else mined
                per_label = alpha * mined.loss + (1 - alpha) * base
        loss = reduce_labels(per_label, self.label_reduction)
        if not return_parts:
            return loss
        none = torch.zeros_like(base)
        logged = mined or Rectification(none, none.long(), none.long())
        parts = (base, logged.loss, alpha, logged.mined_classes, logged.comparisons)
        return LossParts(loss, *(part.detach() for part in parts))

    def _mean_loss(self, given: Inputs, log_p: Tensor, sides: list[Side]) -> Tensor:
        """Return ``(A,)``: the weighted mean over the samples that have the label, 0 where none has it."""
        weights, totals, counts = self.weights, [], []
        if weights is not None:
            weights = torch.where(self.progress >= self.weights_from, weights.to(given.logits.dtype), 1)
        for side in sides:  # one, or two for mixed images
            counted = _counted(side, given.sizes, weights, given.logits.dtype)
            if isinstance(self.sample_loss, ProbabilityLoss):
                losses = self.sample_loss.of(log_p, side.targets, given.sizes)
            else:
                losses = self.sample_loss(given.logits, side.targets, given.sizes)
            totals.append((counted * losses).sum(0))
            counts.append(counted.sum(0))
        total, count = (sum(parts[1:], parts[0]) for parts in (totals, counts))
        return total / count.where(count > 0, 1)

    def _current_alpha(self) -> Tensor:
        alpha = self.alpha * (torch.cos(math.pi * self.progress) + 1) / 2 if self.falling else self.alpha
        return torch.where(self.progress >= self.rectify_from, alpha, 0) if self.rectify_from else alpha

    def extra_repr(self) -> str:
        return self.design.described() if self.design else ""


def _pooled(mined: Rectification) -> Rectification:
    """Weight each label's mean by its share of all comparisons, so that the labels add up to the mean over all."""
    counts = mined.comparisons.to(mined.loss.dtype)
    return mined._replace(loss=mined.loss * counts / counts.sum().clamp(min=1))


def _counted(side: Side, sizes: tuple[int, ...], weights: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return ``(N, A)``: the weight of each sample under each label, 0 where the label is missing."""
    if weights is None:
        counted = (side.targets >= 0).to(dtype)
    else:
        own = columns.own_columns(side.targets, sizes)
        counted = weights[own.clamp(min=0)].masked_fill(own < 0, 0)
    return counted if side.share is None else counted * side.share


def _alpha(alpha: float | Sequence[float] | Tensor, labels: int) -> Tensor:
    try:
        given = torch.as_tensor(alpha, dtype=torch.float32).detach()
    except (TypeError, ValueError, RuntimeError):
        check.fail("alpha", "a number, or one for each label", repr(alpha))
    if given.dim() > 1 or (given.dim() == 1 and len(given) != labels):
        check.fail("alpha", f"one number, or one for each of the {labels} labels", f"shape {tuple(given.shape)}")
    if not bool(((given >= 0) & (given <= 1)).all()):
        check.fail("alpha", "from 0 to 1", given.tolist())
    return given.expand(labels).clone()
