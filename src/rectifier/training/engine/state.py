"""What a training has done so far: its counters, history and best weights, and the sums of the current epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from rectifier._base.distances import widest
from rectifier.losses.objective import LossParts

Row = dict[str, Any]

TERMS = {
    "cross_entropy": "base_loss",  # the column's name in history.csv, for every loss
    "rectification": "rectification",
    "mined_classes": "mined_classes",
    "comparisons": "comparisons",
}
"""The columns of the curves, and the fields of ``LossParts`` that they hold."""


@dataclass
class State:
    """The state of a training, in plain values and tensors: loading a checkpoint runs no code."""

    epoch: int = 0  # finished epochs
    batch: int = 0  # finished batches of the current epoch
    step: int = 0  # steps of the optimizer
    best: float | None = None  # validation score
    best_epoch: int | None = None  # the epoch whose weights are kept
    best_weights: dict[str, Tensor] | None = None
    waited: int = 0  # validations since the best
    epochs: list[Row] = field(default_factory=list)
    labels: list[Row] = field(default_factory=list)

    def advance(self, batches: int) -> None:
        self.batch += batches
        self.step += 1

    def end_epoch(self, row: Row, labels: list[Row]) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.epochs.append(row)
        self.labels += labels

    def judge(self, score: float, network: nn.Module, keep_last: bool = False) -> None:
        """Keep these weights if their validation score is the best so far; of equal scores the first wins."""
        better = self.best is None or score > self.best
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = score
        if better or keep_last:
            self.keep(network)

    def keep(self, network: nn.Module) -> None:
        """Keep these weights as those of the chosen epoch. They stay on their device, so nothing waits."""
        self.best_epoch = self.epoch
        self.best_weights = {name: w.detach().clone() for name, w in network.state_dict().items()}

    @classmethod
    def from_checkpoint(cls, saved: dict[str, Any] | None) -> State:
        """Resume from a checkpoint, or start from the beginning without one."""
        return cls() if saved is None else cls(**{f.name: saved[f.name] for f in fields(cls)})


class Tally:
    """The mean of a loss and of its parts over the batches so far, and the first batch whose loss was not finite.

    The sums are kept on the device, so that no step waits for a number.
    """

    def __init__(self, labels: int, device: torch.device) -> None:
        # Row 0 is the loss, which all labels share; then one row for each part. float64: sums of a whole epoch.
        self._sums = torch.zeros(1 + len(TERMS), labels, dtype=widest(device), device=device)
        self._alpha = torch.zeros(labels, device=device)
        self._good = torch.zeros((), dtype=torch.int64, device=device)  # batches before the first bad one
        self.batches = 0

    def add(self, parts: LossParts) -> None:
        """Add a batch, on the device and in place, so that a captured step can do it. The host uses ``count``."""
        loss = parts.loss.detach()
        rows = [loss.expand(self._sums.shape[1]), *(getattr(parts, name) for name in TERMS.values())]
        self._sums += torch.stack([row.float() for row in rows])
        self._alpha.copy_(parts.alpha)
        self._good += self._sums[0, 0].isfinite()  # a sum that is not finite stays so

    def count(self, batches: int) -> None:
        self.batches += batches

    def reset(self) -> None:
        """Start a new epoch, in the same memory."""
        for tensor in self.tensors().values():
            tensor.zero_()
        self.batches = 0

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums themselves, by name."""
        return {"sums": self._sums, "alpha": self._alpha, "good": self._good}

    def first_bad(self) -> int | None:
        """Return the number of the first batch whose loss was not finite, or None. Waits for the device."""
        good = int(self._good)
        return good if good < self.batches else None

    def means(self) -> dict[str, float]:
        """Return the loss, and its parts as means over labels. Waits for the device."""
        loss, *parts = (self._sums / max(self.batches, 1)).mean(1).tolist()
        return {"loss": loss, **dict(zip(TERMS, parts, strict=True))}

    def by_label(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Return each label's parts and its alpha."""
        parts = (self._sums[1:] / max(self.batches, 1)).T.tolist()
        return [
            {"label": name, "alpha": alpha, **dict(zip(TERMS, own, strict=True))}
            for name, own, alpha in zip(names, parts, self._alpha.tolist(), strict=True)
        ]

    def state(self) -> dict[str, Any]:
        return {"batches": self.batches, **{name: tensor.cpu().clone() for name, tensor in self.tensors().items()}}

    def load(self, state: dict[str, Any]) -> None:
        self.batches = state["batches"]
        for name, tensor in self.tensors().items():
            tensor.copy_(state[name])
