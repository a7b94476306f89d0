"""Mixed images (mixup, CutMix): each has the labels of two images, in shares that add up to 1."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.losses.gather import global_batch
from rectifier.losses.inputs import Inputs

Partner = tuple[Tensor, Tensor]
"""Targets of the second image, and the share ``(N,)`` or ``(N, A)`` of the first, from 0 to 1."""


class Side(NamedTuple):
    """The labels of one image of each pair, and their share."""

    targets: Tensor  # (N, A)
    share: Tensor | None = None  # (N, A); None is 1


def both_sides(given: Inputs, logits: Tensor, partner: Partner, sizes: columns.Sizes, gather: bool) -> list[Side]:
    """Check the partner of a batch, join the ranks for ``gather``, and return both sides.

    A label that one image lacks belongs wholly to the other image. ``logits`` are those of the local batch.
    """
    if not isinstance(partner, tuple) or len(partner) != 2:
        raise TypeError(check.sentence("partner", "a pair (targets, share)", type(partner).__name__))
    targets = columns.targets_beside(logits, partner[0], given.sizes, columns.label_names(sizes))
    share = _checked_share(partner[1], logits, len(given.sizes)).to(given.logits.dtype)
    if gather:
        share, targets, _ = global_batch(share, targets, None)
    first, second = given.targets >= 0, targets >= 0
    share = torch.where(first & second, share, first.to(share.dtype))
    return [Side(given.targets, share), Side(targets, 1 - share)]


def larger_side(sides: list[Side]) -> Tensor:
    """Return the targets ``(N, A)`` with the larger share; the first image's where both have half."""
    first, second = sides[0], sides[-1]
    return first.targets if first.share is None else torch.where(first.share >= 0.5, first.targets, second.targets)


def _checked_share(share: Tensor, logits: Tensor, labels: int) -> Tensor:
    if not isinstance(share, Tensor) or not share.is_floating_point():
        raise TypeError(check.sentence("the partner's share", "a floating point tensor", type(share).__name__))
    if share.shape not in ((len(logits),), (len(logits), labels)):
        wanted = f"of shape ({len(logits)},) or ({len(logits)}, {labels})"
        check.fail("the partner's share", wanted, f"shape {tuple(share.shape)}")
    check.same_device("the partner's share", share, "logits", logits)
    check.within("the partner's share", share, 0.0, 1.0)
    return (share[:, None] if share.dim() == 1 else share).expand(-1, labels)
