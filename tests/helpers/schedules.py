"""A training problem whose loss has a schedule, for the callbacks of all frameworks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from rectifier.losses import LossParts, RectifiedCrossEntropy

ALPHA = 0.8
TARGETS = torch.tensor([0] * 14 + [1] * 6)
IMAGES = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), device="cpu")
DATA = TensorDataset(IMAGES, TARGETS)
BATCH = 4  # five batches an epoch


class Recorder(RectifiedCrossEntropy):
    """A loss whose rectification falls over training. It notes its weight in each batch of training."""

    def __init__(self) -> None:
        super().__init__([14, 6], alpha=ALPHA, falling=True)
        self.alphas: list[float] = []

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:  # type: ignore[override]
        parts = super().forward(logits, targets, return_parts=True)
        assert isinstance(parts, LossParts)
        if self.training:
            self.alphas.append(parts.alpha.item())
        return parts.loss


def falling(shares: Iterable[float]) -> Any:
    """The weight of the rectification at these shares of training."""
    return pytest.approx([ALPHA * (math.cos(math.pi * share) + 1) / 2 for share in shares], abs=1e-6)
