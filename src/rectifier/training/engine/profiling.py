"""Measure where the time of a step goes: data, network, cross-entropy, rectification, optimizer."""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from statistics import median

import torch
from lightning.fabric import Fabric
from torch import nn

from rectifier.data.loader import Loader
from rectifier.losses.cross_entropy import CrossEntropyLoss
from rectifier.losses.objective import Objective
from rectifier.training.engine.modes import set_training
from rectifier.training.engine.options import Options
from rectifier.training.engine.step_modes import make_optimizer

STEPS = 20
_WARM_UP = 3


def profile_step(
    fabric: Fabric, network: nn.Module, objective: nn.Module, loader: Loader, options: Options
) -> dict[str, float]:
    """Return the seconds of each part of a step, forward and backward: medians over some steps on copies.

    The profile waits for the device after each part, so the parts add up to more than a captured step, which never
    waits. ``rectification`` is the time that the objective takes beyond plain cross-entropy.
    """
    copied, objective = copy.deepcopy(network), copy.deepcopy(objective)  # an objective may remember samples
    plain = Objective(CrossEntropyLoss(), objective.sizes).to(fabric.device)  # type: ignore[arg-type]
    optimizer = make_optimizer(copied, options)
    times: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def watch(name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        if fabric.device.type == "cuda":
            torch.cuda.synchronize(fabric.device)
        times[name].append(time.perf_counter() - began)

    set_training(copied, options.freeze_norm)
    loader.set_epoch(0)
    batches = chain.from_iterable(loader for _ in count())  # of as many epochs as needed
    with torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []):
        for _ in range(STEPS + _WARM_UP):
            with watch("data"):
                batch = next(batches)
            with watch("network"), fabric.autocast():
                output = copied(batch.images)
            inputs = [tensor.detach().requires_grad_() for tensor in output]  # in the network's precision
            with watch("cross-entropy"):
                torch.autograd.grad(plain(inputs[0], batch.targets), inputs, materialize_grads=True)
            with watch("objective"):
                loss = objective(inputs[0], batch.targets, inputs[1])
                slopes = torch.autograd.grad(loss, inputs, materialize_grads=True)
            with watch("network again"):
                optimizer.zero_grad()
                torch.autograd.backward(list(output), list(slopes))
            with watch("optimizer"):
                optimizer.step()
    loader.set_epoch(0)
    found = {name: median(own[_WARM_UP:]) for name, own in times.items()}  # the first steps set things up
    return {
        "data": found["data"],
        "network": found["network"] + found["network again"],
        "cross-entropy": found["cross-entropy"],
        "rectification": max(found["objective"] - found["cross-entropy"], 0.0),
        "optimizer": found["optimizer"],
    }


def describe(seconds: dict[str, float], captured: bool = False) -> str:
    """Describe a profile as text; ``captured`` says whether training captures its steps.

    >>> print(describe({"data": 0.001, "network": 0.003}))
    Time of a step, waiting after each part:
      data              1.00 ms   25 %
      network           3.00 ms   75 %
    """
    total = sum(seconds.values()) or 1.0
    rows = [f"  {name:14s} {1000 * value:7.2f} ms  {100 * value / total:3.0f} %" for name, value in seconds.items()]
    remark = ["  Training captures the step, which is faster where kernels are many and small (rectification)."]
    return "\n".join(["Time of a step, waiting after each part:", *rows, *(remark if captured else [])])
