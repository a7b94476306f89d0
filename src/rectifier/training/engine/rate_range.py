"""The learning rate range test (Smith 2017): train a few steps at rising rates, and look where the loss falls."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, count, islice
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import nn

from rectifier._base import check, console
from rectifier.data.loader import Batch
from rectifier.training.engine.modes import set_training
from rectifier.training.engine.options import Options
from rectifier.training.engine.state import Tally
from rectifier.training.engine.step_modes import EagerStep, make_optimizer

_BETA = 0.9  # of the smoothed loss, which is the mean of the last ten steps or so
_DIVERGED = 4  # times the smallest smoothed loss
_FEWEST = 10  # steps that a curve needs


@dataclass(frozen=True)
class RateCurve:
    """The smoothed loss at each rate of a range test, until it diverges, and the rate to train with."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float

    @property
    def fall(self) -> float:
        """The share of the first loss that training at rising rates takes away: near 0 the curve says little."""
        return 1 - min(self.losses) / self.losses[0]


def find_rate(
    fabric: Fabric,
    network: nn.Module,
    objective: nn.Module,
    batches: Iterable[Batch],
    options: Options,
    *,
    mixing: nn.Module | None = None,
    lowest: float = 1e-6,
    highest: float = 10.0,
    steps: int = 100,
) -> RateCurve:
    """Train copies of a network and its objective at exponentially rising rates; the given ones stay as they are.

    The suggestion is fastai's *valley*: the rate halfway down the longest fall of the smoothed loss. The test ends when
    the smoothed loss is four times its minimum. Each group of weights has its share of the rate, as in training.

    Args:
        fabric: one process; network and objective are on its device.
        network: gives ``Output(logits, features)`` of whatever the batches hold: images, or cached features.
        objective: the loss of the training, an ``Objective``.
        batches: a loader, or any batches that can be iterated several times.
        options: how training steps are made: optimizer, weight decay, clipping, accumulation, frozen statistics.
        mixing: mixes the images, as in training.
        lowest: rate of the first step.
        highest: rate of the last step.
        steps: number of steps.
    """
    check.raise_all(
        [
            check.positive("lowest", lowest),
            check.that("highest", highest, "a number above lowest", check.is_real(highest) and highest > lowest),
            check.that("steps", steps, f"an integer from {_FEWEST}", check.is_count(steps) and steps >= _FEWEST),
        ]
    )
    rates = [lowest * (highest / lowest) ** (number / (steps - 1)) for number in range(steps)]
    losses: list[float] = []
    on_gpu = fabric.device.type == "cuda"
    with torch.random.fork_rng([fabric.device] if on_gpu else []), _same_epoch(batches), console.progress() as bar:
        found = _losses(fabric, network, objective, batches, options, mixing, rates)
        for loss in _smoothed(bar.track(found, total=steps, description="rates")):
            if not math.isfinite(loss) or loss > _DIVERGED * min([loss, *losses]):
                break
            losses.append(loss)
    if len(losses) < _FEWEST:
        got = f"diverging at {rates[len(losses)]:.1g}"
        check.fail("the loss", f"finite and not rising at the lowest rates, from {lowest:g}", got)
    return RateCurve(tuple(rates[: len(losses)]), tuple(losses), rates[_valley(losses)])


def _losses(
    fabric: Fabric,
    network: nn.Module,
    objective: nn.Module,
    batches: Iterable[Batch],
    options: Options,
    mixing: nn.Module | None,
    rates: Sequence[float],
) -> Iterator[float]:
    """Yield the loss of each step, before the step."""
    copied, objective = copy.deepcopy(network), copy.deepcopy(objective)  # an objective may remember samples
    set_progress: Any = getattr(objective, "set_progress", None)
    if set_progress is not None:
        set_progress(0.0)
    wrapped, optimizer = fabric.setup(copied, make_optimizer(copied, options))
    tally = Tally(len(objective.sizes), fabric.device)  # type: ignore[arg-type]
    step = EagerStep(fabric, copied, wrapped, optimizer, objective, tally, mixing, options.clip)
    wrapped.train()
    set_training(copied, options.freeze_norm)
    endless = chain.from_iterable(batches for _ in count())
    for rate in rates:
        step(list(islice(endless, options.accumulate)), rate)
        yield tally.means()["loss"]
        tally.reset()


@contextmanager
def _same_epoch(batches: Any) -> Iterator[None]:
    """Set a loader back to the epoch that it has now."""
    epoch = getattr(batches, "epoch", None)
    try:
        yield
    finally:
        if epoch is not None:
            batches.set_epoch(epoch)


def _smoothed(losses: Iterable[float]) -> Iterator[float]:
    """Yield the exponentially weighted mean of the losses so far.

    >>> list(_smoothed([2.0, 2.0, 2.0]))
    [2.0, 2.0, 2.0]
    """
    total = weight = 0.0
    for loss in losses:
        total, weight = _BETA * total + loss, _BETA * weight + 1
        yield total / weight


def _valley(losses: Sequence[float]) -> int:
    """Return the step halfway down the longest fall before the minimum: the longest falling subsequence, its length
    counted from its end.

    Counted so, a few steps that happen to fall on a plateau before it do not count.

    >>> _valley([5, 5, 5, 5, 4, 3, 2, 1, 9, 8, 7, 6, 5, 4, 3])
    5
    """
    losses = losses[: losses.index(min(losses)) + 1]
    lengths: list[int] = []
    for number, loss in enumerate(losses):
        before = (length for length, other in zip(lengths, losses[:number], strict=True) if loss < other)
        lengths.append(1 + max(before, default=0))
    end = lengths.index(max(lengths))
    return end - lengths[end] // 2
