"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from torch import Tensor, nn

from rectifier import check, console
from rectifier.config import Config
from rectifier.data.loader import Batch, Loader
from rectifier.engine.devices import gather_all
from rectifier.engine.display import Display
from rectifier.engine.interrupt import Interrupt, Stopped
from rectifier.engine.schedule import Schedule
from rectifier.engine.state import State
from rectifier.engine.tally import Tally

Validate = Callable[[], float]
"""Gives the validation's class-balanced accuracy of the network as it is."""

_ASK_EVERY = 10  # steps, for processes to agree whether to save or stop: each time they wait for each other


class Recorder(Protocol):
    """What keeps a training's traces. Only the first process writes."""

    def save_checkpoint(self, state: dict[str, Any]) -> None: ...

    def save_epoch(self, state: State) -> None: ...


@dataclass(frozen=True)
class Parts:
    """What a training is made of. ``bare`` is the network, ``wrapped`` what Fabric made of it."""

    bare: nn.Module
    wrapped: Any
    optimizer: Any
    objective: nn.Module
    loader: Loader
    validate: Validate
    names: tuple[str, ...]
    ids: Callable[[Tensor], list[str]]


def make_optimizer(network: nn.Module, config: Config, lr: float) -> torch.optim.Optimizer:
    """Return the optimizer that the config names, over all weights."""
    if config.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), lr=lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        network.parameters(),
        lr=lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
    )


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
    saved_at = time.monotonic()

    with Interrupt() as interrupt, Display(config.epochs, len(parts.loader)) as display:
        if not state.saved:  # so that there is a good checkpoint, whatever happens
            _save(fabric, parts, state, tally, recorder)
        parts.wrapped.train()
        while state.epoch < config.epochs and not state.is_over(config.patience):
            parts.loader.set_epoch(state.epoch, skip=state.batch)
            for window in _windows(parts.loader, len(parts.loader) - state.batch, config.accumulate):
                _set_rate(parts.optimizer, lr * schedule(state.step))
                _step(fabric, parts, window, config.clip, tally)
                state.advance(len(window))
                due = time.monotonic() - saved_at >= config.checkpoint_seconds
                stop, save = _agreed(fabric, state.step, interrupt.signal, due)
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
            tally = Tally(len(parts.names), fabric.device)
            recorder.save_epoch(state)
            display.end_epoch(state)
            stop, _ = _agreed(fabric, 0, interrupt.signal, False)
            if stop:  # it came with the last steps, or while validation was at work
                _save(fabric, parts, state, tally, recorder)
                raise Stopped(stop, f"the end of epoch {state.epoch}")
        _save(fabric, parts, state, tally, recorder)
    return state


def _step(fabric: Fabric, parts: Parts, window: list[Batch], clip: float | None, tally: Tally) -> None:
    """Take one step of the optimizer on the mean gradient of some batches."""
    parts.optimizer.zero_grad()
    for batch in window:
        with fabric.no_backward_sync(parts.wrapped, enabled=batch is not window[-1]):
            output = parts.wrapped(batch.images)
            found = parts.objective(output.logits, batch.targets, output.features, return_parts=True)
            fabric.backward(found.loss if len(window) == 1 else found.loss / len(window))
        tally.add(found)
    if clip is not None:
        fabric.clip_gradients(parts.wrapped, parts.optimizer, max_norm=clip, error_if_nonfinite=False)
    parts.optimizer.step()


def _windows(batches: Iterable[Batch], count: int, length: int) -> Iterator[list[Batch]]:
    """Yield batches in groups of ``length``, whose gradients become one step; the last group may be shorter."""
    window: list[Batch] = []
    for number, batch in enumerate(batches, start=1):
        window.append(batch)
        if len(window) == length or number == count:
            yield window
            window = []


def _set_rate(optimizer: Any, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _agreed(fabric: Fabric, step: int, number: int | None, due: bool) -> tuple[int, bool]:
    """Return whether to stop (the signal's number, or 0) and whether to save: the same in every process."""
    if fabric.world_size == 1:
        return number or 0, due
    if step % _ASK_EVERY:
        return 0, False
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
    if bad is None and weights and not all(bool(w.isfinite().all()) for w in parts.bare.parameters()):
        wanted = "finite after every step"
        raise FloatingPointError(check.sentence("the weights", wanted, f"infinite or NaN ones in {where}") + _REMEDY)
    if bad is not None:
        parts.loader.set_epoch(state.epoch)
        ids = parts.ids(parts.loader.positions(bad))
        got = f"one that is not in batch {bad + 1} of {where} (images {', '.join(ids[:3])}, ...)"
        raise FloatingPointError(check.sentence("the loss", "finite", got) + _REMEDY)


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
    parts.optimizer.load_state_dict(saved["optimizer"])
    fabric.strategy.precision.load_state_dict(saved["precision"])
    tally.load(saved["tally"])
    if len(saved["random"]) == fabric.world_size:
        _set_random_state(fabric, saved["random"][fabric.global_rank])
    else:
        before = check.amount(len(saved["random"]), "process")
        console.say(f"The run was on {before}; random masks (dropout) will not be those of an unbroken run.")


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
