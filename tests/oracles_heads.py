"""Slow twin of heads on cached features: one head alone, from torch's modules and optimizers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from rectifier.evaluation.metrics import class_balanced_accuracy
from rectifier.labels.space import LabelSpace
from rectifier.methods import build_objective, build_sampler, rounds_of
from rectifier.networks.head import MultiLabelHead


class PlainHead(nn.Module):
    """A shared hidden layer, if any, then a ``MultiLabelHead``, then a factor on the cosines."""

    def __init__(self, features: int, sizes: tuple[int, ...], spec: Any) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(spec.seed)
            self.head = MultiLabelHead(
                spec.hidden or features, sizes, hidden=spec.branch, classifier=spec.classifier
            ).double()
            self.hidden = nn.Linear(features, spec.hidden).double() if spec.hidden else None
        self.log_factor = nn.Parameter(
            torch.tensor(math.log(spec.scale / 30.0), dtype=torch.float64), spec.scale_learned
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x if self.hidden is None else self.hidden(x).relu()
        logits, features = self.head(x)
        return logits * self.log_factor.exp(), features


def train_alone(
    x: Tensor,
    targets: Tensor,
    space: LabelSpace,
    spec: Any,
    validation: tuple[Tensor, Tensor] | None = None,
    offsets: Tensor | float = 0.0,
) -> tuple[nn.Module, list[float], list[float]]:
    """Train one head step by step. Return it (for standardised features), its losses and its validation scores."""
    mean, deviation = x.mean(0), x.std(0, correction=0)
    network = PlainHead(x.shape[1], space.sizes, spec)
    counts = [torch.tensor([int((targets[:, a] == c).sum()) for c in range(k)]) for a, k in enumerate(space.sizes)]
    objective: Any = build_objective(spec.method, counts, space, **spec.method_options)
    if spec.smoothing:
        objective.sample_loss.label_smoothing = spec.smoothing
    weights = [(name, weight) for name, weight in network.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [w for name, w in weights if name.endswith("weight")], "weight_decay": spec.weight_decay},
        {"params": [w for name, w in weights if not name.endswith("weight")], "weight_decay": 0.0},
    ]
    kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[spec.optimizer]
    optimizer = kind(groups, lr=spec.lr, **({"momentum": spec.momentum} if spec.optimizer == "sgd" else {}))
    more: dict[str, Any] = {"epochs": spec.epochs, "batch_size": spec.batch_size, "options": spec.method_options}
    sampler: Any = build_sampler(spec.method, targets, space, seed=spec.draws, **more)
    losses: list[float] = []
    scores: list[float] = []
    step = 0
    for epoch in range(spec.epochs):
        if hasattr(objective, "set_progress"):
            objective.set_progress(epoch / spec.epochs)
        if epoch in rounds_of(spec.method, spec.epochs, spec.method_options):
            sampler.mine(network((x - mean) / deviation)[1])
        sampler.set_epoch(epoch)
        plan = sampler.plan()
        batches = list(plan) if plan.dim() == 2 else plan.tensor_split(math.ceil(len(plan) / spec.batch_size))
        total, steps = 0.0, len(batches) * spec.epochs
        for rows in batches:
            rising = round(spec.warmup * steps)
            falling = (1 + math.cos(math.pi * (step - rising) / max(steps - rising, 1))) / 2
            share = (step + 1) / rising if step < rising else falling if spec.schedule == "cosine" else 1.0
            for group in optimizer.param_groups:
                group["lr"] = spec.lr * share
            logits, features = network((x[rows] - mean) / deviation)
            loss = objective(logits, targets[rows], features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
            step += 1
        losses.append(total / plan.numel())
        if validation is not None:
            logits = network((validation[0] - mean) / deviation)[0] + offsets
            scores.append(float(class_balanced_accuracy(logits, validation[1], space)))
    return network, losses, scores
