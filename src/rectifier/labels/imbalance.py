"""Imbalance of labels: counts, ratio, the measure Omega, the minority classes of a batch, long-tail profiles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import widest
from rectifier.labels import columns
from rectifier.labels.columns import Sizes
from rectifier.labels.counts import Counts as Counts
from rectifier.labels.counts import as_count_list as as_count_list
from rectifier.labels.counts import class_counts as class_counts
from rectifier.labels.counts import column_counts as column_counts
from rectifier.labels.counts import counts_of_targets


def imbalance_ratio(counts: Counts) -> Tensor:
    """Return largest over smallest class: a scalar for one label, ``(A,)`` for a list; inf if a class is empty.

    >>> imbalance_ratio(torch.tensor([500, 25]))
    tensor(20.)
    """
    labels, single = as_count_list(counts)
    ratios = torch.stack([n.max() / n.min() if n.any() else n.new_zeros((), dtype=torch.float32) for n in labels])
    return ratios[0] if single else ratios


def imbalance_measure(counts: Counts) -> Tensor:
    """Return Omega, the share of samples missing for balance: a scalar for one label, ``(A,)`` for a list.

    Omega = sum_k (n_max - n_k) / (K n_max) is 0 for a balanced label and always below 1. The paper defines it in words
    below Eq. 8; this is our reading.

    >>> imbalance_measure([torch.tensor([10, 10]), torch.tensor([10, 5])])
    tensor([0.0000, 0.2500])
    """
    labels, single = as_count_list(counts)
    omega = measure_of_counts(torch.cat(labels), tuple(map(len, labels))).float()
    return omega[0] if single else omega


def measure_of_counts(counts: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return Omega of each label, ``(A,)``, from the counts ``(K,)`` of all; 0 for a label without samples."""
    wide = counts.to(widest(counts.device))
    label = columns.label_of_column(sizes, counts.device)
    largest = wide.new_zeros(len(sizes)).scatter_reduce(0, label, wide, "amax")
    mean = columns.sum_by_label(wide, sizes) / columns.label_sizes(sizes, counts.device)
    return torch.where(largest > 0, 1 - mean / largest.clamp(min=1), 0)


def loss_weight(counts: Counts, eta: float) -> Tensor:
    """Return alpha = min(eta * Omega, 1), the weight of the rectification loss (Eq. 8).

    >>> loss_weight([torch.tensor([10, 10]), torch.tensor([10, 5])], eta=0.5)
    tensor([0.0000, 0.1250])
    """
    check.raise_all([check.not_negative("eta", eta)])
    return (eta * imbalance_measure(counts)).clamp(max=1)


def log_prior(counts: Counts) -> Tensor:
    """Return the log of each class's share of its label's samples, float64 ``(K,)``.

    A class without samples has the prior of half a sample.

    >>> log_prior(torch.tensor([90, 10])).exp()
    tensor([0.9000, 0.1000], dtype=torch.float64)
    """
    labels, _ = as_count_list(counts)
    return log_prior_of_counts(torch.cat(labels), tuple(map(len, labels)))


def log_prior_of_counts(counts: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the log prior ``(K,)`` from the counts ``(K,)``."""
    held = counts.to(widest(counts.device)).clamp(min=0.5)
    return (held / columns.sum_by_label(held, sizes)[columns.label_of_column(sizes, counts.device)]).log()


def minority_classes(targets: Tensor, sizes: Sizes | None = None, rho: float = 0.5) -> Tensor:
    """Mark the minority classes of a batch (Eq. 3): boolean ``(K,)``, one entry per column of the logits.

    For each label, take the classes of the batch in ascending order of their counts (ties by class index). They are
    minority classes while together they hold at most ``rho`` of the samples that have the label.

    >>> minority_classes(torch.tensor([0, 0, 0, 1, 1, 2]), rho=0.5)
    tensor([False,  True,  True])
    """
    check.raise_all([check.share("rho", rho)])
    return minority_of_counts(*counts_of_targets(targets, sizes), rho)


def minority_of_counts(counts: Tensor, sizes: tuple[int, ...], rho: float) -> Tensor:
    """Apply the rule of ``minority_classes`` to the counts ``(K,)`` of a batch."""
    label = columns.label_of_column(sizes, counts.device)
    samples = columns.sum_by_label(counts, sizes)
    # One stable sort by (label, count). Labels stay contiguous, so `label` is also right for the sorted entries.
    order = ((label << 32) + counts).argsort(stable=True)
    ascending = counts[order]
    running = ascending.cumsum(0) - (samples.cumsum(0) - samples)[label]
    # rho * n must round as in plain Python, or a class at the threshold changes sides.
    taken = (running <= (rho * samples.to(widest(counts.device)))[label]) & (ascending > 0)
    return torch.zeros_like(taken).scatter(0, order, taken)


def power_law_profile(classes: int, largest: int, smallest: int, gamma: float = 1.0) -> list[int]:
    """Return class sizes n_i = round(a / (i^gamma + b)), i = 1.. (the paper's simulated imbalance).

    a and b are solved so that the first class has ``largest`` samples and the last ``smallest``.

    >>> sizes = power_law_profile(100, 500, 25)
    >>> sizes[0], sizes[-1], sum(sizes)
    (500, 25, 8072)
    """
    _check_profile(classes, largest, smallest)
    check.raise_all([check.positive("gamma", gamma)])
    if classes == 1 or largest == smallest:
        return [largest] * classes
    b = (smallest * classes**gamma - largest) / (largest - smallest)
    a = largest * (1 + b)
    return [round(a / (i**gamma + b)) for i in range(1, classes + 1)]


def exponential_profile(classes: int, largest: int, smallest: float) -> list[int]:
    """Return class sizes that fall by a constant factor (CIFAR-LT of the long-tail literature).

    Sizes are rounded down, as there: CIFAR-100 at ratio 100 has 10,847 images. ``smallest`` may be a fraction, for any
    ratio: 500 / 200 is 2.5.

    >>> sum(exponential_profile(100, 500, 5)), sum(exponential_profile(100, 500, 2.5))
    (10847, 9502)
    """
    _check_profile(classes, largest, smallest, whole=False)
    if classes == 1:
        return [largest]
    # The small addition before rounding down keeps an exact size exact: 500 * (5 / 500) must stay 5.
    return [math.floor(largest * (smallest / largest) ** (i / (classes - 1)) + 1e-9) for i in range(classes)]


def step_profile(classes: int, largest: int, smallest: int, minority: float = 0.5) -> list[int]:
    """Return class sizes with two levels. The last share ``minority`` of the classes is small.

    >>> step_profile(4, 100, 5)
    [100, 100, 5, 5]
    """
    _check_profile(classes, largest, smallest)
    check.raise_all([check.portion("minority", minority)])
    small = math.floor(classes * minority)
    return [largest] * (classes - small) + [smallest] * small


def _check_profile(classes: int, largest: int, smallest: float, whole: bool = True) -> None:
    known = check.is_count(largest) and (check.is_count(smallest) if whole else check.is_real(smallest))
    ordered = check.that("smallest", smallest, f"from 1 to largest ({largest})", known and 1 <= smallest <= largest)
    check.raise_all([check.count("classes", classes), check.count("largest", largest), ordered])
