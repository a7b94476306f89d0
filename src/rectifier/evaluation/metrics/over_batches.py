"""ClassBalancedAccuracy: class-balanced accuracy over batches and processes, as a torchmetrics metric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from rectifier._base import check
from rectifier.evaluation.arrays import as_tensor
from rectifier.evaluation.metrics.balanced import balanced_mean, count_correct
from rectifier.labels import columns
from rectifier.labels.columns import Sizes


class ClassBalancedAccuracy(Metric):
    """Class-balanced accuracy over batches and processes.

    ``compute()`` returns the mean; ``sensitivity`` the recall of each class ``(K,)``, NaN for classes without a sample;
    ``absent`` the number of these classes.

    Args:
        sizes: Those of the losses. None is one label, sized by the first batch of logits.
        ignore_index: This target is missing too. Negative targets always are.
        kwargs: Options of every torchmetrics metric. Under ``torch.distributed`` all three results are over all
            processes, so every process must ask for them; one that asks alone waits for ever. With
            ``sync_on_compute=False`` each process gets the result of its own samples and waits for no other.
            ``process_group`` limits the processes.

    >>> metric = ClassBalancedAccuracy([2])
    >>> metric.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
    >>> metric.compute(), metric.sensitivity, metric.absent
    (tensor(0.5000), tensor([1., 0.]), tensor(0))
    >>> metric.update(preds=[1, 1], target=[0, 1])  # class indices
    >>> metric.compute()
    tensor(0.5000)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0
    correct: Tensor
    total: Tensor

    def __init__(self, sizes: Sizes | None = None, *, ignore_index: int | None = None, **kwargs: Any) -> None:
        super().__init__(**({"dist_sync_fn": _gather_sized} if sizes is None else {}) | kwargs)
        self.names, self.ignore_index = columns.label_names(sizes), ignore_index
        self.given = columns.as_sizes(sizes)
        # A single 0 stands for counts of unknown length: added to counts of any length, it gives those.
        for state in ("correct", "total"):
            self.add_state(state, torch.zeros(sum(self.given) or 1, dtype=torch.int64), dist_reduce_fx="sum")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of classes of each label; empty before the first batch, where they were not given."""
        return self.given or ((len(self.total),) if len(self.total) > 1 else ())

    def update(self, preds: Any, target: Any) -> None:
        """Count one batch. ``preds`` are logits ``(N, K)``, or class indices ``(N,)`` or ``(N, A)``."""
        given, sizes = as_tensor("preds", preds, self.device), self.sizes
        if not sizes:
            if not given.is_floating_point():
                check.fail("sizes", "given, because class indices do not tell the number of classes", "None")
            sizes = (check.logits(given).shape[1],)
        true = as_tensor("target", target, given.device)
        if self.ignore_index is not None and not true.is_floating_point():
            true = true.long().masked_fill(true == self.ignore_index, -1)
        correct, total = count_correct(given, true, sizes, self.names)
        self.correct, self.total = self.correct + correct, self.total + total

    def compute(self) -> Tensor:
        """Return the class-balanced accuracy."""
        return balanced_mean(self.correct, self.total, self.sizes or (1,))

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot the current value, or one or more values, with matplotlib; return figure and axes."""
        return self._plot(val, ax)

    @property
    def sensitivity(self) -> Tensor:
        """Recall of each class, NaN without a sample."""
        with self._over_processes():
            return self.correct / self.total

    @property
    def absent(self) -> Tensor:
        """Number of classes without a sample."""
        with self._over_processes():
            return (self.total == 0).sum()

    @contextmanager
    def _over_processes(self) -> Iterator[None]:
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self.sync_on_compute):
            yield


def _gather_sized(counts: Tensor, group: Any = None) -> list[Tensor]:
    """Gather the counts of all processes; one without a batch has a single 0, which stands for zeros."""
    found = gather_all_tensors(counts, group)
    longest = max(map(len, found))
    return [one.expand(longest) if len(one) == 1 else one for one in found]
