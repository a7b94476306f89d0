"""The curves of a training: two CSV files, and the same for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rectifier._base.files import as_csv, saving, write_bytes
from rectifier.training.run.folder import Run

Row = Mapping[str, Any]


class Curves:
    """Write checkpoints, the row of each epoch, and the rows of its labels, while training runs.

    ``epochs`` and ``labels`` are the rows of the checkpoint that training resumes from. Rows that were written after
    that checkpoint are removed. ``stage`` is part of the file names.
    """

    def __init__(
        self, run: Run, tensorboard: bool, epochs: Sequence[Row], labels: Sequence[Row], stage: str = ""
    ) -> None:
        self._run, self._stage = run, stage
        tag = f"-{stage}" if stage else ""
        self._history, self._labels = run.path / f"history{tag}.csv", run.path / f"labels{tag}.csv"
        for path, rows in ((self._history, epochs), (self._labels, labels)):
            write_bytes(path, as_csv(rows).encode(), durable=True)
        self._writer: Any = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # takes a second to import

            done = epochs[-1]["epoch"] if epochs else 0
            self._writer = SummaryWriter(run.path / f"tensorboard{tag}", purge_step=done + 1)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        self._run.save_checkpoint(state, self._stage)

    def save_epoch(self, row: Row, labels: Sequence[Row]) -> None:
        for path, rows in ((self._history, [row]), (self._labels, labels)):
            with saving(path), path.open("ab") as file:
                file.write(as_csv(rows, header=file.tell() == 0).encode())
        if self._writer is None:
            return
        points = {name: value for name, value in row.items() if name != "epoch" and value is not None}
        if row["validation"] is not None:  # labels have points in validated epochs only
            points |= {
                f"{name}/{own['label']}": own[name] for own in labels for name in own if name not in ("epoch", "label")
            }
        for name, value in points.items():
            self._writer.add_scalar(name, value, row["epoch"])

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
