"""Output: what every network returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Output(NamedTuple):
    """The logits of every class of every label, and the features they were computed from."""

    logits: Tensor  # (N, K)
    features: Tensor  # (N, A, D) where each label has its own branch, (N, D) where the labels share one
