"""From what a loss is called with to one canonical form: checked, joined over ranks, in float32 or better."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.gather import global_batch


class Inputs(NamedTuple):
    """What a loss was called with, checked and in one form."""

    logits: Tensor
    targets: Tensor  # (N, A)
    features: Tensor | None
    sizes: tuple[int, ...]


def prepare(
    logits: Tensor, targets: Tensor, features: Tensor | None, sizes: Sizes | None, level: str, gather: bool
) -> Inputs:
    """Check the arguments of a loss, join the ranks' batches if asked, and leave half precision behind."""
    known = columns.as_sizes(sizes, check.logits(logits).shape[1])
    canonical = columns.targets_beside(logits, targets, known, columns.label_names(sizes))
    used = at_least_float32(check.features(features, logits, len(known))) if level == "instance" else None
    logits = at_least_float32(logits)
    if gather:
        logits, canonical, used = global_batch(logits, canonical, used)
    return Inputs(logits, canonical, used, known)


def no_autocast(tensor: Tensor) -> torch.autocast:
    """Keep autocast out of a loss: scores near 1 need float32's digits."""
    return torch.autocast(tensor.device.type if isinstance(tensor, Tensor) else "cpu", enabled=False)
