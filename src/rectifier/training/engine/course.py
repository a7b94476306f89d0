"""Course: one training under way, and what it does at a time. ``fit`` drives one, or several side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.loader import Batch, Loader
from rectifier.training.config import Config
from rectifier.training.engine.devices import gather_all
from rectifier.training.engine.lanes import Lane, OnlyLane
from rectifier.training.engine.schedule import Schedule
from rectifier.training.engine.state import State
from rectifier.training.engine.step import Trained, make_step
from rectifier.training.engine.tally import Tally

Validate = Callable[[], Tensor]
"""Gives the validation's class-balanced accuracy of the network as it is, a number on the device."""


class Recorder(Protocol):
    """What keeps a training's traces. Only the first process writes."""

    def save_checkpoint(self, state: dict[str, Any]) -> None: ...

    def save_epoch(self, state: State) -> None: ...


@dataclass(frozen=True)
class Parts(Trained):
    """What a training is made of."""

    loader: Loader
    validate: Validate | None  # None: the classifier does not decide, and the last epoch is the chosen one
    names: tuple[str, ...]
    ids: Callable[[Tensor], list[str]]
    judged_from: float = 0.0  # the share of training after which an epoch can be chosen
    before_epoch: Callable[[int], None] | None = None


class Course:
    """One training from where ``state`` stands to its end, at a rate of its own. Its work is done in its lane."""

    def __init__(
        self,
        fabric: Fabric,
        parts: Parts,
        config: Config,
        lr: float,
        recorder: Recorder,
        state: State,
        lane: Lane | OnlyLane,
        name: str,
    ) -> None:
        self._fabric, self._config, self._recorder, self._lane = fabric, config, recorder, lane
        self.parts, self.state, self.name = parts, state, name
        self.tally = Tally(len(parts.names), fabric.device)
        self.batches, self.epochs = len(parts.loader), config.epochs
        if state.best_epoch is not None and not self._may_be_chosen(state.best_epoch):
            state.forget_best()  # an older version chose among all epochs
        self._lr, self._schedule = lr, make_schedule(config, self.batches)
        self._windows: Iterator[list[Batch]] | None = None  # of the present epoch

    @property
    def is_over(self) -> bool:
        return self.state.epoch >= self.epochs or self.state.is_over(self._config.patience)

    @property
    def is_epoch_over(self) -> bool:
        """Whether the present epoch has no batch left, and waits for ``end_epoch``."""
        return self.state.batch >= self.batches

    @property
    def where(self) -> str:
        """Where it stands, in words."""
        state = self.state
        if not state.batch:
            return f"the end of epoch {state.epoch}"
        return f"epoch {state.epoch + 1}, batch {state.batch} of {self.batches}"

    def begin(self) -> None:
        """Make ready, and see that there is a good checkpoint, whatever happens."""
        with self._lane.turn():
            _restore(self._fabric, self.parts, self.state, self.tally)
            steps = {part: self._schedule.total * alike for part, alike in self._lane.alike.items()}
            self._step = make_step(self._fabric, self.parts, self._config, self.tally, steps)
            if not self.state.saved:
                self._save()
            self.parts.wrapped.train()

    def _begun_epoch(self) -> Iterator[list[Batch]]:
        epoch = self.state.epoch
        set_progress: Any = getattr(self.parts.objective, "set_progress", None)
        if set_progress is not None:  # objectives that change over training
            set_progress(epoch / self.epochs)
        if self.parts.before_epoch is not None and self.state.batch == 0:
            self.parts.before_epoch(epoch)
        self.parts.loader.set_epoch(epoch, skip=self.state.batch)
        return _windows(self.parts.loader, self.batches - self.state.batch, self._config.accumulate)

    def advance(self) -> None:
        """Take a step."""
        with self._lane.turn():
            if self._windows is None:
                self._windows = self._begun_epoch()
            window = next(self._windows)
            self._step(window, self._lr * self._schedule(self.state.step))
            self.state.advance(len(window))

    def validate(self) -> Tensor | None:
        """Start validation when its turn has come; its score can be read in ``end_epoch``."""
        number = self.state.epoch + 1
        if self.parts.validate is None or (number % self._config.validate_every and number != self.epochs):
            return None
        with self._lane.turn():
            return self.parts.validate()

    def end_epoch(self, validated: Tensor | None) -> None:
        """Note the epoch, and what validation thinks of it when its turn had come."""
        with self._lane.turn():
            if self._windows is not None:
                next(self._windows, None)  # lets the loader close what it opened
                self._windows = None
            score = None if validated is None else float(validated)
            number, rate = self.state.epoch + 1, self._lr * self._schedule(self.state.step - 1)
            row = {"epoch": number, "step": self.state.step, "lr": rate, **self.tally.means(), "validation": score}
            self.state.end_epoch(row, self.tally.by_label(self.parts.names))
            if score is not None and self._may_be_chosen(number):
                self.state.judge(score, self.parts.bare, keep_last=self._config.select == "last")
            elif self.parts.validate is None and number == self.epochs:
                self.state.keep(self.parts.bare)
            self.tally.reset()
        self._recorder.save_epoch(self.state)

    def _may_be_chosen(self, number: int) -> bool:
        """Say whether an epoch, counted from 1, began when the method was all that it is."""
        return (number - 1) / self.epochs >= self.parts.judged_from

    def means(self) -> dict[str, float]:
        """Return the loss and its parts in the present epoch. Waits for the device."""
        with self._lane.turn():
            return self.tally.means()

    def complaint(self, weights: bool) -> str | None:
        """Say which loss was not finite, or that the weights are not: nothing may be saved after that."""
        with self._lane.turn():
            bad, where = self.tally.first_bad(), f"epoch {self.state.epoch + 1}"
            if bad is not None:
                self.parts.loader.set_epoch(self.state.epoch)
                ids = self.parts.ids(self.parts.loader.positions(bad))
                got = f"one that is not in batch {bad + 1} of {where} (images {', '.join(ids[:3])}, ...)"
                return check.sentence("the loss", "finite", got)
            if weights and not _all_finite(self.parts.bare.parameters()):
                return check.sentence("the weights", "finite after every step", f"infinite or NaN ones in {where}")
        return None

    def save(self) -> None:
        with self._lane.turn():
            self._save()

    def _save(self) -> None:
        random = _random_states(self._fabric)
        if self._fabric.is_global_zero:
            self._recorder.save_checkpoint(
                {
                    **self.state.as_dict(),
                    "network": self.parts.bare.state_dict(),
                    "optimizer": self.parts.optimizer.state_dict(),
                    "objective": self.parts.objective.state_dict(),
                    "sampler": _sampler_state(self.parts.loader),
                    "precision": self._fabric.strategy.precision.state_dict(),
                    "tally": self.tally.state(),
                    "random": random,
                }
            )
        self.state.saved = {"step": self.state.step}


