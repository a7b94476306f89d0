"""Which sample comes next: samplers that know the epoch, the rank and the seed, and are handed the targets themselves.

All are made alike: ``Sampler(targets, sizes, seed=0, num_replicas=None, rank=None)``. Every rank draws the same
``plan()`` and takes each ``num_replicas``-th entry of it, so the shards are disjoint, equal in length and together
exactly the plan. Nothing touches the global random state, and nothing repeats entries to fill up a last round: the few
entries that do not go round are cut, other ones each epoch. Call ``set_epoch`` before each epoch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from math import gcd
from typing import NamedTuple, TypedDict, TypeVar, Unpack

import torch
import torch.distributed as dist
from torch import Generator, Tensor
from torch.nn.functional import pad
from torch.utils.data import Sampler

from rectifier import check, columns
from rectifier.columns import Sizes
from rectifier.imbalance import class_counts

T_co = TypeVar("T_co", covariant=True)


class Common(TypedDict, total=False):
    """The options of every sampler, explained at ``EpochSampler``."""

    seed: int
    num_replicas: int | None
    rank: int | None


class EpochSampler(Sampler[T_co], ABC):
    """What all samplers share: seed and epoch fix the plan of all ranks, and each rank takes its shard.

    ``num_replicas`` and ``rank`` None: those of the process group, or 1 and 0 where there is none. A sampler of your
    own gives ``length()`` and ``draw(generator)``; it sets what these need before it calls this constructor.
    """

    def __init__(self, *, seed: int = 0, num_replicas: int | None = None, rank: int | None = None) -> None:
        super().__init__()
        joined = dist.is_available() and dist.is_initialized()
        world, own = (dist.get_world_size(), dist.get_rank()) if joined else (1, 0)
        self.seed, self.epoch = seed, 0
        self.num_replicas = world if num_replicas is None else num_replicas
        self.rank = own if rank is None else rank
        counted = check.is_count(self.num_replicas)
        # The group's rank says nothing about another number of replicas: several ranks would draw one shard.
        known = rank is not None or self.num_replicas == world
        ranked = not counted or (known and check.is_natural(self.rank) and self.rank < self.num_replicas)
        check.raise_all(
            [
                *self.complaints(),
                check.number("seed", seed, "an integer from 0", check.is_natural(seed)),
                check.number("num_replicas", num_replicas, "a positive integer", counted),
                check.number("rank", rank, f"an integer from 0 and below num_replicas ({self.num_replicas})", ranked),
            ]
        )
        self.total = self.length()
        if self.total < self.num_replicas:
            check.fail("an epoch", f"of at least one entry for each of the {self.num_replicas} ranks", f"{self.total}")

    def complaints(self) -> list[str | None]:
        """Return what is wrong with the sampler's own options, to be raised together with the rest."""
        return []

    @abstractmethod
    def length(self) -> int:
        """Return how many entries an epoch has before it is cut to equal shards; the same for every epoch."""

    @abstractmethod
    def draw(self, generator: Generator) -> Tensor:
        """Return the ``length()`` entries of this epoch in their order, from this generator alone."""

    def set_epoch(self, epoch: int) -> None:
        """Turn to the plan of another epoch, counted from 0."""
        check.raise_all([check.number("epoch", epoch, "an integer from 0", check.is_natural(epoch))])
        self.epoch = epoch

    def plan(self) -> Tensor:
        """Return the epoch's entries over all ranks in their order, int64, the same on every rank."""
        # The generator heeds 32 bits. Steps of 2^32 over the golden ratio keep the epochs of one seed far from those of
        # the next, and a product with an odd number gives no two seeds one start.
        mixed = ((int(self.seed) + 1) * 0x9E3779B1 + int(self.epoch)) % 2**32
        with torch.device("cpu"):  # whatever the default device is
            return self.draw(Generator().manual_seed(mixed))[: len(self) * self.num_replicas]

    def shard(self) -> Tensor:
        """Return this rank's part of the plan; a loader can use it whole, without a Python loop."""
        return self.plan()[self.rank :: self.num_replicas]

    def __iter__(self) -> Iterator[T_co]:
        entries: list[T_co] = self.shard().tolist()
        return iter(entries)

    def __len__(self) -> int:
        return self.total // self.num_replicas


