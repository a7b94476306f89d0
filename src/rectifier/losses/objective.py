"""Objective: a sample loss, class weights and the Class Rectification Loss, each chosen on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.crl.choosing import Chosen, Rectification
from rectifier.losses.crl.design import Design
from rectifier.losses.crl.loss import plan
from rectifier.losses.crl.memory import make_memory
from rectifier.losses.crl.watch import MiningWatch
from rectifier.losses.inputs import Inputs, no_autocast, prepare
from rectifier.losses.mixed_labels import Partner, Side, both_sides, larger_side
from rectifier.losses.module import ScheduledModule, in_training
from rectifier.losses.sample import SampleLoss, check_reduction, class_weight, described, mean_or_sum, reduce_labels


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


class Objective(ScheduledModule):
    """Train with alpha * CRL + (1 - alpha) * the weighted mean of a sample loss, per label (Eq. 8).

    The mean of a label is sum_i w_i l_i / sum_i w_i over the samples that have it, w_i the weight of sample i's class.
    Targets are those of the sample loss. Of soft targets, the rectification uses the class with the largest share.

    Args:
        sample_loss: Gives one value per sample and label, such as ``CrossEntropyLoss()`` or ``FocalLoss()``. Its
            ``weight``, ``ignore_index`` and ``label_smoothing`` apply; its reductions do not.
        sizes: Number of classes of each label: a list, one number, or a LabelSpace.
        weights: One weight per class, ``(K,)``, in place of the sample loss's own. None is the plain mean.
        weights_from: Share of training after which the weights apply (deferred re-weighting, Cao et al. 2019). Before,
            all weights are 1. Call ``set_progress``.
        rectification: Options of the Class Rectification Loss. None leaves it out.
        alpha: Weight of the rectification from 0 to 1, one number or one per label.
        falling: Decrease this weight over training to 0, as half a cosine wave (the loss schedule of Wang et al. 2019,
            Dynamic Curriculum Learning). Call ``set_progress``.
        rectify_from: Share of training after which the rectification starts. Before, its weight is 0. Call
            ``set_progress``.
        pooled: Take one mean over the comparisons of all labels, in place of one mean per label. This reads
            the paper's ``|T|`` in another way: labels with many comparisons count more. Needs the sum over labels.
        full_if_unmined: Give the sample loss its whole weight in a batch where a label has nothing to mine. The paper's
            formula leaves it 1 - alpha there, which weakens training with small batches.
        memory: Rectify together with this many recent samples (see ``ClassRectificationLoss``). The sample loss sees
            only the batch.
        memory_age: Ignore samples seen more than this many batches ago.
        label_reduction: ``"sum"`` over labels (the paper's), ``"mean"``, or ``"none"`` for ``(A,)``.
        reduction: ``"mean"`` over the samples; ``"sum"`` is that times their weight, for gradient accumulation. A
            rectification is a mean over comparisons, so there is no value per sample.
        gather: Under ``torch.distributed``, compute on the joined batch of all ranks. Only in training mode and with
            gradients: then all ranks must call it.
        generator: Random generator of ``mining="random"``.

    >>> from rectifier.losses import FocalLoss
    >>> objective = Objective(FocalLoss(), [2], weights=torch.tensor([1.0, 9.0]), rectification=Design(), alpha=0.1)
    >>> objective(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]))
    tensor(0.2060)
    """

    weights: Tensor | None
    alpha: Tensor

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
        full_if_unmined: bool = False,
        memory: int = 0,
        memory_age: int | None = None,
        label_reduction: str = "sum",
        reduction: str = "mean",
        gather: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(sample_loss, SampleLoss):
            wanted = "a loss of rectifier.losses, such as CrossEntropyLoss()"
            raise TypeError(check.sentence("sample_loss", wanted, type(sample_loss).__name__))
        known, rectified = columns.as_sizes(sizes), rectification is not None
        weights = sample_loss.weight if weights is None else weights
        only_rectified = {
            "falling": falling,
            "rectify_from": rectify_from,
            "pooled": pooled,
            "full_if_unmined": full_if_unmined,
            "memory": memory,
        }
        alone = [option for option, given in only_rectified.items() if given and not rectified]
        check.raise_all(
            [
                check.switch("falling", falling),
                check.switch("pooled", pooled),
                check.switch("full_if_unmined", full_if_unmined),
                check.portion("weights_from", weights_from),
                check.portion("rectify_from", rectify_from),
                mean_or_sum("reduction", reduction),
                check.that("alpha", alpha, "given together with rectification", alpha is not None or not rectified),
                check.that("alpha", alpha, "None without rectification", alpha is None or rectified),
                check.that(
                    "weights", weights, "given together with weights_from", weights is not None or not weights_from
                ),
                *(check.that("rectification", None, f"given together with {option}", False) for option in alone),
            ]
        )
        if sample_loss.sizes is not None and columns.as_sizes(sample_loss.sizes) != known:
            check.fail("sizes", f"those of the sample loss, {columns.as_sizes(sample_loss.sizes)}", known)
        self.sizes = columns.kept_sizes(sizes)
        self.sample_loss = sample_loss
        self.design = None if rectification is None else rectification.checked()
        self.label_reduction, self.reduction = check_reduction(label_reduction), reduction
        self.gather, self.generator = gather, generator
        self.weights_from, self.rectify_from = weights_from, rectify_from
        self.falling, self.pooled, self.full_if_unmined = falling, pooled, full_if_unmined
        self.memory = make_memory(memory, self.sizes, memory_age)
        self.configure("weights", class_weight(weights, self.sizes))
        self.configure("alpha", alpha_of_labels(0.0 if alpha is None else alpha, len(known)))
        self._watch = MiningWatch()

    @property
    def adjusts_prior(self) -> bool:
        """Whether the loss already corrects for class frequencies, so that a prior rule would correct twice."""
        return self.weights is not None or self.sample_loss.adjusts_prior

    def forward(
        self,
        logits: Tensor,
        targets: Any,
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
        self.warn_if_untold(*self._schedules())
        gather = self.gather and in_training(self)
        with no_autocast(logits):
            level = self.design.level if self.design else "class"
            ignored = self.sample_loss.ignore_index
            given = prepare(logits, targets, features, self.sizes, level, gather, ignored)
            sides = [Side(given.targets)]
            if partner is not None:
                if given.soft is not None:
                    check.fail("targets", "class indices together with partner", "probabilities")
                sides = both_sides(given, logits, partner, self.sizes, gather)
            self.count(given.targets)
            log_p = columns.log_softmax(given.logits, given.sizes)
            chosen = None
            if self.design:
                how = (given.sizes, self.design, self.generator, gather, self.memory)
                chosen = plan(log_p, larger_side(sides), given.features, *how)
            own, compared = self._read(log_p, given, sides, chosen)
            base, weight = self._mean_loss(given, log_p, sides, own)
            per_label, mined, alpha = base, None, self._current_alpha()
            if chosen is not None and compared is not None:
                mined = chosen.compare(compared)
                if in_training(self) and self.memory is None and not self.full_if_unmined:
                    self._watch(mined.comparisons, alpha)
                if self.full_if_unmined:
                    alpha = torch.where(mined.comparisons > 0, alpha, 0)
                mined = _pooled(mined) if self.pooled else mined
                per_label = alpha * mined.loss + (1 - alpha) * base
        per_label = per_label * weight if self.reduction == "sum" else per_label
        loss = reduce_labels(per_label, self.label_reduction)
        if not return_parts:
            return loss
        none = torch.zeros_like(base)
        logged = mined or Rectification(none, none.long(), none.long())
        parts = (base, logged.loss, alpha, logged.mined_classes, logged.comparisons)
        return LossParts(loss, *(part.detach() for part in parts))

    def count(self, targets: Tensor) -> None:
        """Note the targets ``(N, A)`` of a batch, for losses that count classes."""
        self.sample_loss.count(targets)

    def _read(
        self, log_p: Tensor, given: Inputs, sides: list[Side], chosen: Chosen | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the log-probabilities of the own classes ``(N, A)``, and those that the rectification compares.

        They are read at once, because the gradient of each reading is as large as all logits. What is None, a loss
        reads itself.
        """
        if chosen is None:
            return None, None
        if given.soft is not None or len(sides) > 1 or not self.sample_loss.of_probabilities:
            return None, columns.take(log_p, [chosen.places])[0]
        places = [columns.own_places(given.targets, given.sizes), chosen.places]
        own, compared = columns.take(log_p, places)
        return own.masked_fill(given.targets < 0, 0), compared

    def _mean_loss(self, given: Inputs, log_p: Tensor, sides: list[Side], own: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return ``(A,)``: the weighted mean over the samples that have the label, 0 where none has it; and the weight
        of these samples.
        """
        weights = self.weights
        if weights is not None:
            weights = torch.where(self.progress >= self.weights_from, weights.to(given.logits.dtype), 1)
        scores, totals, counts = log_p if self.sample_loss.of_probabilities else given.logits, [], []
        for side in sides:  # one, or two for mixed images
            found = self.sample_loss.weighted(scores, given._replace(targets=side.targets), weights, own)
            share = scores.new_ones(()) if side.share is None else side.share
            totals.append((share * found.losses).sum(0))
            counts.append((share * found.weight).sum(0))
        total, count = (sum(parts[1:], parts[0]) for parts in (totals, counts))
        return total / count.where(count > 0, 1), count

    def _current_alpha(self) -> Tensor:
        alpha = self.full_alpha()
        alpha = alpha * (torch.cos(math.pi * self.progress) + 1) / 2 if self.falling else alpha
        return torch.where(self.progress >= self.rectify_from, alpha, 0) if self.rectify_from else alpha

    def full_alpha(self) -> Tensor:
        """Return the weight ``(A,)`` of the rectification without any schedule."""
        return self.alpha

    def _schedules(self) -> list[str]:
        return [name for name in ("falling", "rectify_from", "weights_from") if getattr(self, name)]

    def extra_repr(self) -> str:
        own = (
            [f"alpha={[round(a, 4) for a in self.full_alpha().tolist()]}", self.design.described()]
            if self.design
            else []
        )
        plain = {"weights_from": 0.0, "rectify_from": 0.0, "falling": False, "pooled": False, "full_if_unmined": False}
        own += [f"{name}={getattr(self, name)!r}" for name, default in plain.items() if getattr(self, name) != default]
        return ", ".join([*own, *filter(None, [described(self)])])


def _pooled(mined: Rectification) -> Rectification:
    """Weight each label's mean by its share of all comparisons, so that the labels add up to the mean over all."""
    counts = mined.comparisons.to(mined.loss.dtype)
    return mined._replace(loss=mined.loss * counts / counts.sum().clamp(min=1))


def alpha_of_labels(alpha: float | Sequence[float] | Tensor, labels: int) -> Tensor:
    try:
        given = torch.as_tensor(alpha, dtype=torch.float32).detach()
    except (TypeError, ValueError, RuntimeError):
        check.fail("alpha", "a number, or one for each label", repr(alpha))
    if given.dim() > 1 or (given.dim() == 1 and len(given) != labels):
        check.fail("alpha", f"one number, or one for each of the {labels} labels", f"shape {tuple(given.shape)}")
    if not bool(((given >= 0) & (given <= 1)).all()):
        check.fail("alpha", "from 0 to 1", given.tolist())
    return given.expand(labels).clone()
