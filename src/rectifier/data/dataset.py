"""ImageData: what every reader returns. Images, targets, label space, and the part that each sample belongs to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check
from rectifier.labels import imbalance
from rectifier.labels.space import LabelSpace

PARTS = ("train", "validation", "test")
Pixels = NDArray[np.uint8]


class Images(Protocol):
    """The images of a data set, wherever they are."""

    def __len__(self) -> int: ...

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return these images alone, without reading any."""
        ...


@runtime_checkable
class Decoded(Images, Protocol):
    """Images whose pixels are at hand, all of one shape."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        ...

    def gather(self, index: NDArray[np.int64], out: Pixels | None = None) -> Pixels:
        """Return these images, uint8 ``(n, H, W, C)``, in ``out`` if it is given."""
        ...

    def checksum(self) -> str:
        """Return a hash of all pixels."""
        ...


@dataclass(frozen=True)
class ImageArray:
    """Images in memory: uint8 ``(N, H, W, C)``, C = 1 or 3."""

    pixels: Pixels

    def __post_init__(self) -> None:
        if self.pixels.dtype != np.uint8 or self.pixels.ndim != 4 or self.pixels.shape[3] not in (1, 3):
            got = f"{self.pixels.dtype} of shape {self.pixels.shape}"
            check.fail("pixels", "uint8 of shape (N, H, W, C) with C = 1 or 3", got)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.pixels.shape[1:]

    def checksum(self) -> str:
        """Return a hash of all pixels."""
        return hashlib.sha256(np.ascontiguousarray(self.pixels).data).hexdigest()[:16]

    def select(self, index: NDArray[np.int64]) -> ImageArray:
        return ImageArray(self.pixels[index])

    def gather(self, index: NDArray[np.int64], out: Pixels | None = None) -> Pixels:
        """Return these images, uint8 ``(n, H, W, C)``, in ``out`` if it is given."""
        # NumPy fills `out` by way of a copy when it must be able to raise halfway.
        return self.pixels.take(index, axis=0, out=out, mode="raise" if out is None else "clip")


@dataclass(frozen=True)
class ImageFiles:
    """Image files below one folder. They are decoded once, into a store, before anything is trained on them."""

    root: Path
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, index: NDArray[np.int64]) -> ImageFiles:
        return ImageFiles(self.root, tuple(self.paths[i] for i in index.tolist()))


@dataclass(frozen=True)
class ImageData:
    """Labelled images and the part that each belongs to.

    ``targets`` is int64 ``(N, A)``, negative where a label is missing; ``split`` is int64 ``(N,)`` and points into
    ``PARTS`` (0 train, 1 validation, 2 test); ``ids`` names each sample. ``notes`` says in words what the reader
    decided: what it inferred, dropped and counted.

    >>> pixels = np.zeros((3, 8, 8, 1), np.uint8)
    >>> space = LabelSpace.from_names({"digit": ["0", "1"]})
    >>> data = ImageData("tiny", ImageArray(pixels), torch.tensor([[0], [1], [1]]), space, torch.tensor([0, 0, 2]))
    >>> len(data.part("train")), data.counts("train")[0].tolist(), data.ids
    (2, [1, 1], ('0', '1', '2'))
    """

    name: str
    images: Images
    targets: Tensor
    space: LabelSpace
    split: Tensor
    ids: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.ids:
            object.__setattr__(self, "ids", tuple(map(str, range(len(self.images)))))
        lengths = {
            "images": len(self.images),
            "targets": len(self.targets),
            "split": len(self.split),
            "ids": len(self.ids),
        }
        if len(set(lengths.values())) > 1:
            check.fail(f"data {self.name!r}", "as many images as targets, split entries and ids", lengths)
        object.__setattr__(self, "targets", check.targets(self.targets, len(self.space)))
        check.target_range(self.targets, torch.tensor(self.space.sizes), self.space.names)
        if self.split.dtype != torch.int64 or self.split.dim() != 1:
            check.fail("split", "int64 of shape (N,)", f"{self.split.dtype} of shape {tuple(self.split.shape)}")
        if len(self.split) and not 0 <= int(self.split.min()) <= int(self.split.max()) < len(PARTS):
            check.fail("split", "0 (train), 1 (validation) or 2 (test)", self.split.unique().tolist())

    def __len__(self) -> int:
        return len(self.targets)

    def indices(self, part: str) -> Tensor:
        """Return the positions ``(n,)`` of one part's samples."""
        check.raise_all([check.choice("part", part, PARTS)])
        return (self.split == PARTS.index(part)).nonzero()[:, 0]

    def part(self, part: str) -> ImageData:
        """Return one part alone."""
        return self.select(self.indices(part))

    def select(self, index: Tensor | Sequence[int]) -> ImageData:
        """Return these samples alone, in this order."""
        index = torch.as_tensor(index)
        if index.dtype == torch.bool:  # as numbers it would be the first two samples, over and over
            got = "a mask; mask.nonzero()[:, 0] are its positions"
            raise TypeError(check.sentence("index", "positions", got))
        index = index.long()
        positions = index.numpy()
        return replace(
            self,
            images=self.images.select(positions),
            targets=self.targets[index],
            split=self.split[index],
            ids=tuple(self.ids[i] for i in positions.tolist()),
        )

    def counts(self, part: str | None = None) -> list[Tensor]:
        """Count the samples of each class, label by label, in one part or in all."""
        targets = self.targets if part is None else self.targets[self.indices(part)]
        return imbalance.class_counts(targets, self.space)

    @property
    def fingerprint(self) -> str:
        """A hash of ids, targets, label space and split: equal for equal data, whatever machine it lies on."""
        digest = hashlib.sha256(self.space.to_json().encode(errors="surrogateescape"))
        digest.update("\n".join(self.ids).encode(errors="surrogateescape"))
        digest.update(self.targets.numpy().astype("<i8").tobytes())
        digest.update(self.split.numpy().astype("<i8").tobytes())
        return digest.hexdigest()[:16]
