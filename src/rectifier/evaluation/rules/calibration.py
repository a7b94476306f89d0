"""Calibrated probabilities: scale the logits by a temperature that is fitted on validation, never on test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes

TEMPERATURES = (0.01, 100.0)
"""Bounds of the search: logits that are always right, or that say nothing, have no best temperature."""

_HALVINGS = 60  # of an interval of log temperatures: to the last digit of a float64


@dataclass(frozen=True)
class TemperatureScaling:
    """Divide the logits by one temperature per label, fitted on validation (Guo et al. 2017). No decision changes.

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> TemperatureScaling.fit(logits, targets)(logits).softmax(1)[0]
    tensor([0.7500, 0.2500])
    """

    temperatures: Tensor  # (A,)
    sizes: tuple[int, ...]

    @classmethod
    def fit(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None = None) -> TemperatureScaling:
        """Minimise the negative log-likelihood of each label; a label without samples keeps temperature 1.

        The likelihood is convex in 1 / T, so bisection on the sign of its slope finds the best T from 0.01 to 100.
        """
        known = columns.as_sizes(sizes, check.logits(logits).shape[1])
        canonical = columns.targets_beside(logits, targets, known, columns.label_names(sizes)).cpu()
        wide = logits.detach().cpu().double()
        coldest, hottest = (torch.full((len(known),), math.log(t), dtype=torch.float64) for t in TEMPERATURES)
        for _ in range(_HALVINGS):
            middle = (coldest + hottest) / 2
            too_hot = _slope(wide, canonical, known, torch.exp(-middle)) < 0  # a larger 1 / T would be more likely
            coldest, hottest = torch.where(too_hot, coldest, middle), torch.where(too_hot, middle, hottest)
        found = torch.exp((coldest + hottest) / 2)
        return cls(torch.where((canonical >= 0).any(0), found, 1.0).float(), known)

    def __call__(self, logits: Tensor) -> Tensor:
        """Return scaled logits."""
        check.logits_columns(logits, self.sizes)
        return logits / self.temperatures.to(logits)[columns.label_of_column(self.sizes, logits.device)]

    def as_dict(self) -> dict[str, Any]:
        return {"temperatures": self.temperatures.tolist(), "sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TemperatureScaling:
        return cls(torch.tensor(values["temperatures"]), columns.as_sizes(values["sizes"]))


def _slope(logits: Tensor, targets: Tensor, sizes: tuple[int, ...], inverse: Tensor) -> Tensor:
    """Return ``(A,)``: the slope of the negative log-likelihood in 1 / T, at these ``(A,)``."""
    label, own = columns.label_of_column(sizes, logits.device), columns.own_columns(targets, sizes)
    expected = columns.softmax(logits * inverse[label], sizes) * logits
    labelled = (targets >= 0)[:, label]
    true = logits.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)
    return columns.sum_by_label((expected * labelled).sum(0), sizes) - true.sum(0)
