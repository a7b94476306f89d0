"""Targets and slow references that the tests of several samplers share."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor

from helpers.cases import make_batch

SIZES = [3, 2, 9]
TARGETS = make_batch(SIZES, 90, seed=3, missing=0.3).targets


def shuffled_classes(counts: list[int]) -> Tensor:
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(0))
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))[order]


def slow_counts(targets: Tensor) -> list[Counter[int]]:
    return [Counter(c for c in column if c >= 0) for column in targets.T.tolist()]
