"""EpochSampler, the base class of all samplers, and UniformSampler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sized
from typing import Any, TypedDict, TypeVar, Unpack

import torch
import torch.distributed as dist
from torch import Generator, Tensor
from torch.utils.data import Sampler

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.samplers.class_members import Targets

T_co = TypeVar("T_co", covariant=True)


class Common(TypedDict, total=False):
    """The options of every sampler; ``EpochSampler`` explains them."""

    seed: int
    num_replicas: int | None
    rank: int | None
    distributed: bool


class EpochSampler(Sampler[T_co], ABC):
    """The base class of all samplers: seed and epoch fix the plan of all ranks, and each rank takes its shard.

    Every iteration is the next epoch, counted from 0, even if the one before was not finished. After ``set_epoch`` the
    epoch stays until ``set_epoch`` changes it. ``epoch`` and ``plan()`` are those of the latest iteration.

    A sampler is not sharded unless asked, because Lightning, accelerate and the Hugging Face Trainer shard it
    themselves. In a training loop of your own under DDP, use ``distributed=True``. All ranks must then iterate equally
    often, or call ``set_epoch``.

    A subclass defines ``length()`` and ``draw(generator)``, and sets the attributes they need before it calls this
    constructor.

    Args:
        seed: chooses the plans of all epochs.
        num_replicas: number of shards. It needs ``rank``. By default there is one.
        rank: which shard this process takes, from 0.
        distributed: take ``num_replicas`` and ``rank`` from the process group.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        num_replicas: int | None = None,
        rank: int | None = None,
        distributed: bool = False,
    ) -> None:
        check.raise_all(
            [
                *self.complaints(),
                check.that("seed", seed, "an integer from 0", check.is_natural(seed)),
                *_sharding_complaints(num_replicas, rank, distributed),
            ]
        )
        self.seed, self.epoch = seed, 0
        self._next: int | None = 0  # the epoch of the next iteration; None after set_epoch, which keeps the epoch
        self._drawn, self._skip = 0, 0  # entries of the latest iteration; entries that the next leaves out
        if distributed:
            num_replicas, rank = dist.get_world_size(), dist.get_rank()
        self._set_shard(num_replicas or 1, rank or 0)

    def _set_shard(self, num_replicas: int, rank: int) -> None:
        self.num_replicas, self.rank = num_replicas, rank
        self.total = self.length()
        if self.total < num_replicas:
            check.fail("an epoch", f"of at least one entry for each of the {num_replicas} ranks", f"{self.total}")

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
        """Switch to the plan of another epoch, counted from 0, for all iterations until the next call."""
        check.raise_all([check.that("epoch", epoch, "an integer from 0", check.is_natural(epoch))])
        if epoch != self.epoch:  # else a loaded state goes on
            self._drawn, self._skip = 0, 0
        self.epoch, self._next = epoch, None

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the latest iteration: seed, epoch, and the number of entries ``drawn``.

        A ``DataLoader`` with workers draws some batches ahead. Torchdata's ``StatefulDataLoader`` counts what it
        yields.
        """
        return {"seed": self.seed, "epoch": self.epoch, "drawn": self._drawn}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Let the next iteration draw the rest of the epoch of ``state_dict()``, or the next epoch if none is left."""
        self.seed, self.epoch, self._drawn = (state_dict[name] for name in ("seed", "epoch", "drawn"))
        whole = self._drawn >= len(self)
        self._next, self._skip = (self.epoch + 1, 0) if whole else (self.epoch, self._drawn)

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
        # The epoch changes when the first entry is drawn, and not in iter(): PyTorch's loader with workers calls iter()
        # twice before its first epoch and draws from one of the two.
        if self._next is not None:
            self.epoch, self._next = self._next, self._next + 1
        start, self._skip = self._skip, 0
        entries: list[T_co] = self.shard()[start:].tolist()
        for self._drawn, entry in enumerate(entries, start + 1):
            yield entry

    def __len__(self) -> int:
        return self.total // self.num_replicas


def in_process_group() -> bool:
    """Tell whether this process is one of a process group."""
    return dist.is_available() and dist.is_initialized()


def _sharding_complaints(num_replicas: object, rank: object, distributed: object) -> list[str | None]:
    found = [check.switch("distributed", distributed)]
    given = num_replicas is not None or rank is not None
    if distributed:
        given_too = (num_replicas, rank)
        found.append(check.that("num_replicas and rank", given_too, "None with distributed=True", not given))
        if not in_process_group():
            found.append("distributed=True needs a process group. Call torch.distributed.init_process_group first.")
    elif given:
        counted = check.is_count(num_replicas)
        ranked = not counted or (check.is_natural(rank) and rank < num_replicas)  # type: ignore[operator]
        found.append(check.that("num_replicas", num_replicas, "a positive integer", counted))
        found.append(check.that("rank", rank, f"an integer from 0 and below num_replicas ({num_replicas})", ranked))
        if num_replicas is None or rank is None:
            found.append("Pass both num_replicas and rank, or distributed=True.")
    return found


class UniformSampler(EpochSampler[int]):
    """Every sample once, in random order. Takes the targets, or just the number of samples.

    ``sizes`` has no effect. All samplers accept it.

    >>> sampler = UniformSampler(5)
    >>> first, second = list(sampler), list(sampler)
    >>> sorted(first), sorted(second), first == second
    ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], False)
    """

    def __init__(self, targets: Targets | int, sizes: Sizes | None = None, **common: Unpack[Common]) -> None:
        listed = isinstance(targets, Sized) and getattr(targets, "ndim", 1) > 0
        self._samples = len(targets) if listed else targets  # type: ignore[arg-type]
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        wanted = "those of at least one sample, or a positive number of samples"
        return [check.that("targets", self._samples, wanted, check.is_count(self._samples))]

    def length(self) -> int:
        return int(self._samples)  # type: ignore[arg-type]

    def draw(self, generator: Generator) -> Tensor:
        return torch.randperm(self.total, generator=generator)
