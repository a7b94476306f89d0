"""Metrics of scores rather than of decisions: average precision, top-k recall, calibration."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier.labels import columns
from rectifier.labels.counts import column_counts


def average_precision(scores: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the average precision of each class against the others of its label: float64 ``(K,)``.

    AP = sum over the different scores of (recall gained there) * (precision there), so ties count as one step. Samples
    without the label do not count. NaN for a class without a sample.

    >>> average_precision(torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), torch.tensor([[0], [1], [1]]), (2,))
    tensor([1., 1.], dtype=torch.float64)
    """
    label = columns.label_of_column(sizes, scores.device)
    own = columns.own_columns(targets, sizes)[:, label]
    labelled = own >= 0
    positive = labelled & (own == torch.arange(sum(sizes), device=scores.device))
    # Samples without the label move to the end, where they add neither recall nor steps.
    keys = torch.where(labelled, scores.double(), -torch.inf)
    order = keys.argsort(dim=0, descending=True, stable=True)
    keys, hits = keys.gather(0, order), positive.gather(0, order).double().cumsum(0)
    rank = torch.arange(1, len(scores) + 1, device=scores.device, dtype=torch.float64)[:, None]
    last_of_ties = torch.ones_like(positive)
    last_of_ties[:-1] = keys[1:] < keys[:-1]
    last_of_ties &= keys > -torch.inf
    steps = torch.where(last_of_ties, hits, 0).cummax(0).values
    gained = torch.where(last_of_ties, hits - torch.cat([torch.zeros_like(steps[:1]), steps[:-1]]), 0)
    return (gained * hits / rank).sum(0) / positive.sum(0)


def top_k_sensitivity(logits: Tensor, targets: Tensor, sizes: tuple[int, ...], k: int = 5) -> Tensor:
    """Return the share of each class's samples whose class is among the k best of its label: float64 ``(K,)``.

    A class that ties with the k-th best is missed if k others are at least as good. NaN without a sample.

    >>> top_k_sensitivity(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[1]]), (3,), k=2)
    tensor([nan, 1., nan], dtype=torch.float64)
    """
    own = columns.own_columns(targets, sizes)
    label = columns.label_of_column(sizes, logits.device)
    mine = logits.gather(1, own.clamp(min=0))
    better = (logits >= mine[:, label]).to(logits.dtype)
    at_least_as_good = torch.zeros_like(mine).index_add(1, label, better)  # itself among them
    hit = (at_least_as_good <= k) & (own >= 0)
    total = sum(sizes)
    return column_counts(torch.where(hit, own, -1), total).double() / column_counts(own, total).double()


def group_top_k(logits: Tensor, targets: Tensor, groups: Tensor, k: int = 5) -> Tensor:
    """Return DeepFashion's recall of binary labels: float64 ``(A,)``, NaN for a label without a positive sample.

    A positive sample of a label is a hit if the label's score is among the k best of its group. ``logits`` is
    ``(N, 2 A)`` for A labels of two classes, ``groups`` ``(A,)`` numbers the groups from 0.

    >>> logits = torch.tensor([[0.0, 3.0, 0.0, 2.0, 0.0, 1.0]])
    >>> group_top_k(logits, torch.tensor([[0, 1, 1]]), torch.tensor([0, 0, 0]), k=2)
    tensor([nan, 1., 0.], dtype=torch.float64)
    """
    score = logits[:, 1::2] - logits[:, 0::2]
    positive = targets == 1
    hit = torch.zeros_like(positive)
    for group in groups.unique().tolist():  # five of them
        members = (groups == group).nonzero()[:, 0]
        best = score[:, members].topk(min(k, len(members)), 1).indices
        hit[:, members] = torch.zeros_like(hit[:, members]).scatter(1, best, True)
    return (hit & positive).sum(0).double() / positive.sum(0).double()


def negative_log_likelihood(logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the mean of -log p of the true class over the samples that have the label: float64 ``(A,)``, or NaN.

    >>> negative_log_likelihood(torch.zeros(3, 2), torch.tensor([[0], [1], [-1]]), (2,))
    tensor([0.6931], dtype=torch.float64)
    """
    own = columns.own_columns(targets, sizes)
    log_p = columns.log_softmax(logits.double(), sizes).gather(1, own.clamp(min=0))
    return -log_p.masked_fill(own < 0, 0).sum(0) / (own >= 0).sum(0)


def calibration_error(
    logits: Tensor, targets: Tensor, sizes: tuple[int, ...], bins: int = 15, predicted: Tensor | None = None
) -> Tensor:
    """Return the expected calibration error of each label: float64 ``(A,)``, NaN for a label without samples.

    This is the mean gap, over samples, between the confidence of a prediction and the share of correct predictions in
    its bin. Bins have equal width from 0 to 1. The prediction is the most probable class, unless a rule gives other
    predictions ``predicted`` ``(N, A)``.

    >>> calibration_error(torch.tensor([[30.0, 0.0], [30.0, 0.0]]), torch.tensor([[0], [1]]), (2,))
    tensor([0.5000], dtype=torch.float64)
    """
    probability = columns.softmax(logits.double(), sizes)
    predicted = columns.argmax(probability, sizes) if predicted is None else predicted
    confidence = probability.gather(1, predicted + columns.offsets(sizes, logits.device))
    labelled = targets >= 0
    labels = torch.arange(len(sizes), device=logits.device)
    cell = (labels * bins + (confidence * bins).long().clamp(max=bins - 1))[labelled]
    gap = confidence - (predicted == targets).double()
    summed = torch.zeros(len(sizes) * bins, dtype=torch.float64, device=logits.device).index_add(0, cell, gap[labelled])
    return summed.abs().view(len(sizes), bins).sum(1) / labelled.sum(0)
