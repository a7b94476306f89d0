"""Compare the pairs of a whole batch, in chunks of anchors where they do not fit in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rectifier.losses.crl.comparison import Comparison, Sums
from rectifier.losses.crl.design import certain
from rectifier.losses.crl.pairs import FeaturePairs, ScorePairs

CHUNK_BYTES = 2**30
"""Memory limit for the pairs of one pass. Beyond it, the backward pass recomputes chunks instead of keeping them."""


def compare(source: ScorePairs | FeaturePairs, samples: int, comparison: Comparison) -> tuple[Tensor, Tensor]:
    """Return the loss of each label and the number of its triplets or pairs, both ``(A,)``."""
    # The end of a histogram depends on the whole batch, so several chunks need it before the first sum.
    chunks = split(samples, source.bytes_per_anchor)
    with torch.no_grad():
        reach = None if len(chunks) == 1 else torch.stack([comparison.reach(source(c)) for c in chunks]).amax(0)

    def sums_of(chunk: slice) -> Sums:
        pairs = source(chunk)
        return comparison.sums(pairs, comparison.reach(pairs) if reach is None else reach)

    sums = add_up(sums_of, chunks)
    return comparison.loss(sums), comparison.number(sums)


def split(samples: int, bytes_each: int) -> list[slice]:
    """Split the anchors into chunks that take at most ``CHUNK_BYTES``. A graph for any number of samples has one."""
    if not certain(samples * bytes_each > CHUNK_BYTES):
        return [slice(None)]
    size = max(1, CHUNK_BYTES // bytes_each)
    return [slice(first, first + size) for first in range(0, samples, size)]


def add_up(sums_of: Callable[[slice], Sums], chunks: list[slice]) -> Sums:
    """Add the sums of all chunks. Several chunks are recomputed in the backward pass."""
    if len(chunks) == 1:
        return sums_of(chunks[0])
    parts = [checkpoint(sums_of, chunk, use_reentrant=False) for chunk in chunks]
    return tuple(torch.stack(part).sum(0) for part in zip(*parts, strict=True))
