"""The store: every image decoded and resized once, as raw uint8 in memory-mapped shards, with a manifest.

A store is a folder::

    manifest.json     name, labels, size of the images, shards with their checksums, fingerprints of source and samples
    samples.npz       targets, split, place of each sample in the shards
    ids.json          the name of each sample
    unreadable.csv    the images that were left out, and why
    shards/00000.bin  uint8 (n, H, W, 3), back to back; 00000.json beside it: checksum, fingerprint, unreadable images

A shard is current when its record carries the fingerprint that its images have now (names, lengths, times of change,
and how they are resized). So work that was interrupted goes on where it stopped, and of a changed source just the
shards that changed are made anew.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier import check, console
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles, Pixels
from rectifier.data.decode import FITS, UnreadableError, image_size, resize, write_shard, write_whole
from rectifier.labels import LabelSpace

VERSION = 1
_SHARD_BYTES = 16 << 20
_MOST_SHARDS = 512  # each stays open as a file
_LARGEST_SIDE = 224  # of images that nobody gave a size for
_RESIDENT_BYTES = 128 << 20  # of the maps, at most
_FAULT_BYTES = 2 << 20  # the first touch of an image may map a huge page around it


@dataclass(frozen=True)
class StoredImages:
    """Decoded images in the shards of a store; ``slots`` ``(N,)`` says where each lies."""

    folder: Path
    size: tuple[int, int]
    per_shard: int
    shard_samples: tuple[int, ...]
    slots: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return (*self.size, 3)

    def select(self, index: NDArray[np.int64]) -> StoredImages:
        return replace(self, slots=self.slots[index])

    @cached_property
    def _maps(self) -> _Maps:
        return _Maps([self.folder / f"shards/{i:05d}.bin" for i in range(len(self.shard_samples))], self.shape)

    def gather(self, index: NDArray[np.int64], out: Pixels | None = None) -> Pixels:
        """Return these images, uint8 ``(n, H, W, 3)``, in ``out`` if it is given."""
        shard, row = np.divmod(self.slots[index], self.per_shard)
        out = np.empty((len(index), *self.shape), np.uint8) if out is None else out
        order = np.argsort(shard, kind="stable")
        edges = np.flatnonzero(np.diff(shard[order])) + 1
        for places in np.split(order, edges):  # one step for each shard that the batch touches
            if len(places):
                out[places] = self._maps.read(int(shard[places[0]]), row[places])
        return out


class _Maps:
    """Memory maps of the shards. Pages are handed back now and then, so that what is resident has a bound."""

    def __init__(self, paths: Sequence[Path], shape: tuple[int, ...]) -> None:
        self._paths, self._shape = paths, shape
        self._open: dict[int, tuple[mmap.mmap, Pixels]] = {}
        self._bounded = sum(path.stat().st_size for path in paths) > _RESIDENT_BYTES and hasattr(mmap, "MADV_DONTNEED")
        self._touched: set[int] = set()
        self._images = 0

    def read(self, shard: int, rows: NDArray[np.int64]) -> Pixels:
        """Return a copy of these images of a shard."""
        if shard not in self._open:
            with self._paths[shard].open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._open[shard] = mapped, np.frombuffer(mapped, np.uint8).reshape(-1, *self._shape)
        images = self._open[shard][1][rows]
        if self._bounded:
            self._touched.add(shard)
            self._images += len(rows)
            if self._images * _FAULT_BYTES >= _RESIDENT_BYTES:
                self._hand_back()
        return images

    def _hand_back(self) -> None:
        touched, self._touched, self._images = self._touched, set(), 0  # other threads go on with the new set
        for shard in touched:
            self._open[shard][0].madvise(mmap.MADV_DONTNEED)


def build_store(
    data: ImageData,
    folder: str | Path,
    size: int | str | tuple[int, int] | None = None,
    *,
    fit: str = "stretch",
    unreadable: str = "skip",
    workers: int | None = None,
) -> ImageData:
    """Decode and resize the images of ``data`` into a store, and return the data with its images there.

    What is already decoded and unchanged is kept: calling this again is quick, and goes on after an interruption.

    Args:
        data: what a reader returned. Images that are in memory are returned as they are (resized, if asked).
        folder: where the store lies or shall lie.
        size: height and width: ``(64, 48)``, ``"64x48"``, or one number for a square. None: the size of the first
            image, shrunk to at most 224 on its longer side.
        fit: what happens to another aspect ratio: ``"stretch"``, ``"crop"`` the middle, ``"pad"`` with black.
        unreadable: ``"skip"`` leaves damaged and missing images out; ``"raise"`` makes them an error once all the
            others are decoded. Either way ``unreadable.csv`` lists them.
        workers: number of processes; one per core if not given.
    """
    check.raise_all(
        [
            check.choice("fit", fit, FITS),
            check.choice("unreadable", unreadable, ("skip", "raise")),
            check.number("workers", workers, "a positive integer", workers is None or check.is_count(workers)),
        ]
    )
    if isinstance(data.images, ImageArray):
        return replace(data, images=_resized(data.images, as_size(size), fit))
    if not isinstance(data.images, ImageFiles):
        check.fail("the images of data", "files, to be decoded", "a store's; they are decoded")
    folder = Path(folder)
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    resolved = as_size(size) or _first_size(data.images)
    plan = _plan(data.images, folder, resolved, fit)
    _decode_missing(plan, workers or os.cpu_count() or 1)
    records = [json.loads(_record(job.target).read_text()) for job in plan]
    failures = {path: reason for record in records for path, reason in record["unreadable"].items()}
    _list_failures(folder / "unreadable.csv", failures)
    if failures and unreadable == "raise":
        path, reason = next(iter(failures.items()))
        wanted = f"{len(data):,} readable images"
        got = f"{len(failures):,} that are not, such as {path} ({reason}); {folder / 'unreadable.csv'} lists them"
        check.fail(str(data.images.root), wanted, got)
    if len(failures) == len(data):
        got = f"none of {len(data):,}, see {folder / 'unreadable.csv'}"
        check.fail(str(data.images.root), "a folder with readable images", got)
    stored = _without(data, failures, plan, resolved, folder)
    _write_manifest(stored, folder, fit, records, str(data.images.root), plan)
    return stored


def open_store(folder: str | Path, *, verify: bool = False) -> ImageData:
    """Open a store without its source. ``verify`` also compares every shard with its checksum."""
    folder = Path(folder)
    manifest = _read_manifest(folder / "manifest.json")
    size = tuple(manifest["size"])
    for number, shard in enumerate(manifest["shards"]):
        path = folder / f"shards/{number:05d}.bin"
        wanted = shard["samples"] * size[0] * size[1] * 3
        found = path.stat().st_size if path.exists() else 0
        if found != wanted:
            check.fail(str(path), f"a shard of {wanted:,} bytes", f"{found:,}; build the store again")
        if verify and hashlib.sha256(path.read_bytes()).hexdigest() != shard["sha256"]:
            check.fail(str(path), "the shard of the manifest", "another checksum; delete it and build the store again")
    samples = np.load(folder / "samples.npz")
    images = StoredImages(
        folder, size, manifest["per_shard"], tuple(s["samples"] for s in manifest["shards"]), samples["slots"]
    )
    data = ImageData(
        manifest["name"],
        images,
        torch.from_numpy(samples["targets"].astype(np.int64)),
        LabelSpace.from_json(json.dumps(manifest)),
        torch.from_numpy(samples["split"].astype(np.int64)),
        tuple(json.loads((folder / "ids.json").read_text(encoding="utf-8"))),
        tuple(manifest["notes"]),
    )
    if data.fingerprint != manifest["fingerprint"]:
        check.fail(str(folder), "the samples of its manifest", "others; build the store again")
    return data


def is_store(path: Path) -> bool:
    """Say whether a path is a store's folder."""
    return (path / "manifest.json").is_file() and (path / "shards").is_dir()


