"""The order in which a loader reads samples, from any sampler."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check


def order_of(sampler: Iterable[Any] | None, samples: int) -> Tensor | list[Tensor]:
    """Bring any sampler to positions ``(n,)``, or to a list with the positions of each batch."""
    if sampler is None:
        return torch.arange(samples)
    shard = getattr(sampler, "shard", None)
    drawn = shard() if callable(shard) else list(sampler)
    if not len(drawn):
        check.fail("sampler", "one that yields samples", "none")
    if isinstance(drawn, Tensor):
        order = drawn if drawn.dim() == 1 else list(drawn)
    elif isinstance(drawn[0], Integral) or (isinstance(drawn[0], (Tensor, np.ndarray)) and drawn[0].ndim == 0):
        order = torch.tensor([int(position) for position in drawn])
    else:
        order = [torch.as_tensor(batch, dtype=torch.int64) for batch in drawn]
    every = order if isinstance(order, Tensor) else torch.cat(order)
    low, high = int(every.min()), int(every.max())
    if low < 0 or high >= samples:  # on a GPU a wrong index would stop the whole process, far from its cause
        check.fail("every position", f"from 0 to {samples - 1}", low if low < 0 else high)
    return order
