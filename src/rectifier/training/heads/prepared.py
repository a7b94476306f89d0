"""Prepared: a table of training features, standardised once, and how heads return to raw features."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from rectifier.training.heads.noise import residuals
from rectifier.training.heads.spec import FeatureTable, HeadSpec

_FLAT = 1e-6  # a deviation below this share of the mean is rounding error


class Prepared:
    """Standardised training features: row ``v * N + i`` is view v of sample i."""

    def __init__(self, table: FeatureTable) -> None:
        self.table = table
        rows = table.x.reshape(-1, table.width)
        variance, self.mean = torch.var_mean(rows, 0, correction=0)
        deviation = variance.sqrt()
        self.deviation = deviation.where(deviation > _FLAT * self.mean.abs(), 1)
        self.rows = self.standardised(rows)
        self.counts = table.counts()

    def standardised(self, x: Tensor) -> Tensor:
        return (x - self.mean).div_(self.deviation)  # a second copy of a large table would cost more than the division

    @property
    def first_view(self) -> Tensor:
        return self.rows[: len(self.table)]

    @cached_property
    def residuals(self) -> Tensor:
        """What noise is drawn from, ``(V * N, D)``."""
        return residuals(self.rows, self.table.targets.repeat(self.table.views, 1), self.table.space.sizes)

    def folded(self, spec: HeadSpec, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a head for raw features, from those for standardised features.

        The first layer takes the scaling over. A cosine classifier without a layer before it keeps it apart.
        """
        layer = "hidden" if spec.hidden else "entry" if spec.branch else "classifier"
        if f"{layer}.bias" not in weights:
            return {**weights, "scaling.mean": self.mean, "scaling.deviation": self.deviation}
        weight, bias = (weights[f"{layer}.{part}"] for part in ("weight", "bias"))
        scaled = weight.double() / self.deviation.double()
        moved = bias.double() - scaled @ self.mean.double()
        return {**weights, f"{layer}.weight": scaled.to(weight.dtype), f"{layer}.bias": moved.to(bias.dtype)}
