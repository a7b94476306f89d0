"""The curves of a training: two CSV files, and the same for TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rectifier._base.files import saving, write_bytes
from rectifier.training.run.folder import Run

Row = Mapping[str, Any]


class Curves:
    """Write the row of each epoch, and the rows of its labels, while training runs.

    ``epochs`` and ``labels`` are the rows of the checkpoint that training resumes from. Rows that were written after
    that checkpoint are removed. ``stage`` is part of the file names.
    """

    def __init__(
        self, run: Run, tensorboard: bool, epochs: Sequence[Row], labels: Sequence[Row], stage: str = ""
    ) -> None:
        tag = f"-{stage}" if stage else ""
        self._tables = {run.path / f"history{tag}.csv": epochs, run.path / f"labels{tag}.csv": labels}
        for path, rows in self._tables.items():
            write_bytes(path, _csv(rows, header=True), durable=True)
        self._writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # takes a second to import

            done = epochs[-1]["epoch"] if epochs else 0
            self._writer = SummaryWriter(run.path / f"tensorboard{tag}", purge_step=done + 1)

    def add(self, epoch: Row, labels: Sequence[Row]) -> None:
        """Write a new epoch."""
        for path, rows in zip(self._tables, ([epoch], labels), strict=True):
            _append(path, rows)
        if self._writer is not None:
            for name, value in _scalars(epoch, labels):
                self._writer.add_scalar(name, value, epoch["epoch"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _scalars(epoch: Row, labels: Sequence[Row]) -> list[tuple[str, float]]:
    """Return the names and values of an epoch's points. Labels have points in validated epochs only."""
    own = [(name, value) for name, value in epoch.items() if name != "epoch" and value is not None]
    if epoch["validation"] is None:
        return own
    each = [(f"{name}/{row['label']}", row[name]) for row in labels for name in row if name not in ("epoch", "label")]
    return own + each


def _append(path: Path, rows: Sequence[Row]) -> None:
    with saving(path), path.open("ab") as file:
        file.write(_csv(rows, header=file.tell() == 0))


def _csv(rows: Sequence[Row], header: bool) -> bytes:
    if not rows:
        return b""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
