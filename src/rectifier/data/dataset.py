"""ImageData, which every reader returns: images, targets, label space, and the part of each sample."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rectifier._base import check
from rectifier.labels.counts import class_counts
from rectifier.labels.space import LabelSpace

PARTS = ("train", "validation", "test")
Pixels = NDArray[np.uint8]
Ints = NDArray[np.int64]
ImageSize = int | str | tuple[int, int]  # a side, "HxW" or (H, W)
_LARGEST_SIDE = 4096


def as_size(size: ImageSize | None) -> tuple[int, int] | None:
    """Bring the spellings of an image size to height and width.

    >>> as_size(32), as_size("55x47")
    ((32, 32), (55, 47))
    """
    if size is None:
        return None
    given = size.lower().split("x") if isinstance(size, str) else size if isinstance(size, Sequence) else [size]
    sides: list[Any] = [int(side) if isinstance(side, str) and side.strip().isdigit() else side for side in given]
    if len(sides) not in (1, 2) or not all(check.is_count(side) and side <= _LARGEST_SIDE for side in sides):
        check.fail("size", f"a number of pixels up to {_LARGEST_SIDE}, or height and width as 64x48", repr(size))
    return int(sides[0]), int(sides[-1])


class Images(Protocol):
    """The images of a data set, in memory or on disk."""

    def __len__(self) -> int: ...

    def select(self, index: Ints) -> Self:
        """Return only these images, without reading any."""
        ...


@runtime_checkable
class Decoded(Images, Protocol):
    """Images with decoded pixels, all of one shape."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        ...

    def gather(self, index: Ints, out: Pixels | None = None) -> Pixels:
        """Return these images, uint8 ``(n, H, W, C)``, written to ``out`` if it is given."""
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
        return self.pixels.shape[1:]

    def checksum(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.pixels).data).hexdigest()[:16]

    def select(self, index: Ints) -> ImageArray:
        return ImageArray(self.pixels[index])

    def gather(self, index: Ints, out: Pixels | None = None) -> Pixels:
        # In mode "raise" NumPy would copy `out`, because an error could leave it half filled.
        return self.pixels.take(index, axis=0, out=out, mode="raise" if out is None else "clip")


@dataclass(frozen=True)
class ImageFiles:
    """Image files below one folder. ``build_store`` decodes them once, before training."""

    root: Path
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, index: Ints) -> ImageFiles:
        return ImageFiles(self.root, tuple(self.paths[i] for i in index.tolist()))


@dataclass(frozen=True)
class ImageData:
    """Labelled images, split into train, validation and test.

    ``targets`` is int64 ``(N, A)``, negative where a label is missing. ``split`` is int64 ``(N,)`` and points into
    ``PARTS`` (0 train, 1 validation, 2 test). ``ids`` names each sample. ``notes`` describes in words what the reader
    inferred, dropped and counted.

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
        lengths = {name: len(getattr(self, name)) for name in ("images", "targets", "split", "ids")}
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
        """Return only the samples of one part."""
        return self.select(self.indices(part))

    def select(self, index: Tensor | Sequence[int]) -> ImageData:
        """Return only these samples, in this order."""
        index = torch.as_tensor(index)
        if index.dtype == torch.bool:  # as numbers it would repeat the first two samples
            raise TypeError(check.sentence("index", "positions", "a mask; pass mask.nonzero()[:, 0]"))
        index = index.long()
        return replace(
            self,
            images=self.images.select(index.numpy()),
            targets=self.targets[index],
            split=self.split[index],
            ids=tuple(self.ids[i] for i in index.tolist()),
        )

    def counts(self, part: str | None = None) -> list[Tensor]:
        """Count the samples of each class, label by label, in one part or in all."""
        targets = self.targets if part is None else self.targets[self.indices(part)]
        return class_counts(targets, self.space)

    @property
    def fingerprint(self) -> str:
        """A hash of ids, targets, label space and split. Equal data has equal hashes on every machine."""
        digest = hashlib.sha256(self.space.to_json().encode(errors="surrogateescape"))
        digest.update("\n".join(self.ids).encode(errors="surrogateescape"))
        digest.update(self.targets.numpy().astype("<i8").tobytes())
        digest.update(self.split.numpy().astype("<i8").tobytes())
        return digest.hexdigest()[:16]
