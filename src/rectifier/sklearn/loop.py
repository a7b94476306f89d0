"""The training loop over tensors in memory, the order of its samples, and its random numbers."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base import console
from rectifier.labels.space import LabelSpace
from rectifier.methods import build_sampler
from rectifier.sklearn.inputs import as_float, chunks

_MOST_COPIES = 10  # of a sample, on average, for whole weights
_ONE_FIT = threading.RLock()  # PyTorch has one random state for all threads


@contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Draw random numbers from a seed and restore PyTorch's random states afterwards."""
    devices = [device] if device.type == "cuda" else []
    with _ONE_FIT, torch.random.fork_rng(devices):
        torch.default_generator.manual_seed(seed)
        for each in devices:
            with torch.cuda.device(each):
                torch.cuda.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Training:
    """The options of one training, and what comes between the data and the loss."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    device: torch.device
    mixing: nn.Module | None = None
    augment: Callable[[Tensor], Tensor] | None = None
    verbose: bool = False


@dataclass
class Curves:
    """The mean loss of every epoch, the validation scores, and the weights with the best score."""

    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    best_score: float = -math.inf
    best_epoch: int = 0
    best_weights: dict[str, Tensor] | None = None


Order = Callable[[int], Tensor]
"""Gives the rows of an epoch, in the order of training."""


def training_order(
    method: str, targets: Tensor, weights: Tensor, space: LabelSpace, *, seed: int, **more: Any
) -> Order:
    """Return the rows of each epoch. A row of weight 2 comes twice as often as one of weight 1.

    ``copies`` gives the copies of each row, on average. If they are not whole, each epoch draws whole numbers around
    them.
    """
    rows, weights, sampler = torch.arange(len(targets)), copies(weights), None
    if is_whole(weights):
        rows = rows.repeat_interleave(weights.long())
        sampler = build_sampler(method, targets[rows], space, seed=seed, **more)

    def order(epoch: int) -> Tensor:
        drawn, chosen = rows, sampler
        if chosen is None:
            reached = (weights.cumsum(0) + torch.rand(())).floor().long()
            drawn = rows.repeat_interleave(reached.diff(prepend=torch.zeros(1, dtype=torch.int64)))
            chosen = build_sampler(method, targets[drawn], space, seed=seed, **more)
        chosen.set_epoch(epoch)
        return drawn[chosen.plan()]

    return order


def copies(weights: Tensor) -> Tensor:
    """Return the copies of each sample in an epoch: the weights if they are whole, else scaled to mean 1.

    Large whole weights, such as those of a survey, are scaled too. Otherwise an epoch would hardly end.

    >>> copies(torch.tensor([1.0, 3.0])), copies(torch.tensor([0.1, 0.3]))
    (tensor([1., 3.]), tensor([0.5000, 1.5000]))
    """
    repeats = is_whole(weights) and weights.mean() <= _MOST_COPIES
    return weights if repeats else weights / weights.mean()


def is_whole(weights: Tensor) -> bool:
    return bool((weights == weights.round()).all())


def train(
    model: nn.Module,
    objective: nn.Module,
    samples: Tensor,
    targets: Tensor,
    order: Order,
    how: Training,
    score: Callable[[], float] | None = None,
    patience: int = 0,
    choose_from: float = 0.0,
) -> Curves:
    """Train with AdamW and a rate that falls as half a cosine wave. Biases and scales of normalisation do not decay.

    With ``score``, stop after ``patience`` epochs without a better one and restore the best weights. Epochs before the
    share ``choose_from`` of training do not count.
    """
    for module in (model, objective, how.mixing):
        if module is not None:
            module.to(how.device).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [weight for weight in trained if weight.dim() > 1], "weight_decay": how.weight_decay},
        {"params": [weight for weight in trained if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=how.learning_rate)
    set_progress: Any = getattr(objective, "set_progress", None)
    curves = Curves()
    for epoch in range(how.epochs):
        if set_progress is not None:
            set_progress(epoch / how.epochs)
        rows = order(epoch)
        batches = rows.tensor_split(math.ceil(len(rows) / how.batch_size))  # of equal size, so that none is tiny
        total = torch.zeros((), device=how.device)  # a number would stall a GPU in every step
        for number, batch in enumerate(batches):
            done = (epoch + number / len(batches)) / how.epochs
            for group in optimizer.param_groups:
                group["lr"] = how.learning_rate * (1 + math.cos(math.pi * done)) / 2
            loss = _loss(model, objective, samples[batch], targets[batch], how)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
        curves.losses.append(float(total) / len(rows))
        if not math.isfinite(curves.losses[-1]):
            raise FloatingPointError(
                f"The loss is not finite in epoch {epoch + 1}. A smaller learning_rate often helps."
            )
        if score is not None:
            _judge(curves, model, score(), counts=epoch / how.epochs >= choose_from)
        if how.verbose:
            scored = f", validation {curves.scores[-1]:.4f}" if curves.scores else ""
            console.say(f"Epoch {epoch + 1} of {how.epochs}: loss {curves.losses[-1]:.4f}{scored}")
        if curves.best_weights is not None and epoch + 1 - curves.best_epoch >= patience:
            break
    if curves.best_weights is not None:
        model.load_state_dict(curves.best_weights)
    return curves


def outputs(model: nn.Module, samples: Tensor, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return logits and, where the network gives them, features of all samples, on the CPU. The mode is restored."""
    was_training = model.training
    model.to(device).eval()
    with torch.inference_mode():
        found = [_output(model, _inputs(model, batch, device)) for batch in chunks(samples)]
    model.train(was_training)
    logits = torch.cat([logits for logits, _ in found]).cpu()
    features = [own for _, own in found if own is not None]
    return logits, torch.cat(features).cpu() if features else None


def _judge(curves: Curves, model: nn.Module, score: float, counts: bool) -> None:
    curves.scores.append(score)
    if counts and score > curves.best_score:
        curves.best_score, curves.best_epoch = score, len(curves.scores)
        curves.best_weights = {name: value.detach().clone() for name, value in model.state_dict().items()}


def _loss(model: nn.Module, objective: nn.Module, samples: Tensor, targets: Tensor, how: Training) -> Tensor:
    inputs, own = _inputs(model, samples, how.device), targets.to(how.device)
    more: dict[str, Any] = {}
    if how.augment is not None:
        inputs = how.augment(inputs)
    if how.mixing is not None:
        inputs, more["partner"] = how.mixing(inputs, own)
    logits, features = _output(model, inputs)
    loss: Tensor = objective(logits, own, features, **more)
    return loss


def _inputs(model: nn.Module, samples: Tensor, device: torch.device) -> Tensor:
    """Return samples in the network's precision. Bytes are moved as bytes, numbers in this precision."""
    dtype = next(model.parameters()).dtype
    moved = samples if samples.dtype == torch.uint8 else samples.to(dtype)
    return as_float(moved.to(device), dtype)


def _output(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return logits and features. A network may give logits alone."""
    output: Any = model(inputs)
    return (output, None) if isinstance(output, Tensor) else (output.logits, getattr(output, "features", None))
