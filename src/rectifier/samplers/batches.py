"""EpochBatchSampler, the base class of samplers of whole batches."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from itertools import chain
from typing import Self, Unpack

from torch.utils.data import BatchSampler, DistributedSampler, Sampler

from rectifier.samplers.base import Common, EpochSampler


class EpochBatchSampler(EpochSampler[list[int]], BatchSampler):
    """The base class of samplers for ``DataLoader(batch_sampler=...)``. Ranks get whole batches.

    Frameworks find ``batch_size``, ``drop_last`` and ``sampler`` as in PyTorch's ``BatchSampler``. A subclass sets
    ``batch_size``, the size of every batch.
    """

    batch_size: int
    drop_last = False  # no batch is smaller than the others

    def __init__(self, **common: Unpack[Common]) -> None:
        super().__init__(**common)
        # Under DDP Lightning creates a batch sampler again, with the arguments that it saved and its own sampler. It
        # saves arguments only inside a dataloader hook, and what was mined would be lost. So this leaves in their place
        # a function that shards this sampler.
        saved = {"args": (None,), "arg_names": ("sampler",), "default_kwargs": {}}
        saved["kwargs"] = {"explicit_cls": self._sharded_like}
        vars(self).update({f"__pl_saved_{name}": value for name, value in saved.items()})

    def _sharded_like(self, sampler: Sampler[int]) -> Self:
        """Return this sampler with the shard of a ``DistributedSampler``, unless it has one already."""
        other = copy(self)
        if isinstance(sampler, DistributedSampler) and self.num_replicas == 1:
            other._set_shard(sampler.num_replicas, sampler.rank)
        return other

    @property
    def sampler(self) -> Sampler[int]:  # type: ignore[override]
        """The samples of the batches one by one. PyTorch's ``BatchSampler`` would make the same batches of them."""
        return _Samples(self)


class _Samples(Sampler[int]):
    def __init__(self, batches: EpochBatchSampler) -> None:
        self._batches = batches

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._batches)

    def __len__(self) -> int:
        return len(self._batches) * self._batches.batch_size
