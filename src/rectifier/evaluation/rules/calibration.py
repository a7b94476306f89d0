"""Calibrated probabilities: scale the logits by numbers that are fitted on validation, never on test.

A temperature changes no decision. Vector scaling may change some: it follows the class frequencies of validation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.rules.rule import Rule
from rectifier.labels import columns
from rectifier.labels.columns import Sizes

TEMPERATURES = (0.01, 100.0)
"""Bounds of the search: logits that are always right, or that say nothing, have no best temperature."""

_HALVINGS = 60  # of an interval of log temperatures: to the last digit of a float64
_LBFGS_STEPS = 500


class TemperatureScaling(Rule):
    """Divide the logits by one temperature per label, fitted on validation (Guo et al. 2017). No decision changes.

    ``temperatures`` ``(A,)`` are those of an earlier fit; otherwise the rule must be fitted. A label without samples
    keeps temperature 1. The likelihood is convex in 1 / T, so bisection finds the best T from 0.01 to 100.

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> TemperatureScaling().fit(logits, targets).probabilities(logits)[0]
    tensor([0.7500, 0.2500])
    """

    temperatures: Tensor

    def __init__(self, sizes: Sizes | None = None, temperatures: Sequence[float] | Tensor | None = None) -> None:
        super().__init__(sizes)
        given = torch.as_tensor([] if temperatures is None else temperatures, dtype=torch.float32)
        if temperatures is not None and (given.shape != self.label_sizes.shape or not bool((given > 0).all())):
            wanted = f"{len(self.sizes)} positive numbers, one for each of sizes {list(self.sizes)}"
            check.fail("temperatures", wanted, given.tolist())
        self.register_buffer("temperatures", given)

    @property
    def is_fitted(self) -> bool:
        return len(self.temperatures) > 0

    def fit_checked(self, logits: Tensor, targets: Tensor) -> None:
        wide = logits.double()
        coldest, hottest = (torch.full((len(self.sizes),), math.log(t), dtype=torch.float64) for t in TEMPERATURES)
        for _ in range(_HALVINGS):
            middle = (coldest + hottest) / 2
            too_hot = _slope(wide, targets, self.sizes, torch.exp(-middle)) < 0  # a larger 1 / T would be more likely
            coldest, hottest = torch.where(too_hot, coldest, middle), torch.where(too_hot, middle, hottest)
        found = torch.exp((coldest + hottest) / 2)
        self._keep(temperatures=torch.where((targets >= 0).any(0), found, 1.0).float())

    def adjust(self, logits: Tensor) -> Tensor:
        repeats = self.label_sizes.to(logits.device)
        return logits / self.temperatures.to(logits).repeat_interleave(repeats, output_size=logits.shape[1])


class VectorScaling(Rule):
    """Multiply the logits by one scale per class and add one offset, fitted on validation (Guo et al. 2017).

    The fit minimises the negative log-likelihood, summed over samples, plus penalty / 2 * the squared distance of
    scales from 1 and of offsets from 0. So few samples change little, and no label becomes less likely.

    >>> logits, targets = torch.tensor([[9.0, 0.0]] * 4), torch.tensor([0, 0, 0, 1])
    >>> VectorScaling(penalty=1e-6).fit(logits, targets).probabilities(logits)[0]
    tensor([0.7500, 0.2500])
    """

    scales: Tensor
    offsets: Tensor

    def __init__(self, sizes: Sizes | None = None, *, penalty: float = 1.0) -> None:
        check.raise_all([check.positive("penalty", penalty)])
        super().__init__(sizes)
        self.penalty = penalty
        self.register_buffer("scales", torch.zeros(0))
        self.register_buffer("offsets", torch.zeros(0))

    @property
    def is_fitted(self) -> bool:
        return len(self.scales) > 0

    def fit_checked(self, logits: Tensor, targets: Tensor) -> None:
        wide, sizes = logits.double(), self.sizes
        same = torch.stack([torch.ones_like(wide[0]), torch.zeros_like(wide[0])])
        change = torch.zeros_like(same, requires_grad=True)  # (2, K): of scales, of offsets
        optimizer = torch.optim.LBFGS(
            [change], max_iter=_LBFGS_STEPS, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )
        samples = (targets >= 0).sum(0).clamp(min=1)  # a label with many samples must not hide the others

        def cost() -> Tensor:
            optimizer.zero_grad()
            scales, offsets = same + change
            distance = columns.sum_by_label(change.square().sum(0), sizes)
            likelihood = _log_likelihood(scales * wide + offsets, targets, sizes)
            total = ((self.penalty / 2 * distance - likelihood) / samples).sum()
            total.backward()
            return total

        with torch.enable_grad():
            optimizer.step(cost)
        found = (same + change.detach()).float()
        after, before = (_log_likelihood(z, targets, sizes) for z in (found[0] * wide + found[1], wide))
        better = (after >= before)[columns.label_of_column(sizes, wide.device)]  # rounding may make one worse
        scales, offsets = torch.where(better, found, same.float())
        self._keep(scales=scales, offsets=offsets)

    def adjust(self, logits: Tensor) -> Tensor:
        return logits * self.scales.to(logits) + self.offsets.to(logits)


def _log_likelihood(logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(A,)``: the log-likelihood of each label, summed over the samples that have it."""
    return _own(columns.log_softmax(logits, sizes), targets, sizes).sum(0)


def _slope(logits: Tensor, targets: Tensor, sizes: tuple[int, ...], inverse: Tensor) -> Tensor:
    """Return ``(A,)``: the slope of the negative log-likelihood in 1 / T, at these ``(A,)``."""
    label = columns.label_of_column(sizes, logits.device)
    expected = columns.softmax(logits * inverse[label], sizes) * logits
    labelled = (targets >= 0)[:, label]
    return columns.sum_by_label((expected * labelled).sum(0), sizes) - _own(logits, targets, sizes).sum(0)


def _own(values: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the value of each sample's class, 0 where its label is missing."""
    own = columns.own_columns(targets, sizes)
    return values.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)
