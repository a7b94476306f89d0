"""Imbalance of labels: counts, ratio, the measure Omega, the minority classes of a batch, long-tail profiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Number

import torch
from torch import Tensor

from rectifier._base import check
from rectifier._base.distances import widest
from rectifier.labels import columns
from rectifier.labels.columns import Sizes

Counts = Tensor | Sequence[Tensor] | Sequence[Sequence[int]] | Sequence[int]


def class_counts(targets: Tensor, sizes: Sizes | None = None) -> list[Tensor]:
    """Count the samples of each class, label by label. Missing labels (negative targets) do not count.

    ``sizes`` None means one label, with the largest target as its last class.

    >>> [counts.tolist() for counts in class_counts(torch.tensor([[0, 1], [2, -1], [0, 1]]), [3, 2])]
    [[2, 0, 1], [0, 2]]
    """
    counts, resolved = _counts(targets, sizes)
    return list(counts.split(list(resolved)))


def imbalance_ratio(counts: Counts) -> Tensor:
    """Return largest over smallest class: a scalar for one label, ``(A,)`` for a list; inf if a class is empty.

    >>> imbalance_ratio(torch.tensor([500, 25]))
    tensor(20.)
    """
    return _per_label(counts, lambda n: n.max() / n.min())


def imbalance_measure(counts: Counts) -> Tensor:
    """Return Omega, the share of samples missing for balance: a scalar for one label, ``(A,)`` for a list.

    Omega = sum_k (n_max - n_k) / (K n_max) is 0 for a balanced label and always below 1. The paper defines it in words
    below Eq. 8; this is our reading.

    >>> imbalance_measure([torch.tensor([10, 10]), torch.tensor([10, 5])])
    tensor([0.0000, 0.2500])
    """
    return _per_label(counts, lambda n: 1 - n.mean() / n.max())


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
    held = [label.double().clamp(min=0.5) for label in labels]
    return torch.cat([label / label.sum() for label in held]).log()


def minority_classes(targets: Tensor, sizes: Sizes | None = None, rho: float = 0.5) -> Tensor:
    """Mark the minority classes of a batch (Eq. 3): boolean ``(K,)``, one entry per column of the logits.

    For each label, take the classes of the batch in ascending order of their counts (ties by class index). They are
    minority classes while together they hold at most ``rho`` of the samples that have the label.

    >>> minority_classes(torch.tensor([0, 0, 0, 1, 1, 2]), rho=0.5)
    tensor([False,  True,  True])
    """
    check.raise_all([check.share("rho", rho)])
    return minority_of_counts(*_counts(targets, sizes), rho)


def column_counts(own: Tensor, total: int) -> Tensor:
    """Count the samples of each of ``total`` columns: int32 ``(K,)``, from ``columns.own_columns``."""
    slots = torch.where(own >= 0, own, total).flatten()  # missing labels go to a slot after the last column
    one = torch.ones((), dtype=torch.int32, device=own.device)  # GPUs add int32 atomically, int64 only after a sort
    return torch.zeros(total + 1, dtype=torch.int32, device=own.device).index_add(0, slots, one.expand_as(slots))[:-1]


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


def _counts(targets: Tensor, sizes: Sizes | None) -> tuple[Tensor, tuple[int, ...]]:
    """Return the counts ``(K,)`` of checked targets, and the sizes."""
    if sizes is None:
        single = check.targets(targets, 1)
        sizes = (max(int(single.max()) + 1, 1) if len(single) else 1,)
    known = columns.as_sizes(sizes)
    canonical = columns.as_targets(targets, known, columns.label_names(sizes))
    return column_counts(columns.own_columns(canonical, known), sum(known)).long(), known


def _per_label(counts: Counts, measure: Callable[[Tensor], Tensor]) -> Tensor:
    labels, single = as_count_list(counts)
    values = [measure(n.double()) if n.sum() > 0 else n.new_zeros((), dtype=torch.float64) for n in labels]
    stacked = torch.stack(values).float()
    return stacked[0] if single else stacked


def as_count_list(counts: Counts) -> tuple[list[Tensor], bool]:
    """Return counts as a list with one 1-d tensor per label, and whether they came as a single label."""
    wanted = "a 1-d tensor, or a list with one per label"
    if not isinstance(counts, (Tensor, Sequence)) and not hasattr(counts, "__array__"):
        raise TypeError(check.sentence("class_counts", wanted, repr(counts)))
    if isinstance(counts, Tensor):
        single = counts.dim() <= 1
    else:
        single = len(counts) > 0 and all(isinstance(n, Number) or getattr(n, "ndim", None) == 0 for n in counts)
    labels = [torch.as_tensor(label) for label in ([counts] if single else counts)]
    for position, label in enumerate(labels):
        what = "class_counts" if single else f"class_counts[{position}]"
        if label.dim() != 1 or label.numel() == 0:
            check.fail(what, "a 1-d tensor with one count per class", f"shape {tuple(label.shape)}")
        if not bool((label >= 0).all()):
            check.fail(what, "non-negative", f"{label.min().item()}")
    if not labels:
        check.fail("class_counts", wanted, "an empty list")
    return labels, single


def _check_profile(classes: int, largest: int, smallest: float, whole: bool = True) -> None:
    known = check.is_count(largest) and (check.is_count(smallest) if whole else check.is_real(smallest))
    ordered = check.that("smallest", smallest, f"from 1 to largest ({largest})", known and 1 <= smallest <= largest)
    check.raise_all([check.count("classes", classes), check.count("largest", largest), ordered])
