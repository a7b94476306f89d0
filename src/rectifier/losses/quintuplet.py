"""LMLE's triple-header hinge on quintuplets: clusters apart within a class, classes apart from each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import unit
from rectifier.losses.inputs import no_autocast

MARGINS = (0.1, 0.2, 0.3)
"""Ours, for the publication at hand gives none: squared distances of unit vectors lie in [0, 4], classes apart most."""


def quintuplet_loss(
    anchor: Tensor,
    near: Tensor,
    far_cluster_near: Tensor,
    far_cluster_far: Tensor,
    other: Tensor,
    *,
    valid: Tensor | None = None,
    margins: tuple[float, float, float] = MARGINS,
) -> Tensor:
    """Compute the triple-header hinge of R quintuplets, the mean over those that are valid (Huang et al. 2016).

    max(0, g1 + D(a, p+) - D(a, p-)) + max(0, g2 + D(a, p-) - D(a, p--)) + max(0, g3 + D(a, p--) - D(a, n)), D the
    squared Euclidean distance of the features, which are brought to unit length here.

    Args:
        anchor: The features of a, ``(R, D)``; the others are of the same shape.
        near: p+, the most distant sample of the anchor's own cluster.
        far_cluster_near: p-, the nearest sample of its class from another cluster.
        far_cluster_far: p--, the most distant sample of its class from another cluster.
        other: n, the nearest sample of another class.
        valid: Which rows count, boolean ``(R,)``; None is all. Without any the loss is 0, with a gradient path.
        margins: g1, g2 and g3.

    >>> east, north = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> quintuplet_loss(east, east, east, east, north)  # g1 and g2 missed, g3 kept
    tensor(0.3000)
    """
    five = (anchor, near, far_cluster_near, far_cluster_far, other)
    check.raise_all(_complaints(five, valid, margins))
    with no_autocast(anchor):
        hinges = triple_header(five, margins)
        counted = torch.ones_like(hinges, dtype=torch.bool) if valid is None else valid
        return hinges.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)


def triple_header(five: Sequence[Tensor], margins: tuple[float, float, float]) -> Tensor:
    """Return the sum of the three hinges of each quintuplet, ``(R,)``, from five tensors ``(R, D)``, unchecked."""
    a, *others = (unit(part) for part in five)
    to = [(a - part).square().sum(-1) for part in others]
    steps = zip(margins, to[:-1], to[1:], strict=True)
    return torch.stack([(margin + nearer - farther).clamp(min=0) for margin, nearer, farther in steps]).sum(0)


def margins_complaint(margins: tuple[float, float, float]) -> str | None:
    three = isinstance(margins, list | tuple) and len(margins) == 3
    ok = three and all(check.is_real(margin) and margin >= 0 for margin in margins)
    return check.that("margins", margins, "three numbers of at least 0", ok)


def _complaints(
    five: tuple[Tensor, ...], valid: Tensor | None, margins: tuple[float, float, float]
) -> list[str | None]:
    shapes = [tuple(part.shape) for part in five]
    rows = f"one boolean for each of the {len(five[0])} rows"
    mask_ok = valid is None or (valid.dtype == torch.bool and valid.shape == five[0].shape[:1])
    return [
        check.that("quintuplets", shapes, "five tensors of one shape (R, D)", len({*shapes}) == 1 and _is_2d(five)),
        check.that("valid", valid, rows, mask_ok),
        margins_complaint(margins),
    ]


def _is_2d(five: tuple[Tensor, ...]) -> bool:
    return all(part.dim() == 2 and part.is_floating_point() for part in five)
