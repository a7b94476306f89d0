"""Logit adjustment in training (Menon et al. 2021). With tau = 1 it is balanced softmax (Ren et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels import columns
from rectifier.labels.imbalance import Counts, as_count_list, log_prior
from rectifier.losses.sample import check_same_labels, own_values


class LogitAdjusted(torch.nn.Module):
    """Give the cross-entropy of the logits plus tau * log prior.

    The prior accounts for the class frequencies, so the logits do not: their argmax decides as if all classes were
    equally frequent. ``counts`` are the training samples of each class: a 1-d tensor for one label, a list with one per
    label for several. A class without samples has the prior of half a sample. tau = 0 is cross-entropy.

    >>> LogitAdjusted(torch.tensor([75, 25]))(torch.zeros(2, 2), torch.tensor([[0], [1]]), (2,)).exp()
    tensor([[1.3333],
            [4.0000]])
    """

    offsets: Tensor

    def __init__(self, counts: Counts, tau: float = 1.0) -> None:
        super().__init__()
        check.raise_all([check.that("tau", tau, "a number", check.is_real(tau))])
        self.tau = tau
        self.sizes = tuple(map(len, as_count_list(counts)[0]))
        self.register_buffer("offsets", (tau * log_prior(counts)).float())

    def forward(self, logits: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
        check_same_labels(self.sizes, sizes)
        return -own_values(columns.log_softmax(logits + self.offsets, sizes), targets, sizes)

    def extra_repr(self) -> str:
        return f"tau={self.tau}"
