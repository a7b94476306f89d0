"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor

from rectifier import check, console
from rectifier.config import Config
from rectifier.data.loader import Batch, Loader
from rectifier.engine.devices import gather_all
from rectifier.engine.display import Display
from rectifier.engine.interrupt import Interrupt, Stopped
from rectifier.engine.schedule import Schedule
from rectifier.engine.state import State
from rectifier.engine.step import Trained, make_step
from rectifier.engine.tally import Tally

Validate = Callable[[], float]
"""Gives the validation's class-balanced accuracy of the network as it is."""

_ASK_EVERY = 10  # steps, for processes to agree whether to save or stop: each time they wait for each other


class Recorder(Protocol):
    """What keeps a training's traces. Only the first process writes."""

    def save_checkpoint(self, state: dict[str, Any]) -> None: ...

    def save_epoch(self, state: State) -> None: ...


@dataclass(frozen=True)
class Parts(Trained):
    """What a training is made of."""

    loader: Loader
    validate: Validate
    names: tuple[str, ...]
    ids: Callable[[Tensor], list[str]]


def make_schedule(config: Config, batches: int) -> Schedule:
    """Return the schedule of a training with so many batches an epoch."""
    steps = -(-batches // config.accumulate)
    warmup = round(config.warmup * steps)
    return Schedule(config.schedule, config.epochs * steps, warmup, config.milestones, config.decay)


def fit(fabric: Fabric, parts: Parts, config: Config, lr: float, recorder: Recorder, state: State) -> State:
    """Train from where ``state`` stands to the end, and return the end."""
    schedule = make_schedule(config, len(parts.loader))
    tally = Tally(len(parts.names), fabric.device)
    _restore(fabric, parts, state, tally)
    step = make_step(fabric, parts, config, tally, schedule.total)
    saved_at = time.monotonic()

    with Interrupt() as interrupt, Display(config.epochs, len(parts.loader)) as display:
        if not state.saved:  # so that there is a good checkpoint, whatever happens
            _save(fabric, parts, state, tally, recorder)
        parts.wrapped.train()
        while state.epoch < config.epochs and not state.is_over(config.patience):
            parts.loader.set_epoch(state.epoch, skip=state.batch)
            for window in _windows(parts.loader, len(parts.loader) - state.batch, config.accumulate):
                step(window, lr * schedule(state.step))
                state.advance(len(window))
                due = time.monotonic() - saved_at >= config.checkpoint_seconds
                asked = fabric.world_size == 1 or state.step % _ASK_EVERY == 0
                stop, save = _agreed(fabric, interrupt.signal, due) if asked else (0, False)
                if stop or save or display.is_due() or fabric.device.type == "cpu":
                    _check_finite(parts, state, tally)
                if stop or save:
                    _save(fabric, parts, state, tally, recorder)
                    saved_at = time.monotonic()
                if stop:
                    raise Stopped(stop, f"epoch {state.epoch + 1}, batch {state.batch} of {len(parts.loader)}")
                display.show(state, tally)
            _check_finite(parts, state, tally, weights=True)
            _end_epoch(parts, config, lr * schedule(state.step - 1), tally, state)
            tally.reset()
            recorder.save_epoch(state)
            display.end_epoch(state)
            stop, _ = _agreed(fabric, interrupt.signal, due=False)
            if stop:  # it came with the last steps, or while validation was at work
                _save(fabric, parts, state, tally, recorder)
                raise Stopped(stop, f"the end of epoch {state.epoch}")
        _save(fabric, parts, state, tally, recorder)
    return state


def _windows(batches: Iterable[Batch], count: int, length: int) -> Iterator[list[Batch]]:
    """Yield batches in groups of ``length``, whose gradients become one step; the last group may be shorter."""
    window: list[Batch] = []
    for number, batch in enumerate(batches, start=1):
        window.append(batch)
        if len(window) == length or number == count:
            yield window
            window = []


def _agreed(fabric: Fabric, number: int | None, due: bool) -> tuple[int, bool]:
    """Return whether to stop (the signal's number, or 0) and whether to save: the same in every process."""
    if fabric.world_size == 1:
        return number or 0, due
    wishes = torch.tensor([number or 0, int(due and fabric.is_global_zero)], device=fabric.device)
    dist.all_reduce(wishes, op=dist.ReduceOp.MAX)
    stop, save = wishes.tolist()
    return stop, bool(save)


def _end_epoch(parts: Parts, config: Config, rate: float, tally: Tally, state: State) -> None:
    """Note the epoch, and validate when its turn has come."""
    number = state.epoch + 1
    validated = number % config.validate_every == 0 or number == config.epochs
    score = parts.validate() if validated else None
    row = {"epoch": number, "step": state.step, "lr": rate, **tally.means(), "validation": score}
    state.end_epoch(row, tally.by_label(parts.names))
    if score is not None:
        state.judge(score, parts.bare, keep_last=config.select == "last")


def _check_finite(parts: Parts, state: State, tally: Tally, weights: bool = False) -> None:
    """Stop when a loss was not finite, or when the weights are not: nothing is saved after that."""
    bad = tally.first_bad()
    where = f"epoch {state.epoch + 1}"
    if bad is None and weights and not _all_finite(parts.bare.parameters()):
        wanted = "finite after every step"
        raise FloatingPointError(check.sentence("the weights", wanted, f"infinite or NaN ones in {where}") + _REMEDY)
    if bad is not None:
        parts.loader.set_epoch(state.epoch)
        ids = parts.ids(parts.loader.positions(bad))
        got = f"one that is not in batch {bad + 1} of {where} (images {', '.join(ids[:3])}, ...)"
        raise FloatingPointError(check.sentence("the loss", "finite", got) + _REMEDY)


def _all_finite(weights: Iterable[Tensor]) -> bool:
    return bool(torch.stack([weight.isfinite().all() for weight in weights]).all())  # one wait for the device


_REMEDY = (
    " Training ends; the last good checkpoint is kept. A smaller rate, clipped gradients or a warm-up often help:"
    " rectifier train --config RUN/config.json --lr ... --set clip=1 --out ANOTHER."
)


def _save(fabric: Fabric, parts: Parts, state: State, tally: Tally, recorder: Recorder) -> None:
    random = _random_states(fabric)
    if fabric.is_global_zero:
        recorder.save_checkpoint(
            {
                **state.as_dict(),
                "network": parts.bare.state_dict(),
                "optimizer": parts.optimizer.state_dict(),
                "precision": fabric.strategy.precision.state_dict(),
                "tally": tally.state(),
                "random": random,
            }
        )
    state.saved = {"step": state.step}


def _restore(fabric: Fabric, parts: Parts, state: State, tally: Tally) -> None:
    saved = state.saved
    if not saved:
        return
    parts.bare.load_state_dict(saved["network"])
    _load_optimizer(parts.optimizer, saved["optimizer"])
    fabric.strategy.precision.load_state_dict(saved["precision"])
    tally.load(saved["tally"])
    if len(saved["random"]) == fabric.world_size:
        _set_random_state(fabric, saved["random"][fabric.global_rank])
    else:
        before = check.amount(len(saved["random"]), "process")
        console.say(f"The run was on {before}; random masks (dropout) will not be those of an unbroken run.")


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
