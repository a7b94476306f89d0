"""Calibrated probabilities: temperature and vector scaling of the logits, fitted on validation and never on test.

A temperature leaves every decision as it is; vector scaling may change some.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.columns import Sizes

TEMPERATURES = (0.01, 100.0)
"""Where the search for a temperature ends: logits that are always right, or that say nothing, have no best one."""

_HALVINGS = 60  # of an interval of log temperatures: to the last digit of a float64
_LBFGS_STEPS = 500


@dataclass(frozen=True)
class TemperatureScaling:
    """Logits over one temperature per label, fitted on validation (Guo et al. 2017): no decision changes.

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> TemperatureScaling.fit(logits, targets)(logits).softmax(1)[0]
    tensor([0.7500, 0.2500])
    """

    temperatures: Tensor  # (A,)
    sizes: tuple[int, ...]

    @classmethod
    def fit(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None = None) -> TemperatureScaling:
        """Minimise the negative log-likelihood of each label; a label that nobody has keeps temperature 1.

        It is convex in 1 / T, so halving the interval in which its slope changes sign finds the best, from 0.01 to 100.
        """
        given = _Labelled.of(logits, targets, sizes)
        coldest, hottest = (torch.full((len(given.sizes),), math.log(t), dtype=torch.float64) for t in TEMPERATURES)
        for _ in range(_HALVINGS):
            middle = (coldest + hottest) / 2
            too_hot = given.slope(torch.exp(-middle)) < 0  # a larger 1 / T would be more likely
            coldest, hottest = torch.where(too_hot, coldest, middle), torch.where(too_hot, middle, hottest)
        found = torch.exp((coldest + hottest) / 2)
        return cls(torch.where(given.samples > 0, found, 1.0).float(), given.sizes)

    def __call__(self, logits: Tensor) -> Tensor:
        """Return scaled logits."""
        check.logits_columns(logits, self.sizes)
        return logits / self.temperatures.to(logits)[columns.label_of_column(self.sizes, logits.device)]

    def as_dict(self) -> dict[str, Any]:
        return {"temperatures": self.temperatures.tolist(), "sizes": list(self.sizes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TemperatureScaling:
        return cls(torch.tensor(values["temperatures"]), columns.as_sizes(values["sizes"]))


@dataclass(frozen=True)
class VectorScaling:
    """Logits times one scale per class, plus one offset, fitted on validation (Guo et al. 2017).

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> VectorScaling.fit(logits, targets, penalty=1e-6)(logits).softmax(1)[0]
    tensor([0.7500, 0.2500])
    """

    scales: Tensor  # (K,)
    offsets: Tensor  # (K,)

    @classmethod
    def fit(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None = None, *, penalty: float = 1.0) -> VectorScaling:
        """Minimise the negative log-likelihood, summed over the samples, plus penalty / 2 * squared change.

        The change is that of scales from 1 and of offsets from 0, so that few samples change little; labels do not
        depend on each other. A label that would come out less likely than before, by rounding, is left as it is.
        """
        valid = check.is_real(penalty) and penalty > 0
        check.raise_all([check.that("penalty", penalty, "a positive number", valid)])
        given = _Labelled.of(logits, targets, sizes)
        same = torch.stack([torch.ones_like(given.logits[0]), torch.zeros_like(given.logits[0])])
        change = torch.zeros_like(same, requires_grad=True)  # (2, K): of scales, of offsets
        optimizer = torch.optim.LBFGS(
            [change], max_iter=_LBFGS_STEPS, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )
        samples = given.samples.clamp(min=1)  # over them, so that labels with many samples do not hide the others

        def cost() -> Tensor:
            optimizer.zero_grad()
            scale, offset = same + change
            far = columns.sum_by_label(change.square().sum(0), given.sizes)
            total = ((given.nll(scale * given.logits + offset) + penalty / 2 * far) / samples).sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(cost)
        found = (same + change.detach()).float()
        better = given.nll(found[0] * given.logits + found[1]) <= given.nll(given.logits)
        kept = torch.where(better[columns.label_of_column(given.sizes, better.device)], found, same.float())
        return cls(kept[0], kept[1])

    def __call__(self, logits: Tensor) -> Tensor:
        """Return scaled logits."""
        return logits * self.scales.to(logits) + self.offsets.to(logits)

    def as_dict(self) -> dict[str, Any]:
        return {"scales": self.scales.tolist(), "offsets": self.offsets.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> VectorScaling:
        return cls(torch.tensor(values["scales"]), torch.tensor(values["offsets"]))


class _Labelled(NamedTuple):
    """Validation logits in float64 and their targets, and the negative log-likelihood of each label."""

    logits: Tensor
    targets: Tensor
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, logits: Tensor, targets: Tensor, sizes: Sizes | None) -> _Labelled:
        known = columns.as_sizes(sizes, check.logits(logits).shape[1])
        canonical = columns.targets_beside(logits, targets, known, columns.label_names(sizes))
        return cls(logits.detach().cpu().double(), canonical.cpu(), known)

    @property
    def samples(self) -> Tensor:
        return (self.targets >= 0).sum(0)

    def nll(self, logits: Tensor) -> Tensor:
        """Return ``(A,)``: the sum over the samples that have the label."""
        return -self._own(columns.log_softmax(logits, self.sizes)).sum(0)

    def slope(self, inverse: Tensor) -> Tensor:
        """Return ``(A,)``: the slope of the negative log-likelihood in 1 / T, at these ``(A,)``."""
        label = columns.label_of_column(self.sizes, self.logits.device)
        expected = columns.softmax(self.logits * inverse[label], self.sizes) * self.logits
        there = (self.targets >= 0)[:, label]
        return columns.sum_by_label((expected * there).sum(0), self.sizes) - self._own(self.logits).sum(0)

    def _own(self, values: Tensor) -> Tensor:
        own = columns.own_columns(self.targets, self.sizes)
        return values.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)
