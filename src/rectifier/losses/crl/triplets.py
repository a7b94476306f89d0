"""All triplets of a batch, counted instead of listed: a function that is linear in few scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Term(NamedTuple):
    """The sum of coefficient * score in each of R rows."""

    place: Tensor  # (R, W) entries of the scores, as in ``columns.take``
    coefficient: Tensor  # (R, W) active triplets in which the score enters, with its sign
    label: Tensor | None = None  # (R,) of each row; None is one row per label, or one label


class Triplets(NamedTuple):
    """Class-level triplets with hard mining (Eqs. 9 and 10), of each of A labels.

    Their sum is piecewise linear in the scores: margin * active + all terms. What is counted has no gradient.
    """

    terms: tuple[Term, ...]
    active: Tensor  # (A,) triplets that are not 0
    number: Tensor  # (A,) all triplets

    def loss(self, scores: Tensor, margin: float) -> Tensor:
        """Return ``(A,)``: the mean over the triplets of each label, 0 where it has none; scores ``(E,)``."""
        coefficient = _joined([term.coefficient for term in self.terms])
        if self.number.shape[0] == 1:
            total = torch.addmv(self.active, coefficient[None], scores, beta=margin)
        else:
            total = margin * self.active
            parts = (coefficient * scores).split([term.place.numel() for term in self.terms])
            for term, part in zip(self.terms, parts, strict=True):
                by_row = part.view(term.place.shape).sum(1)
                total = total + by_row if term.label is None else total.index_add(0, term.label, by_row)
        return total / self.number.clamp(min=1)


class Reading(NamedTuple):
    """The scores that triplets need, and the triplets as a function of them."""

    places: Tensor  # (E,) as in ``columns.take``
    triplets: Callable[[Tensor], Triplets]  # of the scores ``(E,)``, without a gradient
    mined_classes: Callable[[], Tensor]  # (A,); a function, because most callers do not ask

    @staticmethod
    def of(triplets: Triplets, mined_classes: Callable[[], Tensor]) -> Reading:
        """Return the reading of triplets that are counted already."""
        return Reading(_joined([term.place for term in triplets.terms]), lambda _: triplets, mined_classes)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0].reshape(-1) if len(parts) == 1 else torch.cat([part.reshape(-1) for part in parts])
