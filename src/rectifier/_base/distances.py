"""Distances between samples: exact where samples are close, zero where they are equal, without an (n, N, D) tensor."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distances(anchors: Tensor, samples: Tensor) -> Tensor:
    """Return squared Euclidean distances ``(A, n, N)`` between ``(A, n, D)`` and ``(A, N, D)``; or all without A.

    As |x|^2 + |y|^2 - 2 x.y, the one form that needs no (n, N, D) tensor. It cancels where samples are close, so it
    runs in float64, around the mean, which also keeps reduced-precision matrix units out of it, and float64 is what it
    returns; below the rounding error of that, a distance is 0, and so is its slope.

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
    """Return the widest floating point of a device: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1, in float32 or better. One of length 0 has no direction and stays as it is.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    vectors = at_least_float32(vectors)
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    # Not a small number in place of 0, as is common: the gradient would be multiplied by its inverse.
    scaled: Tensor = vectors / length.where(length > 0, 1)
    return scaled


def at_least_float32(tensor: Tensor) -> Tensor:
    """Leave half precision behind; float64 stays."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