def make_schedule(config: Config, batches: int) -> Schedule:
    """Return the schedule of a training with so many batches an epoch."""
    steps = -(-batches // config.accumulate)
    warmup = round(config.warmup * steps)
    return Schedule(config.schedule, config.epochs * steps, warmup, config.milestones, config.decay)


def _windows(batches: Iterable[Batch], count: int, length: int) -> Iterator[list[Batch]]:
    """Yield batches in groups of ``length``, whose gradients become one step; the last group may be shorter."""
    window: list[Batch] = []
    for number, batch in enumerate(batches, start=1):
        window.append(batch)
        if len(window) == length or number == count:
            yield window
            window = []


def _all_finite(weights: Iterable[Tensor]) -> bool:
    # NaN is larger than all. A few kernels for all weights, and one wait for the device.
    return bool(torch.nn.utils.get_total_norm(weights, norm_type=math.inf).isfinite())


def _restore(fabric: Fabric, parts: Parts, state: State, tally: Tally) -> None:
    saved = state.saved
    if not saved:
        return
    parts.bare.load_state_dict(saved["network"])
    _load_optimizer(parts.optimizer, saved["optimizer"])
    parts.objective.load_state_dict(saved.get("objective", {}), strict="objective" in saved)
    if saved.get("sampler"):
        on_device = {name: tensor.to(fabric.device) for name, tensor in saved["sampler"].items()}
        parts.loader.sampler.load(on_device)  # type: ignore[union-attr]
    fabric.strategy.precision.load_state_dict(saved["precision"])
    tally.load(saved["tally"])
    if len(saved["random"]) == fabric.world_size:
        _set_random_state(fabric, saved["random"][fabric.global_rank])
    else:
        before = check.amount(len(saved["random"]), "process")
        console.say(f"The run was on {before}; random masks (dropout) will not be those of an unbroken run.")


def _sampler_state(loader: Loader) -> dict[str, Tensor]:
    """Return what a sampler remembers beside its seed and epoch; most remember nothing."""
    state = getattr(loader.sampler, "state", None)
    return state() if callable(state) else {}


def _load_optimizer(optimizer: Any, state: dict[str, Any]) -> None:
    """Load moments; the rate stays the tensor, or the number, that it is: the schedule says its value."""
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
