"""Cross-entropy of several labels at once, missing labels left out."""

from __future__ import annotations

from torch import Tensor

from rectifier import columns


def label_cross_entropy(
    log_probabilities: Tensor, targets: Tensor, sizes: tuple[int, ...], weights: Tensor | None = None
) -> Tensor:
    """Return ``(A,)``: for each label the mean over the samples that have it (Eq. 2, per label).

    A label that no sample has gives 0. Takes log-probabilities ``(N, K)`` and checked targets ``(N, A)``. With class
    ``weights`` ``(K,)`` it is the weighted mean, as in ``torch.nn.CrossEntropyLoss``.

    >>> import torch
    >>> label_cross_entropy(torch.tensor([[-1.0, -9.0], [-9.0, -2.0]]), torch.tensor([[0], [-1]]), (2,))
    tensor([1.])
    """
    own = columns.own_columns(targets, sizes)
    labelled = own >= 0
    picked = log_probabilities.gather(1, own.clamp(min=0)).masked_fill(~labelled, 0)
    if weights is None:
        return -picked.sum(0) / labelled.sum(0).clamp(min=1)
    weight = weights.to(picked.dtype)[own.clamp(min=0)].masked_fill(~labelled, 0)
    total = weight.sum(0)
    return -(weight * picked).sum(0) / total.where(total > 0, 1)
