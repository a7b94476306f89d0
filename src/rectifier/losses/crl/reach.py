"""Who is mined: how often the Class Rectification Loss reaches each class, from class counts and batch size."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check
from rectifier.labels.counts import Counts, as_count_list
from rectifier.losses.crl.mining import mined_of_counts

_AT_ONCE = 100  # batches that are profiled together


def mining_rates(
    class_counts: Counts,
    batch_size: int,
    *,
    rho: float = 0.5,
    scope: str = "minority",
    batches: int = 1000,
    seed: int = 0,
) -> Tensor | list[Tensor]:
    """Return the share of batches in which each class is mined: ``(K,)``, or a list with one tensor per label.

    Batches are drawn at random from data with these counts, without replacement, and profiled as in training (Eq. 3).
    A class is mined if a batch has two samples of it, some of another class, and it is in the minority.

    >>> mining_rates([900, 90, 10], batch_size=8)  # the rarest class is hardly ever twice in a batch
    tensor([0.0030, 0.1690, 0.0030])
    >>> mining_rates([900, 90, 10], batch_size=256)
    tensor([0.0000, 1.0000, 0.7860])
    """
    labels, single = as_count_list(class_counts)
    found = [mined_batches(counts, batch_size, rho, scope, batches, seed).float().mean(0) for counts in labels]
    return found[0] if single else found


def mined_batches(
    counts: Tensor, batch_size: int, rho: float = 0.5, scope: str = "minority", batches: int = 1000, seed: int = 0
) -> Tensor:
    """Return which classes of one label are mined in each of some random batches: boolean ``(batches, C)``."""
    check.raise_all(
        [
            check.count("batch_size", batch_size),
            check.count("batches", batches),
            check.share("rho", rho),
            check.choice("scope", scope, ("minority", "all")),
        ]
    )
    size = min(batch_size, int(counts.sum()))
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(
        counts.long().cpu().numpy(), size, size=batches, method="marginals"
    )
    found = []
    for part in torch.from_numpy(drawn).int().split(_AT_ONCE):  # each batch stands for a label of its own
        sizes = (part.shape[1],) * part.shape[0]
        found.append(mined_of_counts(part.flatten(), sizes, rho, scope).view(part.shape))
    return torch.cat(found)
