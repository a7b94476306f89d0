"""Distances between samples: exact for close samples, 0 for equal ones, without an ``(n, N, D)`` tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distances(anchors: Tensor, samples: Tensor) -> Tensor:
    """Return float64 squared Euclidean distances ``(A, n, N)`` between ``(A, n, D)`` and ``(A, N, D)``.

    ``(n, D)`` and ``(N, D)`` give ``(n, N)``. The form |x|^2 + |y|^2 - 2 x.y needs no ``(n, N, D)`` tensor but cancels
    for close samples. So it runs in float64 around the mean, which also avoids reduced-precision matrix units. A
    distance below the rounding error is 0, and so is its gradient.

    >>> squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[25.0, 0.0]]
    """
    if samples.dim() == 2:
        return squared_distances(anchors[None], samples[None])[0]
    wide = widest(samples.device)
    centre = samples.detach().to(wide).mean(1, keepdim=True)
    x, y = anchors.to(wide) - centre, samples.to(wide) - centre
    size = x.square().sum(-1)[:, :, None] + y.square().sum(-1)[:, None, :]
    squared = torch.baddbmm(size, x, y.transpose(1, 2), alpha=-2)
    together = squared <= size * (200 * torch.finfo(wide).eps)  # false for NaN, which must stay visible
    return torch.where(together, 0, squared)


def widest(device: torch.device) -> torch.dtype:
    """Return the widest floating point type of a device: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1, in float32 or better. A vector of length 0 stays as it is.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    vectors = at_least_float32(vectors)
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    # A small number in place of 0, as is common, would multiply the gradient by its inverse.
    scaled: Tensor = vectors / length.where(length > 0, 1)
    return scaled


def at_least_float32(tensor: Tensor) -> Tensor:
    """Convert half precision to float32. Wider types stay."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
