"""The arguments of a loss in one form: checked, joined over ranks, in float32 or better."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import at_least_float32
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.losses.gather import global_batch

IGNORED = -100
"""The target that PyTorch's losses ignore. Ours ignore every negative one."""


class Inputs(NamedTuple):
    """The checked arguments of a loss."""

    logits: Tensor  # (N, K)
    targets: Tensor  # (N, A); of soft targets the class with the largest share
    features: Tensor | None  # (N, D) or (N, A, D), for a loss that compares features
    sizes: tuple[int, ...]
    soft: Tensor | None = None  # (N, K) probabilities, where the targets are soft


def prepare(
    logits: Tensor,
    targets: Any,
    features: Tensor | None,
    sizes: Sizes | None,
    level: str = "class",
    gather: bool = False,
    ignore_index: int = IGNORED,
) -> Inputs:
    """Check the arguments of a loss, join the ranks' batches for ``gather``, and convert half precision to float32.

    Features count only at ``level="instance"``.
    """
    known = columns.as_sizes(sizes, check.logits(logits).shape[1])
    if not isinstance(targets, Tensor):  # a list or an array has no device of its own
        targets = check.as_tensor("targets", targets).to(logits.device)
    soft = _soft(targets, logits, known)
    if soft is None:
        given = _without(targets, ignore_index)
        canonical = columns.targets_beside(logits, given, known, columns.label_names(sizes))
    else:
        canonical = largest_share(soft, known)
    used = at_least_float32(check.features(features, logits, len(known))) if level == "instance" else None
    logits = at_least_float32(logits)
    if gather:
        if soft is not None:
            soft, _, _ = global_batch(soft, canonical, None)
        logits, canonical, used = global_batch(logits, canonical, used)
    return Inputs(logits, canonical, used, known, soft)


def prepare_features(
    logits: Tensor, targets: Any, features: Tensor | None, sizes: Sizes | None, gather: bool, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the features that a loss compares, and targets ``(N, A)``. Without features, the logits are compared."""
    if features is not None:
        given = prepare(logits, targets, features, sizes, "instance", gather, ignore_index)
        return check.features(given.features, given.logits, len(given.sizes)), given.targets
    if isinstance(targets, Tensor) and targets.is_floating_point() and targets.dim() == 2:
        targets = largest_share(targets, columns.as_sizes(sizes, targets.shape[1]))
    compared, own = of_features(logits, targets, ignore_index)
    if sizes is not None:
        own = columns.as_targets(own, columns.as_sizes(sizes), columns.label_names(sizes))
    if gather:
        compared, own, _ = global_batch(compared, own, None)
    return compared, own


def of_features(features: Tensor, targets: Any, ignore_index: int = IGNORED) -> tuple[Tensor, Tensor]:
    """Check the arguments of a function of features alone. Targets come back as ``(N, A)``."""
    given = check.as_tensor("targets", targets)
    labels = given.shape[1] if given.dim() == 2 else 1
    canonical = _without(check.targets(given, labels), ignore_index)
    known = check.features(features, features, labels)
    check.same_length("features", known, "targets", canonical)
    return at_least_float32(known), canonical


def largest_share(soft: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the class with the largest share of each label, -1 where all its columns are 0."""
    best = columns.argmax(soft, sizes)
    share = soft.gather(1, best + columns.offsets(sizes, soft.device))
    return torch.where(share > 0, best, -1)


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Disable autocast in a loss: scores near 1 need the precision of float32."""
    device = tensor.device.type if isinstance(tensor, Tensor) else "cpu"
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _soft(targets: Tensor, logits: Tensor, sizes: tuple[int, ...]) -> Tensor | None:
    """Return targets that are probabilities ``(N, K)``, in the type of the logits; None for class indices."""
    if not targets.is_floating_point() or targets.shape != logits.shape:
        return None
    check.logits_columns(logits, sizes)
    check.same_device("targets", targets, "logits", logits)
    check.within("soft targets", targets, 0.0, 1.0)
    return targets.to(at_least_float32(logits).dtype)


def _without(targets: Tensor, ignore_index: int) -> Tensor:
    """Mark the ignored targets as missing. Negative ones already are."""
    if ignore_index < 0 or targets.is_floating_point():
        return targets
    return targets.long().masked_fill(targets == ignore_index, -1)
