"""EpochSampler, the base class of all samplers, and UniformSampler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypedDict, TypeVar, Unpack

import torch
import torch.distributed as dist
from torch import Generator, Tensor
from torch.utils.data import Sampler

from rectifier._base import check
from rectifier.labels.columns import Sizes

T_co = TypeVar("T_co", covariant=True)


class Common(TypedDict, total=False):
    """The options of every sampler; ``EpochSampler`` explains them."""

    seed: int
    num_replicas: int | None
    rank: int | None


class EpochSampler(Sampler[T_co], ABC):
    """The base class of all samplers: seed and epoch fix the plan of all ranks, and each rank takes its shard.

    ``num_replicas`` and ``rank`` None are those of the process group, or 1 and 0 without one. A subclass defines
    ``length()`` and ``draw(generator)``, and sets the attributes they need before it calls this constructor.
    """

    def __init__(self, *, seed: int = 0, num_replicas: int | None = None, rank: int | None = None) -> None:
        super().__init__()
        joined = dist.is_available() and dist.is_initialized()
        world, own = (dist.get_world_size(), dist.get_rank()) if joined else (1, 0)
        self.seed, self.epoch = seed, 0
        self.num_replicas = world if num_replicas is None else num_replicas
        self.rank = own if rank is None else rank
        counted = check.is_count(self.num_replicas)
        # The group's rank does not fit another number of replicas: several ranks would draw the same shard.
        known = rank is not None or self.num_replicas == world
        ranked = not counted or (known and check.is_natural(self.rank) and self.rank < self.num_replicas)
        check.raise_all(
            [
                *self.complaints(),
                check.that("seed", seed, "an integer from 0", check.is_natural(seed)),
                check.that("num_replicas", num_replicas, "a positive integer", counted),
                check.that("rank", rank, f"an integer from 0 and below num_replicas ({self.num_replicas})", ranked),
            ]
        )
        self.total = self.length()
        if self.total < self.num_replicas:
            check.fail("an epoch", f"of at least one entry for each of the {self.num_replicas} ranks", f"{self.total}")

    def complaints(self) -> list[str | None]:
        """Return complaints about the subclass's own options, to be raised with the others."""
        return []

    @abstractmethod
    def length(self) -> int:
        """Return the number of entries of an epoch before it is cut to equal shards; the same for every epoch."""

    @abstractmethod
    def draw(self, generator: Generator) -> Tensor:
        """Return the ``length()`` entries of this epoch in their order, using only this generator."""

    def set_epoch(self, epoch: int) -> None:
        """Switch to the plan of another epoch, counted from 0."""
        check.raise_all([check.that("epoch", epoch, "an integer from 0", check.is_natural(epoch))])
        self.epoch = epoch

    def plan(self) -> Tensor:
        """Return the epoch's entries over all ranks in their order, int64, the same on every rank."""
        # The generator uses 32 bits. Steps of 2^32 over the golden ratio keep the epochs of one seed far from those of
        # the next, and a product with an odd number gives different seeds different starts.
        mixed = ((int(self.seed) + 1) * 0x9E3779B1 + int(self.epoch)) % 2**32
        with torch.device("cpu"):  # regardless of the default device
            return self.draw(Generator().manual_seed(mixed))[: len(self) * self.num_replicas]

    def shard(self) -> Tensor:
        """Return this rank's part of the plan, for a loader that needs no Python loop."""
        return self.plan()[self.rank :: self.num_replicas]

    def __iter__(self) -> Iterator[T_co]:
        entries: list[T_co] = self.shard().tolist()
        return iter(entries)

    def __len__(self) -> int:
        return self.total // self.num_replicas


class UniformSampler(EpochSampler[int]):
    """Every sample once, in random order. Takes the targets, or just the number of samples.

    ``sizes`` has no effect. All samplers accept it.

    >>> sorted(UniformSampler(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, targets: Tensor | int, sizes: Sizes | None = None, **common: Unpack[Common]) -> None:
        self._samples = len(targets) if isinstance(targets, Tensor) and targets.dim() > 0 else targets
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        wanted = "a tensor of at least one row, or a positive number of samples"
        return [check.that("targets", self._samples, wanted, check.is_count(self._samples))]

    def length(self) -> int:
        return int(self._samples)

    def draw(self, generator: Generator) -> Tensor:
        return torch.randperm(self.total, generator=generator)
