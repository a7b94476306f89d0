"""Join the batches of all ranks, so that mining sees the global batch.

Each rank computes the loss of the joined batch and sends gradients only to its own rows. Over all ranks these add up to
the gradient of a single process. DDP then averages over ranks, so own rows are scaled by the number of ranks. Without
the scale, a mined loss would weigh 1 / world size of a loss of the local batch.

All ranks must take part, or those that do wait for ever. So loss modules join batches only in training mode: often one
rank alone evaluates.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad


def global_batch(logits: Tensor, targets: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return logits, targets and features of all ranks, in rank order. A single process gets its arguments back.

    Shorter batches are padded with rows whose labels are all missing, which no loss here counts. Every rank waits once,
    to learn the length of the longest batch.
    """
    if not _several_ranks():
        return logits, targets, features
    rows = torch.tensor(logits.shape[0], device=logits.device)
    dist.all_reduce(rows, op=dist.ReduceOp.MAX)
    longest = int(rows)
    return (
        _join(_lengthen(logits, longest, 0.0)),
        _all_gather(_lengthen(targets, longest, -1)),
        None if features is None else _join(_lengthen(features, longest, 0.0)),
    )


def shared_draw(
    shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None, gather: bool
) -> Tensor:
    """Return uniform random numbers. On a joined batch all ranks get those of rank 0, so that they compute the same
    loss.
    """
    if generator is None:  # a graph for any batch size does not even accept None
        drawn = torch.rand(shape, device=device)
    else:
        drawn = torch.rand(shape, generator=generator, device=device)
    if gather and _several_ranks():
        dist.broadcast(drawn, src=0)
    return drawn


def _several_ranks() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _join(local: Tensor) -> Tensor:
    joined: Tensor = _Gather.apply(local)  # type: ignore[no-untyped-call]
    return joined


class _Gather(torch.autograd.Function):
    """Gather the rows of all ranks. Backward, return the gradient of the own rows, times the number of ranks."""

    @staticmethod
    def forward(local: Tensor) -> Tensor:
        return _all_gather(local)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.rows = inputs[0].shape[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        first = dist.get_rank() * ctx.rows
        return gradient[first : first + ctx.rows] * dist.get_world_size()


def _all_gather(local: Tensor) -> Tensor:
    joined = local.new_empty((dist.get_world_size() * local.shape[0], *local.shape[1:]))
    dist.all_gather(list(joined.chunk(dist.get_world_size())), local.contiguous())
    return joined


def _lengthen(tensor: Tensor, rows: int, fill: float) -> Tensor:
    return pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, rows - tensor.shape[0]), value=fill)
