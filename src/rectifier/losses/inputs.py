"""The arguments of a loss in one form: checked, joined over ranks, in float32 or better."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.gather import global_batch


class Inputs(NamedTuple):
    """The checked arguments of a loss."""

    logits: Tensor  # (N, K)
    targets: Tensor  # (N, A)
    features: Tensor | None  # (N, D) or (N, A, D), for a loss that compares features
    sizes: tuple[int, ...]

    @property
    def compared(self) -> Tensor:
        """The features of a loss that compares them."""
        return check.features(self.features, self.logits, len(self.sizes))

    @staticmethod
    def of_features(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Check the arguments of a function of features alone. Targets come back as ``(N, A)``."""
        labels = targets.shape[1] if isinstance(targets, Tensor) and targets.dim() == 2 else 1
        canonical = check.targets(targets, labels)
        known = check.features(features, features, labels)
        check.same_length("features", known, "targets", canonical)
        return at_least_float32(known), canonical


def prepare(
    logits: Tensor, targets: Tensor, features: Tensor | None, sizes: Sizes | None, level: str, gather: bool
) -> Inputs:
    """Check the arguments of a loss, join the ranks' batches for ``gather``, and convert half precision to float32.

    Features count only at ``level="instance"``.
    """
    known = columns.as_sizes(sizes, check.logits(logits).shape[1])
    canonical = columns.targets_beside(logits, targets, known, columns.label_names(sizes))
    used = at_least_float32(check.features(features, logits, len(known))) if level == "instance" else None
    logits = at_least_float32(logits)
    if gather:
        logits, canonical, used = global_batch(logits, canonical, used)
    return Inputs(logits, canonical, used, known)


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Disable autocast in a loss: scores near 1 need the precision of float32."""
    device = tensor.device.type if isinstance(tensor, Tensor) else "cpu"
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()
