"""Class weights ``(K,)`` from class counts, for any loss that takes weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts, as_count_list


def class_weights(
    class_counts: Counts, scheme: str = "balanced", *, beta: float = 0.999, sizes: Sizes | None = None
) -> Tensor:
    """Return one weight per class, float32 ``(K,)``, for ``weight=`` of any loss.

    ``"balanced"`` is n / (C n_k), as in scikit-learn: n samples of the label, n_k of class k, C classes that have
    samples. ``"effective-number"`` is (1 - beta) / (1 - beta^n_k), ``"cost"`` the paper's exp(-n_k / n). A class
    without samples gets the weight of one sample. ``class_counts`` are counts in any form, a data set or a DataLoader.

    >>> class_weights([75, 25])
    tensor([0.6667, 2.0000])
    """
    check.raise_all([check.choice("scheme", scheme, tuple(_SCHEMES))])
    counts = as_count_list(class_counts, sizes)[0]
    return effective_number_weights(counts, beta) if scheme == "effective-number" else _SCHEMES[scheme](counts)


def balanced_weights(counts: Counts) -> Tensor:
    """Return n / (C n_k), as scikit-learn's ``class_weight="balanced"``: ``(K,)``."""
    by_label = []
    for label in as_count_list(counts)[0]:
        present = (label > 0).sum().clamp(min=1)
        by_label.append(label.double().sum().clamp(min=1) / (present * label.double().clamp(min=1)))
    return torch.cat(by_label).float()


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


_SCHEMES = {"balanced": balanced_weights, "effective-number": effective_number_weights, "cost": cost_weights}
