"""Draw samples with replacement by class: all classes equally often, by the root of their size, or progressively."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Generator, Tensor

from rectifier._base import check
from rectifier.labels.columns import Sizes
from rectifier.samplers.base import Common, EpochSampler
from rectifier.samplers.class_members import Targets, present_classes


class ClassBalancedSampler(EpochSampler[int]):
    """Draw with replacement: a label, then one of its classes, then one of that class's samples, all uniformly.

    Empty classes and labels are skipped. ``samples`` is the length of an epoch, by default the number of samples.

    >>> targets = torch.tensor([0] * 90 + [1] * 10)
    >>> drawn = targets[ClassBalancedSampler(targets, samples=10_000).plan()]
    >>> abs(drawn.double().mean() - 0.5).item() < 0.03
    True
    """

    def __init__(
        self, targets: Targets, sizes: Sizes | None = None, *, samples: int | None = None, **common: Unpack[Common]
    ) -> None:
        self._present = present_classes(targets, sizes)
        self._members = self._present.members()
        self.samples = len(self._present.own) if samples is None else samples
        super().__init__(**common)

    def complaints(self) -> list[str | None]:
        return [check.count("samples", self.samples)]

    def length(self) -> int:
        return int(self.samples)

    def class_weights(self) -> Tensor:
        """Return how often each class with samples is drawn within its label, in any scale: float64 ``(C,)``."""
        return torch.ones(len(self._present.counts), dtype=torch.float64)

    def draw(self, generator: Generator) -> Tensor:
        shares = self._present.shares(self.class_weights())
        drawn = torch.multinomial(shares, self.total, replacement=True, generator=generator)
        # The remainder of so large a number is practically uniform and, unlike a scaled fraction, always in range.
        place = torch.randint(2**62, (self.total,), generator=generator) % self._present.counts[drawn]
        return self._members[self._present.starts[drawn] + place]


class SquareRootSampler(ClassBalancedSampler):
    """Draw like ``ClassBalancedSampler``, but a class of n samples with probability proportional to sqrt(n)."""

    def class_weights(self) -> Tensor:
        return self._present.counts.double().sqrt()


class ProgressiveSampler(ClassBalancedSampler):
    """Move from natural to balanced class frequencies over ``epochs`` epochs (Kang et al. 2020, "Decoupling").

    The probability of a class of n samples is (1 - t) n / sum(n) + t / C, C the number of classes of its label. t rises
    from 0 in the first epoch to 1 in the last and stays there. With a single epoch t is 0.

    >>> targets = torch.tensor([0] * 90 + [1] * 10)
    >>> sampler = ProgressiveSampler(targets, epochs=11, samples=10_000)
    >>> sampler.set_epoch(5)
    >>> abs(targets[sampler.plan()].double().mean() - 0.3).item() < 0.03
    True
    """

    def __init__(
        self,
        targets: Targets,
        sizes: Sizes | None = None,
        *,
        epochs: int,
        samples: int | None = None,
        **common: Unpack[Common],
    ) -> None:
        self.epochs = epochs
        super().__init__(targets, sizes, samples=samples, **common)

    def complaints(self) -> list[str | None]:
        return [check.count("epochs", self.epochs), *super().complaints()]

    def progress(self) -> float:
        return min(self.epoch / max(self.epochs - 1, 1), 1.0)

    def class_weights(self) -> Tensor:
        natural = self._present.shares(self._present.counts.double())
        return torch.lerp(natural, self._present.shares(super().class_weights()), self.progress())


class CurriculumSampler(ProgressiveSampler):
    """Move from natural to balanced class frequencies as in dynamic curriculum learning (Wang et al. 2019).

    The probability of a class of n samples is proportional to n^g. g falls from 1 to 0 over ``epochs``, as a quarter of
    a cosine wave, so rare classes come late.
    """

    def class_weights(self) -> Tensor:
        return self._present.counts.double() ** math.cos(math.pi / 2 * self.progress())
