"""Scores of samples on classes, of which a loss reads few."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scores(NamedTuple):
    """The score of each sample on each class: ``values``, or their exponentials, computed only where they are read."""

    values: Tensor  # (N, K)
    exponential: bool = False  # values are log-probabilities, and the scores probabilities
    negative: bool = False  # no score is above 0: they are log-probabilities; otherwise none is below

    def by_class(self, column: Tensor) -> Tensor:
        """Return ``(M, N)``: the scores of all samples on some classes, without a gradient."""
        found = self.values.detach().t().index_select(0, column)
        return found.exp_() if self.exponential else found

    def at(self, place: Tensor) -> Tensor:
        """Return the scores at places of any shape (see ``columns.take``), without a gradient."""
        return self.of(self.values.detach().reshape(-1).index_select(0, place.reshape(-1)).view(place.shape))

    def of(self, values: Tensor) -> Tensor:
        return values.exp() if self.exponential else values
