"""What a loss of single samples is, and what they share: the value of each sample's own class.

A sample loss gives the loss of every sample under every label; ``Objective`` weighs and averages them. Priors and
margins of a loss belong to the labels it was made for.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns


class SampleLoss(Protocol):
    """Called with float logits ``(N, K)`` and checked targets ``(N, A)``; gives ``(N, A)``, 0 where missing."""

    def __call__(self, logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor: ...


class ProbabilityLoss(torch.nn.Module):
    """A sample loss of the probabilities alone: who has their logarithms already calls ``of`` and saves a softmax."""

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
    """Return ``(A,)``: the mean of losses ``(N, A)``, 0 where missing, over the samples that have the label; else 0."""
    return losses.sum(0) / (targets >= 0).sum(0).clamp(min=1)


def check_same_labels(made_for: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """Refuse labels other than those that a loss was made for: the columns would be another label's."""
    if tuple(sizes) != made_for:
        check.fail("sizes", f"those that the loss was made for, {made_for}", f"{tuple(sizes)}")