class UniformSampler(EpochSampler[int]):
    """Every sample once, in random order. Takes the targets, or just the number of samples.

    ``sizes`` is there so that all samplers can be made alike; nothing depends on it.

    >>> sorted(UniformSampler(5))
    [0, 1, 2, 3, 4]
    """

    def __init__(self, targets: Tensor | int, sizes: Sizes | None = None, **common: Unpack[Common]) -> None:
        self._samples = len(targets) if isinstance(targets, Tensor) and targets.dim() > 0 else targets
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        wanted = "a tensor of at least one row, or a positive number of samples"
        return [check.number("targets", self._samples, wanted, check.is_count(self._samples))]

    def length(self) -> int:
        return int(self._samples)

    def draw(self, generator: Generator) -> Tensor:
        return torch.randperm(self.total, generator=generator)


class _Replicator(EpochSampler[int]):
    """Repeat each sample by its factor: goal / n of its class where it has one label, combined where it has several.

    Whole copies are shared out among the samples driven by one class, the one with the largest goal / n: together they
    have the sum of their factors, rounded up. Who has one copy more changes with the epoch, the number never does.
    """

    _goal: str
    _unlabelled: float

    def __init__(
        self, targets: Tensor, sizes: Sizes | None = None, *, combine: str = "mean", **common: Unpack[Common]
    ) -> None:
        self.combine = combine
        present = _present_classes(targets, sizes)
        goal = present.counts.new_zeros(len(present.sizes)).scatter_reduce(
            0, present.label, present.counts, self._goal, include_self=False
        )
        ratio = pad(goal[present.label].double() / present.counts, (0, 1))[present.own]  # 0 where a label is missing
        largest, driver = ratio.max(1, keepdim=True)
        labels = (ratio > 0).sum(1)
        factor = largest.squeeze(1) if combine == "largest" else ratio.sum(1) / labels
        factor = torch.where(labels > 0, factor, self._unlabelled)
        # In integers sums do not depend on the order, so every epoch has the same length.
        self._parts = (factor * _COPY).round().long()
        self._driver = present.own.gather(1, driver).squeeze(1)
        self._driven = self._parts.new_zeros(len(present.counts) + 1).index_add(0, self._driver, self._parts)
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        return [check.choice("combine", self.combine, ("largest", "mean"))]

    def length(self) -> int:
        return int(self._copies(self._driven).sum())

    def draw(self, generator: Generator) -> Tensor:
        order = torch.randperm(len(self._driver), generator=generator)
        order = order[self._driver[order].argsort(stable=True)]
        parts, before = self._parts[order], (self._driven.cumsum(0) - self._driven)[self._driver[order]]
        running = parts.cumsum(0) - before
        drawn = order.repeat_interleave(self._copies(running) - self._copies(running - parts))
        return drawn[torch.randperm(len(drawn), generator=generator)]

    def _copies(self, parts: Tensor) -> Tensor:
        """Round up to whole copies, unless only the rounding of each sample's parts is above the last."""
        return -((len(self._parts) - parts) // _COPY)


_COPY = 2**32  # parts of one copy


class OverSampler(_Replicator):
    """Over-sampling by replication: every sample at least once, those of small classes several times.

    With one label each class comes exactly n_max times, n_max the size of the largest; its samples are repeated equally
    often, give or take one copy, and which have the extra copy changes with the epoch.

    With several labels one replication serves them all. A sample's factor is the mean over its labels of n_max / n, n
    the size of its own class. ``combine="largest"`` takes the largest instead: every class is then expected at least
    n_max times, but with many labels nearly every sample has a rare class, and the epoch is many times as long. Samples
    without any label come once.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    >>> targets[OverSampler(targets).plan()].bincount().tolist()
    [5, 5]
    """

    _goal, _unlabelled = "amax", 1.0


class DownSampler(_Replicator):
    """Down-sampling by removal: no sample more than once, those of large classes seldom.

    With one label each class is cut to exactly n_min samples, n_min the size of the smallest class that has any; which
    ones stay changes with the epoch.

    With several labels a sample stays with the mean over its labels of n_min / n, n the size of its own class.
    ``combine="largest"`` takes the largest instead, so that a sample of the rarest class of any label always stays;
    with many labels that is nearly every sample, and nothing is removed. Samples without any label have nothing to
    balance and are left out.

    >>> targets = torch.tensor([0, 0, 0, 0, 0, 1, 1])
    >>> targets[DownSampler(targets).plan()].bincount().tolist()
    [2, 2]
    """

    _goal, _unlabelled = "amin", 0.0


class ClassBalancedSampler(EpochSampler[int]):
    """Draw with replacement: a label, then one of its classes, then one of that class's samples, all uniformly.

    Classes without a sample and labels without a class are passed over. ``samples`` is the length of an epoch, by
    default the number of samples there are.

    >>> targets = torch.tensor([0] * 90 + [1] * 10)
    >>> drawn = targets[ClassBalancedSampler(targets, samples=10_000).plan()]
    >>> abs(drawn.double().mean() - 0.5).item() < 0.03
    True
    """

    def __init__(
        self, targets: Tensor, sizes: Sizes | None = None, *, samples: int | None = None, **common: Unpack[Common]
    ) -> None:
        self._present = _present_classes(targets, sizes)
        self._members = self._present.members()
        self.samples = len(self._present.own) if samples is None else samples
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        return [check.number("samples", self.samples, "a positive integer", check.is_count(self.samples))]

    def length(self) -> int:
        return int(self.samples)

    def class_weights(self) -> Tensor:
        """Return how often each class that has samples is drawn within its label, in any scale: float64 ``(C,)``."""
        return torch.ones(len(self._present.counts), dtype=torch.float64)

    def draw(self, generator: Generator) -> Tensor:
        shares = self._present.shares(self.class_weights())
        drawn = torch.multinomial(shares, self.total, replacement=True, generator=generator)
        # The remainder of so large a number is as good as uniform, and unlike a scaled fraction never out of range.
        place = torch.randint(2**62, (self.total,), generator=generator) % self._present.counts[drawn]
        return self._members[self._present.starts[drawn] + place]


class SquareRootSampler(ClassBalancedSampler):
    """Draw as ``ClassBalancedSampler`` does, but a class of n samples with probability proportional to sqrt(n).

    >>> targets = torch.tensor([0] * 90 + [1] * 10)
    >>> drawn = targets[SquareRootSampler(targets, samples=10_000).plan()]
    >>> abs(drawn.double().mean() - 0.25).item() < 0.03
    True
    """

    def class_weights(self) -> Tensor:
        return self._present.counts.double().sqrt()


class ProgressiveSampler(ClassBalancedSampler):
    """Go from natural to balanced classes over ``epochs`` epochs (Kang et al. 2020, "Decoupling").

    A class of n samples is drawn with probability (1 - t) n / sum(n) + t / C, C the number of classes of its label; t
    runs from 0 at the first epoch to 1 at the last and stays there. A single epoch is the first.

    >>> targets = torch.tensor([0] * 90 + [1] * 10)
    >>> sampler = ProgressiveSampler(targets, epochs=11, samples=10_000)
    >>> sampler.set_epoch(5)
    >>> abs(targets[sampler.plan()].double().mean() - 0.3).item() < 0.03
    True
    """

    def __init__(
        self,
        targets: Tensor,
        sizes: Sizes | None = None,
        *,
        epochs: int,
        samples: int | None = None,
        **common: Unpack[Common],
    ) -> None:
        self.epochs = epochs
        super().__init__(targets, sizes, samples=samples, **common)

    def complaints(self) -> list[str | None]:
        wrong = check.number("epochs", self.epochs, "a positive integer", check.is_count(self.epochs))
        return [wrong, *super().complaints()]

    def class_weights(self) -> Tensor:
        t = min(self.epoch / max(self.epochs - 1, 1), 1.0)
        natural = self._present.shares(self._present.counts.double())
        return torch.lerp(natural, self._present.shares(super().class_weights()), t)


class CurriculumSampler(ProgressiveSampler):
    """Go from natural to balanced classes as dynamic curriculum learning does (Wang et al. 2019).

    A class of n samples is drawn with probability proportional to n^g, where g falls from 1 to 0 over ``epochs``, as a
    quarter of a cosine: rare classes come late.

    >>> targets = torch.tensor([0] * 900 + [1] * 100)
    >>> sampler = CurriculumSampler(targets, epochs=4, samples=10_000)
    >>> sampler.set_epoch(2)  # g is a half
    >>> abs(targets[sampler.plan()].double().mean() - 0.25).item() < 0.03
    True
    """

    def class_weights(self) -> Tensor:
        g = math.cos(math.pi / 2 * min(self.epoch / max(self.epochs - 1, 1), 1.0))
        return self._present.counts.double() ** g


class ClassBatchSampler(EpochSampler[list[int]]):
    """Batches that each hold at least ``samples`` samples of each of ``classes`` different classes.

    For ``DataLoader(batch_sampler=...)``. With several labels a class is a (label, class) pair, and one sample may
    stand in a batch for two of its classes. All classes that have samples take turns: none comes again, over the
    batches of all ranks, before every other has come as often. Within a class the samples follow a cycle, shuffled for
    the epoch: none comes again before all have come, so those in a batch are different wherever the class has enough.

    ``plan()`` is ``(batches, batch_size)``; its first ``classes * samples`` columns go class by class. A larger
    ``batch_size`` fills the batch up with samples from all there are. ``batches`` is by default as many as the
    samples would fill, and at least one for each rank.

    >>> targets = torch.tensor([0] * 90 + [1] * 6 + [2] * 4)
    >>> sampler = ClassBatchSampler(targets, classes=2, samples=3)
    >>> len(sampler), [len(targets[batch].unique()) for batch in sampler] == [2] * 16
    (16, True)
    """

    def __init__(
        self,
        targets: Tensor,
        sizes: Sizes | None = None,
        *,
        classes: int,
        samples: int,
        batch_size: int | None = None,
        batches: int | None = None,
        **common: Unpack[Common],
    ) -> None:
        self._present = _present_classes(targets, sizes)
        self._members = self._present.members()
        self.classes, self.samples, self.batches = classes, samples, batches
        # 1 where the two are wrong themselves: one complaint is enough.
        self._promised = classes * samples if check.is_count(classes) and check.is_count(samples) else 1
        self.batch_size = self._promised if batch_size is None else batch_size
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        most = len(self._present.counts)
        enough = check.is_count(self.batch_size) and self.batch_size >= self._promised
        return [
            check.number(
                "classes",
                self.classes,
                f"from 1 to {most}, the number of classes that have samples",
                check.is_count(self.classes) and self.classes <= most,
            ),
            check.number("samples", self.samples, "a positive integer", check.is_count(self.samples)),
            check.number("batch_size", self.batch_size, f"at least classes * samples = {self._promised}", enough),
            check.number(
                "batches", self.batches, "a positive integer", self.batches is None or check.is_count(self.batches)
            ),
        ]

    def length(self) -> int:
        by_default = max(len(self._present.own) // self.batch_size, self.num_replicas)
        return int(by_default if self.batches is None else self.batches)

    def draw(self, generator: Generator) -> Tensor:
        turns = _turns(self.total, self.classes, len(self._present.counts), generator).flatten()
        shuffled = torch.randperm(len(self._members), generator=generator)
        cycle = self._members[shuffled[self._present.class_of_member[shuffled].argsort(stable=True)]]
        place = _places(turns)[:, None] * self.samples + torch.arange(self.samples)
        start, count = self._present.starts[turns, None], self._present.counts[turns, None]
        promised = cycle[start + place % count].view(self.total, self._promised)
        everyone = torch.randperm(len(self._present.own), generator=generator)
        rest = torch.arange(self.total * (self.batch_size - self._promised)) % len(everyone)
        return torch.cat([promised, everyone[rest].view(self.total, self.batch_size - self._promised)], 1)


class _Present(NamedTuple):
    """The C classes of all labels that have samples, and the samples of each."""

    own: Tensor  # (N, A): each sample's class, C where its label is missing
    counts: Tensor  # (C,)
    label: Tensor  # (C,)
    sizes: tuple[int, ...]

    @property
    def starts(self) -> Tensor:
        """``(C,)``: where each class begins among the members."""
        return self.counts.cumsum(0) - self.counts

    @property
    def class_of_member(self) -> Tensor:
        return torch.arange(len(self.counts)).repeat_interleave(self.counts)

    def members(self) -> Tensor:
        """Return the samples of the first class, then those of the second, and so on: ``(counts.sum(),)``."""
        order = self.own.flatten().argsort(stable=True)[: int(self.counts.sum())]
        return order // self.own.shape[1]

    def shares(self, weights: Tensor) -> Tensor:
        """Scale the weights ``(C,)`` of the classes to sum 1 within each label."""
        return weights / columns.sum_by_label(weights, self.sizes, self.label)[self.label]


def _present_classes(targets: Tensor, sizes: Sizes | None) -> _Present:
    on_cpu = targets.cpu() if isinstance(targets, Tensor) else targets
    by_label = class_counts(on_cpu, sizes)
    resolved = tuple(map(len, by_label))
    counts = torch.cat(by_label)
    present = counts > 0
    if not present.any():
        check.fail("targets", "of at least one sample with a label", f"{len(targets)} samples without")
    own = columns.own_columns(check.targets(on_cpu, len(resolved)), resolved)
    numbered = torch.where(own >= 0, (present.cumsum(0) - 1)[own], present.sum())
    return _Present(numbered, counts[present], columns.label_of_column(resolved, counts.device)[present], resolved)


def _turns(batches: int, classes: int, present: int, generator: Generator) -> Tensor:
    """Choose the classes of each batch: ``(batches, classes)``, all different within a row.

    Row after row they are shuffled rounds of all ``present`` classes. A batch that is open when a round ends must not
    see one of its classes again, so the next round begins with others; every round this allows is equally likely.
    Rounds and batches end together every lcm(present, classes) turns. Blocks of that length do not depend on each
    other and are drawn side by side; the loop over the rounds of a block has at most ``classes`` steps.
    """
    rand = partial(torch.rand, dtype=torch.float64, generator=generator)
    common = gcd(present, classes)
    blocks = -(-batches * common // present)
    rounds = [torch.empty(blocks, 0, dtype=torch.int64)]
    for number in range(classes // common):
        filled = number * present % classes
        barred = rounds[-1][:, rounds[-1].shape[1] - filled :]
        allowed_first = rand((blocks, present)).scatter(1, barred, 1.0).argsort(1)
        head, others = allowed_first.tensor_split([-filled % classes], 1)
        rounds.append(torch.cat([head, others.gather(1, rand(others.shape).argsort(1))], 1))
    return torch.cat(rounds, 1).flatten()[: batches * classes].view(batches, classes)


def _places(group: Tensor) -> Tensor:
    """Number the members of each group 0, 1, 2 in the order they come.

    >>> _places(torch.tensor([7, 2, 7, 7, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = group.argsort(stable=True)
    counts = group.bincount()
    by_group = torch.arange(len(group)) - (counts.cumsum(0) - counts)[group[order]]
    return torch.empty_like(group).scatter(0, order, by_group)
