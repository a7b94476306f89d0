"""Covariance noise: what is left of other samples' features after the classes are taken off."""

from __future__ import annotations

import torch
from torch import Tensor

from rectifier.labels import columns

_ROWS = 4096  # in float64 at once


def residuals(x: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return ``(N, D)``: the features minus their least-squares fit from the classes of all labels together.

    With one label the fit of a sample is the mean of its class. With several it is a sum of one vector per label. A
    missing label adds nothing.

    Noise with the pooled covariance within classes is a residual of a random training sample: its covariance is exactly
    that, it costs one gather, and it keeps the shape of the distribution. A product with a Cholesky factor would cost
    more than a linear head.

    >>> residuals(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([[0], [0], [1]]), (2,)).tolist()
    [[-1.0], [1.0], [0.0]]
    """
    design = indicators(targets, sizes).double()
    # Columns of several labels depend on each other. The pseudo-inverse takes the smallest of all equal fits.
    parts = zip(design.split(_ROWS), x.split(_ROWS), strict=True)
    both = sum(own.T @ values.double() for own, values in parts)
    fit = torch.linalg.pinv(design.T @ design, hermitian=True) @ both
    return x - _fitted(fit.to(x.dtype), targets, sizes)


def indicators(targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return float32 ``(N, K)``: 1 at each sample's classes, 0 elsewhere.

    >>> indicators(torch.tensor([[1, -1]]), (2, 2)).tolist()
    [[0.0, 1.0, 0.0, 0.0]]
    """
    own = columns.own_columns(targets, sizes)
    marked = torch.zeros(len(targets), sum(sizes) + 1, device=targets.device)
    return marked.scatter_(1, torch.where(own >= 0, own, sum(sizes)), 1.0)[:, :-1]


def _fitted(fit: Tensor, targets: Tensor, sizes: tuple[int, ...]) -> Tensor:
    own = columns.own_columns(targets, sizes)
    with_nothing = torch.cat([fit, torch.zeros_like(fit[:1])])
    total = torch.zeros(len(targets), fit.shape[1], dtype=fit.dtype, device=fit.device)
    for column in own.unbind(1):  # one gather per label, once per table
        total += with_nothing.index_select(0, torch.where(column >= 0, column, len(fit)))
    return total
