"""Weights of classes from their counts in the training set, ``(K,)``, for any objective that takes weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels.imbalance import Counts, as_count_list


def cost_weights(counts: Counts) -> Tensor:
    """Return the paper's cost-sensitive weights exp(-r_k), r_k the class's share of its label's samples: ``(K,)``.

    >>> cost_weights(torch.tensor([75, 25]))
    tensor([0.4724, 0.7788])
    """
    labels, _ = as_count_list(counts)
    return torch.cat([(-label.double() / label.sum().clamp(min=1)).exp() for label in labels]).float()


def effective_number_weights(counts: Counts, beta: float = 0.999) -> Tensor:
    """Return class-balanced weights (1 - beta) / (1 - beta^n) (Cui et al. 2019), ``(K,)``.

    beta = 0 weighs all classes alike, and towards 1 the weights become those of ``inverse_weights``. Within each label
    they have mean 1 over the classes that have samples; a class without one has the weight of one sample.

    >>> effective_number_weights(torch.tensor([100, 1]), beta=0.9)
    tensor([0.1818, 1.8182])
    """
    valid = check.is_real(beta) and 0 <= beta < 1
    check.raise_all([check.that("beta", beta, "a number from 0 and below 1", valid)])
    log_beta = math.log(beta) if beta else -math.inf
    labels, _ = as_count_list(counts)
    return torch.cat([_mean_one((1 - beta) / -torch.expm1(_at_least_one(n) * log_beta), n) for n in labels]).float()


def inverse_weights(counts: Counts) -> Tensor:
    """Return weights proportional to 1 / n, ``(K,)``, with mean 1 within each label as above.

    >>> inverse_weights(torch.tensor([30, 10]))
    tensor([0.5000, 1.5000])
    """
    labels, _ = as_count_list(counts)
    return torch.cat([_mean_one(1 / _at_least_one(n), n) for n in labels]).float()


def _at_least_one(counts: Tensor) -> Tensor:
    return counts.double().clamp(min=1)


def _mean_one(weights: Tensor, counts: Tensor) -> Tensor:
    present = weights[counts > 0]
    return weights / present.mean() if len(present) else torch.ones_like(weights)
