"""Predictions for one part of the data, in one file: logits, features, targets, ids and the label space."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from rectifier._base import check
from rectifier._base.files import write_bytes
from rectifier.labels.space import LabelSpace

_LARGEST_HALF = 6e4  # float16 ends a little above
MOST_FEATURES = 1 << 30
"""Bytes of features above which they are not saved."""


@dataclass(frozen=True)
class Predictions:
    """Logits ``(N, K)``, features ``(N, D)`` or ``(N, A, D)`` if kept, targets ``(N, A)`` and ids of N samples."""

    logits: Tensor
    targets: Tensor
    ids: tuple[str, ...]
    space: LabelSpace
    features: Tensor | None = None

    def save(self, path: Path) -> None:
        """Write one safetensors file, atomically. Features are stored in half precision, which is precise enough."""
        tensors = {"logits": self.logits.contiguous(), "targets": self.targets.contiguous()}
        if self.features is not None:
            fits = not self.features.numel() or float(self.features.abs().max()) < _LARGEST_HALF
            tensors["features"] = (self.features.half() if fits else self.features).contiguous()
        # One entry: the order of several would change, and equal predictions must give equal files.
        described = json.dumps({"ids": self.ids, **json.loads(self.space.to_json())})
        write_bytes(path, save(tensors, {"rectifier": described}), durable=True)

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Read what ``save`` wrote."""
        if not path.is_file():
            check.no_file(path, "Finished runs have predictions.")
        with reading(path, "saved predictions") as (kept, facts):
            described = facts["rectifier"]
            ids, space = tuple(json.loads(described)["ids"]), LabelSpace.from_json(described)
            features = kept["features"].float() if "features" in kept else None
            return cls(kept["logits"], kept["targets"].long(), ids, space, features)


@contextmanager
def reading(path: Path, what: str) -> Iterator[tuple[dict[str, Tensor], dict[str, str]]]:
    """Give the tensors of a file and its metadata. An error in the block names the file and its expected content."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
            yield tensors, file.metadata()
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        check.fail(str(path), what, f"a damaged file ({error})")
