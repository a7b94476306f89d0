"""Recall of each class from counts, and its class-balanced mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.evaluation.arrays import as_tensor
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import column_counts


def class_balanced_accuracy(preds: Any, target: Any, sizes: Sizes | None = None) -> Tensor:
    """Return the mean over labels of the mean recall of their classes, the paper's metric.

    ``preds`` are logits ``(N, K)``, or integers: class indices ``(N,)`` for one label, ``(N, A)`` for several. Both
    arguments may be tensors, arrays or lists. Classes without a sample and missing labels (negative targets) do not
    count. NaN if there is no sample at all.

    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> class_balanced_accuracy(logits, torch.tensor([0, 0, 1, 1]))
    tensor(0.7500)
    >>> class_balanced_accuracy([0, 0, 0, 1], [0, 0, 1, 1])
    tensor(0.7500)
    """
    given = as_tensor("preds", preds)
    wanted = as_tensor("target", target, given.device)
    if sizes is None:
        sizes = _classes_of(given, wanted)
    resolved = columns.as_sizes(sizes)
    correct, total = count_correct(given, wanted, resolved, columns.label_names(sizes))
    return balanced_mean(correct, total, resolved)


def _classes_of(preds: Tensor, target: Tensor) -> tuple[int]:
    """Return the number of classes of one label: the columns of logits, or one more than the largest index."""
    if preds.is_floating_point():
        return (check.logits(preds).shape[1],)
    found = torch.cat([preds.flatten(), target.flatten()])
    return (max(int(found.max()) + 1, 1) if len(found) else 1,)


def count_correct(
    preds: Tensor, target: Tensor, sizes: tuple[int, ...], names: tuple[str, ...] | None = None
) -> tuple[Tensor, Tensor]:
    """Count the correct samples and all samples of each class, both int64 ``(K,)``.

    ``preds`` are logits or class indices, as in ``class_balanced_accuracy``.
    """
    if preds.is_floating_point():
        canonical = columns.targets_beside(check.logits(preds), target, sizes, names)
        decided = columns.argmax(preds, sizes)
    else:
        decided = _indices(preds, sizes)
        canonical = columns.as_targets(target, sizes, names)
        check.same_length("target", canonical, "preds", decided)
        check.same_device("target", canonical, "preds", decided)
    own = columns.own_columns(canonical, sizes)
    hit = decided == canonical
    return column_counts(torch.where(hit, own, -1), sum(sizes)).long(), column_counts(own, sum(sizes)).long()


def _indices(preds: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Check class indices and return them as ``(N, A)``. A negative one is a wrong answer, whatever the target."""
    found = (preds[:, None] if preds.dim() == 1 and len(sizes) == 1 else preds).long()
    if found.dim() != 2 or found.shape[1] != len(sizes):
        wanted = "of shape (N,)" if len(sizes) == 1 else f"of shape (N, {len(sizes)}), one column per label"
        check.fail("class indices as preds", wanted, f"shape {tuple(preds.shape)}")
    if found.device.type == "cpu" and bool((outside := found >= columns.label_sizes(sizes, found.device)).any()):
        row, label = outside.nonzero()[0].tolist()
        check.fail("preds", f"below {sizes[label]}, the number of classes", f"{int(found[row, label])} in row {row}")
    return found


def balanced_mean(correct: Tensor, total: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Average recall over the present classes of each label, then over the labels that have any."""
    present = total > 0
    shares = torch.where(present, correct / total, 0)
    classes = columns.sum_by_label(present.to(shares.dtype), sizes)
    means = columns.sum_by_label(shares, sizes) / classes.clamp(min=1)
    return means.sum() / (classes > 0).sum()
