"""Losses of single samples, and the means of them.

A sample loss gives one value per sample and label. ``Objective`` weights and averages these values. A loss with priors
or margins works only for the labels it was made for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns

SampleLoss = Callable[[Tensor, Tensor, tuple[int, ...]], Tensor]
"""A function of logits ``(N, K)``, checked targets ``(N, A)`` and sizes that gives ``(N, A)``, 0 where missing."""


class ProbabilityLoss(torch.nn.Module):
    """A sample loss of the probabilities alone. Call ``of`` with log-probabilities to save a softmax."""

    def forward(self, logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return self.of(columns.log_softmax(logits, sizes), targets, sizes)

    def of(self, log_p: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Return the loss ``(N, A)`` from log-probabilities ``(N, K)``."""
        raise NotImplementedError


def own_values(values: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, A)``: the value ``(N, K)`` of each sample's own class, 0 where its label is missing.

    >>> own_values(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1], [-1]]), (2,))
    tensor([[2.],
            [0.]])
    """
    own = columns.own_columns(targets, sizes)
    return values.gather(1, own.clamp(min=0)).masked_fill(own < 0, 0)


def label_means(losses: Tensor, targets: Tensor) -> Tensor:
    """Return ``(A,)``: the mean of losses ``(N, A)`` over the samples that have the label, 0 where none has it."""
    return losses.sum(0) / (targets >= 0).sum(0).clamp(min=1)


def reduce_labels(per_label: Tensor, label_reduction: str) -> Tensor:
    """Sum or average ``(A,)`` over the labels; ``"none"`` returns it unchanged."""
    if label_reduction == "none":
        return per_label
    return per_label.sum() if label_reduction == "sum" else per_label.mean()


def check_reduction(label_reduction: str) -> str:
    check.raise_all([check.choice("label_reduction", label_reduction, ("sum", "mean", "none"))])
    return label_reduction


def check_same_labels(made_for: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Check that a loss is called with its own labels, because columns of other labels mean other classes."""
    if tuple(sizes) != made_for:
        check.fail("sizes", f"those of the loss, {made_for}", f"{tuple(sizes)}")