def as_size(size: int | str | tuple[int, int] | None) -> tuple[int, int] | None:
    """Bring the spellings of an image size to height and width.

    >>> as_size(32), as_size("55x47")
    ((32, 32), (55, 47))
    """
    if size is None:
        return None
    parts: Sequence[Any] = (
        size.lower().split("x") if isinstance(size, str) else list(size) if isinstance(size, Sequence) else [size]
    )
    parts = [int(p) if isinstance(p, str) and p.strip().isdigit() else p for p in parts]
    parts = parts * 2 if len(parts) == 1 else parts
    if len(parts) != 2 or not all(check.is_count(p) for p in parts):
        check.fail("size", "a number of pixels, or height and width as 64x48", repr(size))
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True)
class _Job:
    """One shard to be: ``write_shard``'s arguments."""

    root: str
    paths: tuple[str, ...]
    size: tuple[int, int]
    fit: str
    target: str
    fingerprint: str

    def run(self) -> int:
        return write_shard(self.root, self.paths, self.size, self.fit, self.target, self.fingerprint)


def _plan(files: ImageFiles, folder: Path, size: tuple[int, int], fit: str) -> list[_Job]:
    image_bytes = size[0] * size[1] * 3
    per_shard = max(_SHARD_BYTES // image_bytes, -(-len(files) // _MOST_SHARDS), 1)
    jobs = []
    for number, start in enumerate(range(0, len(files), per_shard)):
        paths = files.paths[start : start + per_shard]
        target = folder / f"shards/{number:05d}.bin"
        jobs.append(_Job(str(files.root), paths, size, fit, str(target), _fingerprint(files.root, paths, size, fit)))
    return jobs


def _fingerprint(root: Path, paths: Sequence[str], size: tuple[int, int], fit: str) -> str:
    digest = hashlib.sha256(f"{VERSION} {size} {fit}".encode())
    for path in paths:
        try:
            status = os.stat(root / path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(f"{path}\0absent\n".encode())
    return digest.hexdigest()


def _record(target: str) -> Path:
    return Path(target).with_suffix(".json")


def _state(job: _Job) -> str:
    """Say whether a shard is ``"current"``, ``"changed"`` or ``"absent"``."""
    try:
        record = json.loads(_record(job.target).read_text())
        length = os.stat(job.target).st_size
    except (OSError, ValueError):
        return "absent"
    whole = length == len(job.paths) * job.size[0] * job.size[1] * 3
    return "current" if record.get("fingerprint") == job.fingerprint and whole else "changed"


def _decode_missing(plan: list[_Job], workers: int) -> None:
    states = [_state(job) for job in plan]
    todo = [job for job, state in zip(plan, states, strict=True) if state != "current"]
    if "changed" in states:
        console.say(f"{states.count('changed')} of {len(plan)} shards are out of date: decoding their images again.")
    if not todo:
        return
    with console.progress() as display:
        task = display.add_task("decoding", total=sum(len(job.paths) for job in todo))
        for done in _run(todo, min(workers, len(todo))):
            display.advance(task, done)


def _run(jobs: list[_Job], workers: int) -> Any:
    if workers == 1:
        return map(_Job.run, jobs)
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # joblib's processes start without a fork and without importing the caller's script again.
    parallel = Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", pre_dispatch="2*n_jobs")
    arguments = ((j.root, j.paths, j.size, j.fit, j.target, j.fingerprint) for j in jobs)
    return parallel(delayed(write_shard)(*a) for a in arguments)


def _first_size(files: ImageFiles) -> tuple[int, int]:
    for path in files.paths[:1000]:
        try:
            height, width = image_size(files.root / path)
        except UnreadableError:
            continue
        shrink = max(1.0, max(height, width) / _LARGEST_SIDE)
        return max(1, round(height / shrink)), max(1, round(width / shrink))
    check.fail(str(files.root / files.paths[0]), "a readable image", "none among the first 1,000; is the folder right")


def _list_failures(path: Path, failures: dict[str, str]) -> None:
    if not failures:
        path.unlink(missing_ok=True)
        return
    text = io.StringIO()
    csv.writer(text).writerows([("image", "reason"), *failures.items()])
    write_whole(path, text.getvalue().encode())
    console.say(f"{len(failures):,} images cannot be read; {path} lists them.")


def _without(
    data: ImageData, failures: dict[str, str], plan: list[_Job], size: tuple[int, int], folder: Path
) -> ImageData:
    files = data.images
    if not isinstance(files, ImageFiles):
        raise TypeError("the images of data are no files")
    kept = np.array([i for i, path in enumerate(files.paths) if path not in failures], np.int64)
    images = StoredImages(folder, size, len(plan[0].paths), tuple(len(job.paths) for job in plan), kept)
    index = torch.from_numpy(kept)
    note = (f"{len(failures):,} unreadable images left out.",) if failures else ()
    return ImageData(
        data.name,
        images,
        data.targets[index],
        data.space,
        data.split[index],
        tuple(data.ids[i] for i in kept.tolist()),
        (*data.notes, *note),
    )


def _write_manifest(
    data: ImageData, folder: Path, fit: str, records: list[dict[str, Any]], source: str, plan: list[_Job]
) -> None:
    images = data.images
    if not isinstance(images, StoredImages):
        raise TypeError("the images of data are not stored")
    smallest = np.int16 if max(data.space.sizes) < 2**15 else np.int64
    samples = io.BytesIO()
    targets, split = data.targets.numpy().astype(smallest), data.split.numpy().astype(np.int8)
    np.savez_compressed(samples, targets=targets, split=split, slots=images.slots)
    write_whole(folder / "samples.npz", samples.getvalue())
    write_whole(folder / "ids.json", json.dumps(data.ids, ensure_ascii=False).encode())
    manifest = {
        "version": VERSION,
        "name": data.name,
        "notes": list(data.notes),
        **json.loads(data.space.to_json()),
        "samples": len(data),
        "size": list(images.size),
        "fit": fit,
        "per_shard": images.per_shard,
        "shards": [{"samples": r["samples"], "sha256": r["sha256"]} for r in records],
        "source": source,
        "source_fingerprint": hashlib.sha256("".join(job.fingerprint for job in plan).encode()).hexdigest(),
        "fingerprint": data.fingerprint,
    }
    write_whole(folder / "manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False).encode())


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        check.no_file(str(path), "the manifest of a store", "build_store makes one.")
    except ValueError as error:
        check.fail(str(path), "the manifest of a store", f"no JSON ({error})")
    if manifest.get("version") != VERSION:
        check.fail(str(path), f"of version {VERSION}", f"version {manifest.get('version')}; build the store again")
    return manifest


def _resized(images: ImageArray, size: tuple[int, int] | None, fit: str) -> ImageArray:
    if size is None or images.shape[:2] == size:
        return images
    return ImageArray(np.stack([resize(image, size, fit) for image in images.pixels]))
