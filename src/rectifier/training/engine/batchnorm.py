"""Normalise by the joined batch of all ranks, so that two processes train what one trains on the whole batch.

``torch.nn.SyncBatchNorm`` works on CUDA only; this works on any device, with one collective forward and one backward.
The gradient of a sum over ranks is the same sum: each rank's rows receive from the losses of all ranks. DDP takes the
mean over ranks. The result is the gradient of one process wherever that holds without batch normalisation: for losses
of own rows times the number of ranks (``losses/gather.py``), and for means over local batches of equal size.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from rectifier._base import check


def with_global_batch_norm(network: nn.Module) -> nn.Module:
    """Make every ``nn.BatchNorm1d``, ``2d`` and ``3d`` of a network normalise by the rows of all ranks.

    The network is changed in place; use the returned network, which is new if it is one such layer on CUDA. Parameters
    and buffers stay the same objects under the same names, so optimizers and saved weights remain valid. Evaluation,
    and training in one process, stay equal to the bit. Call this on the network's final device: on CUDA the layers
    become ``torch.nn.SyncBatchNorm``. Subclasses of ``nn.BatchNorm`` may do more than normalise (timm's
    ``BatchNormAct2d`` does), so they do not change, with a warning.

    >>> network = with_global_batch_norm(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
    >>> type(network[1]).__name__, sorted(network[1].state_dict())
    ('GlobalBatchNorm1d', ['bias', 'num_batches_tracked', 'running_mean', 'running_var', 'weight'])
    """
    found: dict[nn.Module, type] = {each: type(each) for each in network.modules() if isinstance(each, _BatchNorm)}
    if unknown := sorted({kind.__name__ for kind in found.values() if kind not in KNOWN}):
        warnings.warn(f"{', '.join(unknown)} will normalise by the rows of one rank, not of all.", stacklevel=2)
    replaced = {module: _replacement(module) for module, kind in found.items() if kind in KINDS}
    for path, module in list(network.named_modules(remove_duplicate=False)):
        if path and module in replaced:
            network.set_submodule(path, replaced[module])
    return replaced.get(network, network)


def _replacement(module: nn.Module) -> nn.Module:
    if any(tensor.is_cuda for tensor in (*module.parameters(), *module.buffers())):
        synced: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
        return synced
    module.__class__ = KINDS[type(module)]  # still the same object: its parameters, buffers, mode and hooks stay
    return module


class _GlobalBatchNorm(_BatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return super().forward(x)
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        shift, centred = _centre(x)
        count, mean, variance = _joined_statistics(shift, centred)
        if count < 2:
            check.fail("the values per channel of all ranks together", "two or more in training", int(count))
        if self.track_running_stats and self.running_mean is not None:
            self._track(mean.detach(), variance.detach() * (count / (count - 1)))
        return self._normalise(centred, mean - shift, variance).to(x.dtype)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        factor = self.momentum or 0.0
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the plain mean over all batches so far
                factor = 1 / float(self.num_batches_tracked)
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            if running is not None:
                running.copy_((1 - factor) * running + factor * new)

    def _normalise(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """Return (x - mean) * scale + bias, fused; that kernel sends the mean no gradient, so the bias does."""
        fixed = mean.detach()
        scale = torch.rsqrt(variance + self.eps) * (1 if self.weight is None else self.weight)
        bias = (fixed - mean) * scale + (0 if self.bias is None else self.bias)
        fixed, one, scale, bias = (each.to(x.dtype) for each in (fixed, torch.ones_like(fixed), scale, bias))
        return batch_norm(x, fixed, one, scale, bias, training=False, eps=0.0)


class GlobalBatchNorm1d(_GlobalBatchNorm, nn.BatchNorm1d):
    """``nn.BatchNorm1d`` over the joined batch of all ranks."""


class GlobalBatchNorm2d(_GlobalBatchNorm, nn.BatchNorm2d):
    """``nn.BatchNorm2d`` over the joined batch of all ranks."""


class GlobalBatchNorm3d(_GlobalBatchNorm, nn.BatchNorm3d):
    """``nn.BatchNorm3d`` over the joined batch of all ranks."""


KINDS: dict[type[nn.Module], type[nn.Module]] = {
    nn.BatchNorm1d: GlobalBatchNorm1d,
    nn.BatchNorm2d: GlobalBatchNorm2d,
    nn.BatchNorm3d: GlobalBatchNorm3d,
}
KNOWN = (*KINDS, *KINDS.values(), nn.SyncBatchNorm)


def _centre(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return this rank's mean up to rounding, (C,), and x less it, in float32 or wider: its squares cannot cancel."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    shift = x.detach().sum(_rows(x)) / max(x.numel() // x.shape[1], 1)
    return shift, x - shift.view(-1, *[1] * (x.dim() - 2))


def _joined_statistics(shift: Tensor, centred: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return count, mean and biased variance of all ranks' rows, in float64; a rank may have no rows.

    Each rank brings its count, mean and sum of squares about that mean; the spread of the means is added (Chan et al.).
    """
    n = shift.new_tensor([centred.numel() // len(shift)], dtype=torch.float64)
    total, squares = centred.sum(_rows(centred)).double(), centred.square().sum(_rows(centred)).double()
    residual = total / n.clamp(min=1)
    ranks = _stack(torch.cat([n, shift + residual, squares - total * residual]))
    counts, means, spreads = ranks.split([1, len(shift), len(shift)], dim=1)
    count = counts.detach().sum()
    mean = (counts * means).sum(0) / count
    return count, mean, (spreads + counts * (means - mean).square()).sum(0) / count


def _rows(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _stack(local: Tensor) -> Tensor:
    """Return one row per rank: each adds its own to the others' zeros, so the sum is bit-equal everywhere."""
    own = torch.arange(dist.get_world_size(), device=local.device) == dist.get_rank()
    stacked: Tensor = _Sum.apply(own[:, None] * local)  # type: ignore[no-untyped-call]
    return stacked


class _Sum(torch.autograd.Function):
    """Sum over ranks; its gradient is the same sum."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        total = local.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Sum.apply(gradient)  # type: ignore[no-untyped-call, no-any-return]
