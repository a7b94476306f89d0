"""The state of a training: epoch, batch, step, history, and the best weights so far."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

Row = dict[str, Any]


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
    saved: dict[str, Any] | None = None  # the loaded checkpoint: weights, optimizer and so on

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

    def is_over(self, patience: int | None) -> bool:
        """Say whether so many validations brought no gain that training ends."""
        return patience is not None and self.waited >= patience

    def as_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "saved"}

    @classmethod
    def from_checkpoint(cls, saved: dict[str, Any] | None) -> State:
        """Resume from a checkpoint, or start from the beginning without one."""
        if saved is None:
            return cls()
        return cls(**{f.name: saved[f.name] for f in fields(cls) if f.name != "saved"}, saved=saved)
