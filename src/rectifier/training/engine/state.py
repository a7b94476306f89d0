"""Where a training stands: epoch, batch, step, history, and the best weights so far."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from itertools import takewhile
from typing import Any

from torch import Tensor, nn

Row = dict[str, Any]


@dataclass
class State:
    """Plain values and tensors, so that a checkpoint of it can be loaded without running code."""

    epoch: int = 0  # epochs that are done
    batch: int = 0  # batches of the present epoch that are done
    step: int = 0  # steps of the optimizer
    best: float | None = None  # validation
    best_epoch: int | None = None  # whose weights are kept
    best_weights: dict[str, Tensor] | None = None
    waited: int = 0  # validations since the best
    epochs: list[Row] = field(default_factory=list)
    labels: list[Row] = field(default_factory=list)
    saved: dict[str, Any] | None = None  # the checkpoint that this was loaded from: weights, optimizer and so on

    def advance(self, batches: int) -> None:
        self.batch += batches
        self.step += 1

    def end_epoch(self, row: Row, labels: list[Row]) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self.epochs.append(row)
        self.labels += [{"epoch": self.epoch, **label} for label in labels]

    def last_labels(self) -> list[Row]:
        """Return the rows of the labels of the last epoch, without a look at all the others."""
        return list(takewhile(lambda row: row["epoch"] == self.epoch, reversed(self.labels)))[::-1]

    def judge(self, score: float, network: nn.Module, keep_last: bool = False) -> None:
        """Keep these weights if validation likes them better than all before; of equals the first is kept."""
        better = self.best is None or score > self.best
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best = score
        if better or keep_last:
            self.keep(network)

    def keep(self, network: nn.Module) -> None:
        """Keep these weights as those of the chosen epoch, where they are: bringing each to the host would wait."""
        self.best_epoch = self.epoch
        self.best_weights = {name: w.detach().clone() for name, w in network.state_dict().items()}

    def forget_best(self) -> None:
        """Let the chosen epoch be one of those that come."""
        self.best = self.best_epoch = self.best_weights = None
        self.waited = 0

    def is_over(self, patience: int | None) -> bool:
        """Say whether validation has not gained for so long that training ends."""
        return patience is not None and self.waited >= patience

    def as_dict(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "saved"}

    @classmethod
    def from_checkpoint(cls, saved: dict[str, Any] | None) -> State:
        """Begin where a checkpoint stands, or at the beginning where there is none."""
        if saved is None:
            return cls()
        return cls(**{f.name: saved[f.name] for f in fields(cls) if f.name != "saved"}, saved=saved)
