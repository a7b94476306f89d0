"""Class weights ``(K,)`` from class counts, for any objective that takes weights."""

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

    beta = 0 gives equal weights. Towards 1 the weights become proportional to 1 / n. Within each label the weights of
    the classes that have samples have mean 1. A class without samples gets the weight of one sample.

    >>> effective_number_weights(torch.tensor([100, 1]), beta=0.9)
    tensor([0.1818, 1.8182])
    """
    check.raise_all([check.below_one("beta", beta)])
    log_beta = math.log(beta) if beta else -math.inf
    by_label = []
    for label in as_count_list(counts)[0]:
        weights = (1 - beta) / -torch.expm1(label.double().clamp(min=1) * log_beta)
        present = weights[label > 0]
        by_label.append(weights / present.mean() if len(present) else torch.ones_like(weights))
    return torch.cat(by_label).float()
