"""Course: one training under way. ``loop.training`` runs it, ``fit`` drives one or several in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier._base import check, console
from rectifier.data.loader import Batch, Loader
from rectifier.training.engine.devices import gather_all
from rectifier.training.engine.lanes import Lane, OnlyLane
from rectifier.training.engine.loop import training
from rectifier.training.engine.options import Options
from rectifier.training.engine.schedule import make_schedule
from rectifier.training.engine.state import State
from rectifier.training.engine.step import EagerStep, fastest, make_optimizer
from rectifier.training.engine.tally import Tally


class Recorder(Protocol):
    """Saves the traces of a training."""

    def save_checkpoint(self, state: dict[str, Any]) -> None: ...

    def save_epoch(self, state: State) -> None: ...


@dataclass(eq=False)
class Course:
    """One training, from its ``state`` to its end. Network and objective are on the device of ``fabric``."""

    name: str  # for messages
    fabric: Fabric
    options: Options
    network: nn.Module
    objective: nn.Module
    loader: Loader
    labels: tuple[str, ...]
    ids: Callable[[Tensor], list[str]]  # gives the names of the samples at some positions
    state: State
    recorder: Recorder | None = None  # None in processes that do not write
    lane: Lane | OnlyLane = field(default_factory=OnlyLane)
    mixing: nn.Module | None = None
    validation: Callable[[], Tensor] | None = None  # gives a score; without it the last epoch is chosen
    before_epoch: Callable[[int], None] | None = None  # gets the number of each epoch, from 0

    def __post_init__(self) -> None:
        self.wrapped, self.optimizer = self.fabric.setup(self.network, make_optimizer(self.network, self.options))
        self.tally = Tally(len(self.labels), self.fabric.device)
        self.batches = len(self.loader)
        self._schedule = make_schedule(self.options, self.batches)
        self._loop = training(self)

    @property
    def is_over(self) -> bool:
        return self.state.epoch >= self.options.epochs or self.state.is_over(self.options.patience)

    @property
    def is_epoch_over(self) -> bool:
        """Whether all batches of the current epoch are done."""
        return self.state.batch >= self.batches

    @property
    def where(self) -> str:
        """The position in the training, in words."""
        state = self.state
        if not state.batch:
            return f"the end of epoch {state.epoch}"
        return f"epoch {state.epoch + 1}, batch {state.batch} of {self.batches}"

    def start(self) -> None:
        """Restore the state, and make sure that a good checkpoint exists."""
        with self.lane.turn():
            self._restore()
            steps = {part: self._schedule.total * alike for part, alike in self.lane.alike.items()}
            trained = (self.network, self.wrapped, self.optimizer, self.objective, self.tally)
            self.step = fastest(EagerStep(self.fabric, *trained, self.mixing, self.options.clip), self.options, steps)
            if not self.state.saved:
                self._save()
            self.wrapped.train()

    def advance(self) -> None:
        """Run the training loop to its next pause: a step, the start of a validation, or the end of an epoch."""
        with self.lane.turn():
            next(self._loop)

    # What the loop calls, in this course's lane.

    def windows(self) -> Iterator[list[Batch]]:
        """Start or resume the current epoch, and return its batches in windows: one step is made for each window."""
        epoch = self.state.epoch
        set_progress: Any = getattr(self.objective, "set_progress", None)
        if set_progress is not None:  # not every objective changes during training
            set_progress(epoch / self.options.epochs)
        if self.before_epoch is not None and self.state.batch == 0:
            self.before_epoch(epoch)
        self.loader.set_epoch(epoch, skip=self.state.batch)
        return _windows(self.loader, self.batches - self.state.batch, self.options.accumulate)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.options.lr * self._schedule(step)

    def validate(self) -> Tensor | None:
        """Start a validation if it is due. ``end_epoch`` reads the score."""
        number = self.state.epoch + 1
        if self.validation is None or (number % self.options.validate_every and number != self.options.epochs):
            return None
        return self.validation()

    def end_epoch(self, validated: Tensor | None) -> None:
        """Record the epoch, and keep its weights if it is the best."""
        score = None if validated is None else float(validated)
        number, rate = self.state.epoch + 1, self.rate(self.state.step - 1)
        row = {"epoch": number, "step": self.state.step, "lr": rate, **self.tally.means(), "validation": score}
        self.state.end_epoch(row, self.tally.by_label(self.labels))
        if score is not None and (number - 1) / self.options.epochs >= self.options.choose_from:
            self.state.judge(score, self.network, keep_last=self.options.select == "last")
        elif self.validation is None and number == self.options.epochs:
            self.state.keep(self.network)
        self.tally.reset()
        if self.recorder is not None:
            self.recorder.save_epoch(self.state)

    # What the driver asks between two steps.

    def means(self) -> dict[str, float]:
        """Return the loss and its parts in the current epoch. Waits for the device."""
        with self.lane.turn():
            return self.tally.means()

    def complaint(self, weights: bool) -> str | None:
        """Say which loss is not finite, or that the weights are not. Nothing may be saved after that."""
        with self.lane.turn():
            bad, where = self.tally.first_bad(), f"epoch {self.state.epoch + 1}"
            if bad is not None:
                self.loader.set_epoch(self.state.epoch)
                ids = ", ".join(self.ids(self.loader.positions(bad))[:3])
                return f"The loss is not finite in batch {bad + 1} of {where} (images {ids}, ...)."
            if weights and not _all_finite(self.network.parameters()):
                return f"The weights are not finite in {where}."
        return None

    def save(self) -> None:
        with self.lane.turn():
            self._save()

    def _save(self) -> None:
        random = _random_states(self.fabric)
        sampler_state = getattr(self.loader.sampler, "state", None)  # most samplers have only a seed and an epoch
        if self.recorder is not None:
            self.recorder.save_checkpoint(
                {
                    **self.state.as_dict(),
                    "network": self.network.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "objective": self.objective.state_dict(),
                    "sampler": sampler_state() if callable(sampler_state) else {},
                    "precision": self.fabric.strategy.precision.state_dict(),
                    "tally": self.tally.state(),
                    "random": random,
                }
            )
        self.state.saved = {"step": self.state.step}

    def _restore(self) -> None:
        saved, fabric = self.state.saved, self.fabric
        if not saved:
            return
        self.network.load_state_dict(saved["network"])
        _load_optimizer(self.optimizer, saved["optimizer"])
        self.objective.load_state_dict(saved["objective"])
        if saved["sampler"]:
            on_device = {name: tensor.to(fabric.device) for name, tensor in saved["sampler"].items()}
            self.loader.sampler.load(on_device)  # type: ignore[union-attr]
        fabric.strategy.precision.load_state_dict(saved["precision"])
        self.tally.load(saved["tally"])
        if len(saved["random"]) == fabric.world_size:
            _set_random_state(fabric, saved["random"][fabric.global_rank])
        else:
            before = check.amount(len(saved["random"]), "process")
            console.say(f"The run started on {before}. Its random masks (dropout) will differ from an unbroken run's.")


def _windows(batches: Iterable[Batch], count: int, length: int) -> Iterator[list[Batch]]:
    """Yield batches in groups of ``length``, whose gradients become one step; the last group may be shorter."""
    window: list[Batch] = []
    for number, batch in enumerate(batches, start=1):
        window.append(batch)
        if len(window) == length or number == count:
            yield window
            window = []


def _all_finite(weights: Iterable[Tensor]) -> bool:
    # NaN is the largest. A few kernels for all weights, and one wait for the device.
    return bool(torch.nn.utils.get_total_norm(weights, norm_type=math.inf).isfinite())


def _load_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Load the moments. The rate stays the same tensor or number, because the schedule sets its value."""
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _random_states(fabric: Fabric) -> list[dict[str, Tensor]]:
    """Return the state of the random generators of every process."""
    own = {"cpu": torch.get_rng_state()}
    if fabric.device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(fabric.device)
    return gather_all(fabric, own)


def _set_random_state(fabric: Fabric, state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if fabric.device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], fabric.device)
