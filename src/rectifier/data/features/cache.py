"""cached_features computes the features of a data set once; CachedFeatures gathers them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rectifier._base import check
from rectifier._base.files import write_bytes
from rectifier.data.cache_home import cache_home
from rectifier.data.dataset import PARTS, Decoded, ImageData, ImageFiles, Ints, Pixels
from rectifier.data.decode import FITS
from rectifier.data.features.blocks import Blocks, key_of
from rectifier.data.features.compute import Compute, Layout, check_compute
from rectifier.data.features.contents import DIGEST_BYTES, Contents, FileContents, PixelContents
from rectifier.data.features.extract import Extraction, Image
from rectifier.data.features.index import Index
from rectifier.data.features.unreadable import list_unreadable
from rectifier.data.features.views import Views

VERSION = 1  # of the files and of how views are made; another version has another folder


@dataclass(frozen=True)
class CachedFeatures:
    """Features of images, in the blocks of a cache.

    ``rows`` ``(N, views)`` locates each view of each image, with -1 for views that an image does not have. ``digests``
    ``(N, 16)`` stand for the content of the images, ``key`` for the network.
    """

    blocks: Blocks
    rows: Ints
    digests: Pixels
    key: str
    folder: Path

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the features of one view: ``(D,)``, or ``(C, h, w)`` of a map."""
        return self.blocks.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the features in the cache: float32, or float16 of a map."""
        return self.blocks.layout.dtype

    @property
    def views(self) -> int:
        return int(self.rows.shape[1])

    def checksum(self) -> str:
        """Return a hash of images, network and views. No feature is read."""
        digest = hashlib.sha256(f"{self.key} {self.shape} {self.views}".encode())
        digest.update(self.digests.tobytes())
        digest.update((self.rows >= 0).tobytes())
        return digest.hexdigest()[:16]

    def select(self, index: Ints) -> CachedFeatures:
        return replace(self, rows=self.rows[index], digests=self.digests[index])

    def apart(self, views: int) -> CachedFeatures:
        """Return each of the first views as a sample: sample ``i * views + v`` is view v of sample i."""
        digests = self.digests.repeat(views, axis=0)
        return replace(self, rows=self.rows[:, :views].reshape(-1, 1), digests=digests)

    def gather(self, index: Ints, view: int | Ints = 0, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the features ``(n, *shape)`` of these images, float32 or written to ``out``.

        ``view`` is the number of a view, or one number for each of the images.
        """
        if np.min(view, initial=0) < 0 or np.max(view, initial=0) >= self.views:
            check.fail("view", f"from 0 to {self.views - 1}", int(np.max(view) if np.min(view) >= 0 else np.min(view)))
        rows = self.rows[index, view]
        if (rows < 0).any():
            number = int(np.broadcast_to(view, rows.shape)[rows < 0][0])
            got = f"image {int(index[rows < 0][0])}, which has fewer; only training images have several views"
            check.fail("every image", f"one with view {number}", got)
        out = np.empty((len(rows), *self.shape), np.float32) if out is None else out
        self.blocks.read(rows, out)
        return out


def cached_features(
    data: ImageData, compute: Compute, *, views: int = 1, fit: str = "stretch", unreadable: str = "skip"
) -> ImageData:
    """Compute the features of all images once, and return the data with ``CachedFeatures`` for images.

    The cache is in ``RECTIFIER_CACHE``, or else in the user's cache. It knows images by their content: a renamed image
    is found, a changed one is computed again, and one that is in several tables is computed once. An interrupted
    extraction resumes. Several processes, also on several machines with a common folder, share the work.

    Args:
        data: images in files, in memory or in a store.
        compute: a frozen network, such as the extractor of a pretrained one.
        views: views of each training image: 2 adds its mirror image, more add crops. All others have one.
        fit: how another aspect ratio is handled: ``"stretch"``, ``"crop"`` the middle, ``"pad"`` with black.
        unreadable: ``"skip"`` drops damaged and missing images; ``"raise"`` raises an error after all others are
            computed. In both cases a list names them.
    """
    complaints = [
        check.count("views", views),
        check.choice("fit", fit, FITS),
        check.choice("unreadable", unreadable, ("skip", "raise")),
    ]
    check.raise_all(complaints)
    check_compute(compute)
    if not len(data):
        raise ValueError(f"{data.name!r} has no images.")
    layout, folder = Layout.of(compute), cache_folder(compute, fit)
    contents = _contents(data)
    digests, reasons = contents.digests()
    wanted = np.where(data.split.numpy() == PARTS.index("train"), views, 1)
    index, make = Index(folder, layout), Views(compute.size, fit, compute.interpolation)
    extraction = Extraction(folder, index, contents, compute, layout, make)
    extraction.run(_distinct(digests, wanted))
    _describe(folder, compute, fit, layout)
    failed = extraction.failures
    reasons |= {position: failed[digest] for position, digest in enumerate(digests) if digest in failed}
    list_unreadable(data, reasons, unreadable)
    kept = np.array([position for position in range(len(data)) if position not in reasons], np.int64)
    rows = np.full((len(kept), int(wanted.max())), -1, np.int64)
    for view in range(rows.shape[1]):
        have = np.flatnonzero(wanted[kept] > view)
        rows[have, view] = index.rows_of(key_of(digests[i], view) for i in kept[have].tolist())
    blocks, rows = index.select(rows)
    table = np.frombuffer(b"".join(digests[i] for i in kept.tolist()), np.uint8).reshape(-1, DIGEST_BYTES)
    note = (f"Dropped {check.amount(len(reasons), 'unreadable image')}.",) if reasons else ()
    features = CachedFeatures(blocks, rows, table, folder.name, folder)
    return replace(data.select(kept.tolist()), images=features, notes=(*data.notes, *note))


def cache_folder(compute: Compute, fit: str) -> Path:
    """Return the folder of the features of one network."""
    facts = (VERSION, compute.key, tuple(compute.layers.items()), tuple(compute.size), compute.interpolation, fit)
    return cache_home() / "features" / hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _contents(data: ImageData) -> Contents:
    if isinstance(data.images, CachedFeatures):
        check.fail(f"the images of {data.name!r}", "pixels", "features")
    if isinstance(data.images, ImageFiles):
        return FileContents(data.images)
    return PixelContents(cast(Decoded, data.images))


def _distinct(digests: Sequence[bytes], views: Ints) -> list[Image]:
    """Return each image once, where it comes first, with the most views that it is wanted with."""
    first: dict[bytes, int] = {}
    most: dict[bytes, int] = {}
    for position, (digest, count) in enumerate(zip(digests, views.tolist(), strict=True)):
        if digest:
            first.setdefault(digest, position)
            most[digest] = max(most.get(digest, 0), count)
    return [Image(digest, position, most[digest]) for digest, position in first.items()]


def _describe(folder: Path, compute: Compute, fit: str, layout: Layout) -> None:
    """Write for people what the folder contains."""
    about: dict[str, Any] = {
        "layers": dict(compute.layers),
        "type": str(layout.dtype),
        "size": compute.size,
        "fit": fit,
    }
    about |= {"interpolation": compute.interpolation, "network": compute.key, "version": VERSION}
    path = folder / "about.json"
    if folder.is_dir() and not path.exists():
        with suppress(OSError):
            write_bytes(path, json.dumps(about, indent=1).encode())
