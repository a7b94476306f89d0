"""Compare the pairs of a whole batch, in chunks of anchors where they would not fit in memory."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rectifier.losses.comparison import Comparison, Pairs, Sums

CHUNK_BYTES = 2**30
"""What the pairs of one pass may take. Beyond it, a chunk is computed again in the backward pass rather than kept."""


class PairSource(Protocol):
    """What hands out the pairs of any anchors."""

    @property
    def bytes_per_anchor(self) -> int: ...

    def __call__(self, anchors: slice) -> Pairs: ...


def compare(source: PairSource, samples: int, comparison: Comparison) -> tuple[Tensor, Tensor]:
    """Return the loss of each label and the number of its triplets or pairs, both ``(A,)``."""
    size = max(1, CHUNK_BYTES // source.bytes_per_anchor)
    chunks = [slice(first, first + size) for first in range(0, samples, size)]
    if len(chunks) == 1:
        pairs = source(chunks[0])
        sums = comparison.sums(pairs, comparison.reach(pairs))
    else:
        sums = _sums_of_chunks(source, chunks, comparison)
    return comparison.loss(sums), comparison.number(sums)


def _sums_of_chunks(source: PairSource, chunks: list[slice], comparison: Comparison) -> Sums:
    with torch.no_grad():  # where a histogram ends depends on the whole batch, so it is known before the first sum
        reach = torch.stack([comparison.reach(source(chunk)) for chunk in chunks]).amax(0)

    def sums_of(chunk: slice) -> Sums:
        return comparison.sums(source(chunk), reach)

    parts = [checkpoint(sums_of, chunk, use_reentrant=False) for chunk in chunks]
    return tuple(torch.stack(part).sum(0) for part in zip(*parts, strict=True))
