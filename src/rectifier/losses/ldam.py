"""Label-distribution-aware margins (Cao et al. 2019): the rarer a class, the wider its margin."""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import softplus

from rectifier._base import check
from rectifier._base.distances import widest
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts
from rectifier.losses.sample import Conventions, CountedLoss, described, own_values


class LDAMLoss(CountedLoss):
    """Train with the cross-entropy of z - scale * margin of the own class, where the logits z are scale * cosines.

    The margin of class c is proportional to n_c^(-1/4), and the largest of each label is ``largest``. Margins are
    between cosines of features and class weights, so the network needs a cosine classifier, whose logits are 30 *
    cosines. For other logits a margin of 0.5 has no meaning. A class without samples has the margin of the rarest
    class with samples. ``largest=0`` is cross-entropy.

    ``CountedLoss`` explains ``class_counts``, ``SampleLoss`` the options that PyTorch's losses have.

    >>> loss = LDAMLoss([1600, 100])
    >>> loss.margins
    tensor([0.2500, 0.5000])
    >>> loss(torch.tensor([[15.0, 0.0], [0.0, 15.0]]), torch.tensor([0, 1]))  # 15 is the margin of the rare class
    tensor(0.3469)
    """

    former_state = ("margins",)

    def __init__(
        self,
        class_counts: Counts,
        largest: float = 0.5,
        scale: float = 30.0,
        *,
        sizes: Sizes | None = None,
        **conventions: Unpack[Conventions],
    ) -> None:
        check.raise_all([check.not_negative("largest", largest), check.positive("scale", scale)])
        super().__init__(class_counts, sizes, partial(margins_of_counts, largest=largest), **conventions)
        self.largest, self.scale = largest, scale

    @property
    def margins(self) -> Tensor:
        """The margin of each class, ``(K,)``, in cosines."""
        return self.per_class

    def own_losses(self, scores: Tensor, targets: Tensor, sizes: tuple[int, ...], own: Tensor | None = None) -> Tensor:
        column = columns.own_columns(targets, sizes)
        margin = self.scale * self.margins.to(scores.dtype)[column.clamp(min=0)].masked_fill(column < 0, 0)
        lowered = scores.scatter_add(
            1, column.clamp(min=0), -margin
        )  # a missing label subtracts 0 from the first column
        return -own_values(columns.log_softmax(lowered, sizes), targets, sizes)

    def class_losses(self, scores: Tensor, sizes: tuple[int, ...]) -> Tensor:
        # -log(e^(z - m) / (e^(z - m) + others)) = log(1 + e^m (1 - p) / p), with p the probability without margins.
        log_p = columns.log_softmax(scores, sizes).clamp(max=-torch.finfo(scores.dtype).eps)
        log_rest = (-log_p.expm1()).log()
        return softplus(self.scale * self.margins.to(scores.dtype) + log_rest - log_p)

    def extra_repr(self) -> str:
        return described(self, "largest", "scale")


def ldam_loss(
    logits: Tensor,
    targets: Any,
    class_counts: Counts,
    largest: float = 0.5,
    scale: float = 30.0,
    *,
    sizes: Sizes | None = None,
    **conventions: Unpack[Conventions],
) -> Tensor:
    """Compute the loss of a batch with label-distribution-aware margins; see ``LDAMLoss``.

    >>> ldam_loss(torch.zeros(2, 2), torch.tensor([0, 1]), [9, 1], largest=0.0)
    tensor(0.6931)
    """
    loss: Tensor = LDAMLoss(class_counts, largest, scale, sizes=sizes, **conventions)(logits, targets)
    return loss


def margins_of_counts(counts: Tensor, sizes: tuple[int, ...], largest: float) -> Tensor:
    """Return ``(K,)``: n^(-1/4), relative to the rarest class of the label that has samples, times ``largest``."""
    wide = counts.to(widest(counts.device))
    label = columns.label_of_column(sizes, counts.device)
    present = torch.where(wide > 0, wide, torch.inf)
    rarest = present.new_full((len(sizes),), torch.inf).scatter_reduce(0, label, present, "amin")
    rarest = torch.where(rarest.isinf(), 1, rarest)[label]  # no class of the label has samples
    return (largest * (rarest / torch.maximum(wide, rarest)).pow(0.25)).float()
