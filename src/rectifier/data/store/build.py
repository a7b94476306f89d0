"""The store: every image decoded and resized once, as raw uint8 in memory-mapped shards, with a manifest.

A store is a folder::

    manifest.json    name, labels, size of the images, shards with their checksums, fingerprints of source and samples
    samples.npz      targets, split, place of each sample in the shards
    ids.json         the name of each sample
    unreadable.csv   the images that were left out, and why
    shards/          00000-FINGERPRINT.bin: uint8 (n, H, W, 3), back to back; with .json: its record

An image's name decides, by a hash, which shard it goes to; a shard carries in its own name the fingerprint of its
images (names, lengths, times of change, and how they are resized). So work that was interrupted goes on where it
stopped, of a changed source just the shards that changed are made anew, wherever in the table a row came or went, and
no shard is ever taken for another. The manifest is written last: a store that has one is whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check, console
from rectifier._base.files import write_bytes
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.store.decode import FITS, UnreadableError, image_size, resize, write_shard
from rectifier.data.store.shards import Maps, StoredImages
from rectifier.labels.space import LabelSpace

VERSION = 1
_UNREADABLE = "unreadable.csv"
_SHARD_IMAGES = 256  # so that a few large photographs, too, are shared out among processes
_SHARD_BYTES = 16 << 20
_MANY_SHARDS, _LARGE_SHARD = 64, 256 << 20  # more than so many only when they would be larger than this
_MOST_SHARDS = 512  # each stays open as a file
_MOST_PIXELS = 4096  # on a side
_LARGEST_SIDE = 224  # of images that nobody gave a size for


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

    What is already decoded and unchanged is kept: calling this again is quick, and goes on after an interruption. A
    store holds one selection of one source, at one size.

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
            check.that("workers", workers, "a positive integer", workers is None or check.is_count(workers)),
        ]
    )
    files, folder = data.images, Path(folder)
    if isinstance(files, ImageArray):
        return replace(data, images=_resized(files, as_size(size), fit))
    if not isinstance(files, ImageFiles):
        check.fail("the images of data", "files, to be decoded", "a store's; they are decoded")
    if not len(files):
        check.fail(f"data {data.name!r}", "of at least one image", "none")
    before = _owned_manifest(folder, data.name, files.root)
    # A store keeps its size: the first row of a table may be another one today.
    resolved = as_size(size) or as_size(before.get("size")) or _first_size(files)
    plan, slots, per_shard = _plan(files, folder, resolved, fit)
    _decode_missing(plan, folder, workers or available_cores())
    records = [json.loads(job.record.read_text()) for job in plan]
    failures = {path: reason for record in records for path, reason in record["unreadable"].items()}
    _list_failures(folder / _UNREADABLE, failures)
    kept = np.array([i for i, path in enumerate(files.paths) if path not in failures], np.int64)
    _check_failures(files, failures, len(kept), folder / _UNREADABLE, unreadable)
    maps = Maps([job.target for job in plan], (*resolved, 3))
    images = StoredImages(maps, resolved, per_shard, slots[kept], fit)
    lost = len(files) - len(kept)
    note = (f"{check.amount(lost, 'unreadable image')} left out.",) if lost else ()
    stored = replace(data.select(kept.tolist()), images=images, notes=(*data.notes, *note))
    _write_manifest(stored, images, folder, fit, plan, records)
    return stored


def open_store(folder: str | Path, *, verify: bool = False) -> ImageData:
    """Open a store without its source. ``verify`` also compares every shard with its checksum."""
    folder = Path(folder)
    manifest = _read_manifest(folder / "manifest.json")
    try:
        height, width = manifest["size"]
        shards = [
            (folder / "shards" / s["file"], s["samples"] * height * width * 3, s["sha256"]) for s in manifest["shards"]
        ]
        samples = np.load(io.BytesIO((folder / "samples.npz").read_bytes()), allow_pickle=False)
        maps = Maps([path for path, _, _ in shards], (height, width, 3))
        data = ImageData(
            manifest["name"],
            StoredImages(maps, (height, width), manifest["per_shard"], samples["slots"], manifest["fit"]),
            torch.from_numpy(samples["targets"].astype(np.int64)),
            LabelSpace.from_json(json.dumps(manifest)),
            torch.from_numpy(samples["split"].astype(np.int64)),
            tuple(json.loads((folder / "ids.json").read_text(encoding="utf-8"))),
            tuple(manifest["notes"]),
        )
        expected = manifest["fingerprint"], manifest["slots_sha256"]
    except Exception as error:  # whatever a damaged file makes a reader raise
        check.fail(str(folder), "a whole store", f"damage ({type(error).__name__}: {error}); build it again")
    if (data.fingerprint, _checksum(samples["slots"])) != expected:
        check.fail(str(folder), "the samples of its manifest", "others; build the store again")
    for path, length, checksum in shards:
        found = path.stat().st_size if path.exists() else 0
        if found != length:
            check.fail(str(path), f"a shard of {length:,} bytes", f"{found:,}; build the store again")
        if verify and hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
            check.fail(str(path), "the shard of the manifest", "another checksum; delete it and build the store again")
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
        size.lower().split("x") if isinstance(size, str) else size if isinstance(size, Sequence) else [size]
    )
    parts = [int(p) if isinstance(p, str) and p.strip().isdigit() else p for p in parts]
    parts = parts * 2 if len(parts) == 1 else parts
    if len(parts) != 2 or not all(check.is_count(p) and p <= _MOST_PIXELS for p in parts):
        check.fail("size", f"a number of pixels up to {_MOST_PIXELS}, or height and width as 64x48", repr(size))
    return int(parts[0]), int(parts[1])


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Job:
    """One shard to be."""

    root: Path
    paths: tuple[str, ...]
    size: tuple[int, int]
    fit: str
    target: Path

    @property
    def record(self) -> Path:
        return self.target.with_suffix(".json")

    def is_done(self) -> bool:
        try:
            samples = json.loads(self.record.read_text())["samples"]
            length = self.target.stat().st_size
        except (OSError, ValueError, TypeError, KeyError):
            return False
        return bool(samples == len(self.paths) and length == samples * self.size[0] * self.size[1] * 3)


def _plan(
    files: ImageFiles, folder: Path, size: tuple[int, int], fit: str
) -> tuple[list[_Job], NDArray[np.int64], int]:
    """Share the images out to shards: the jobs, the slot ``(N,)`` of each image, and the slots of a shard."""
    count = _shard_count(len(files), size[0] * size[1] * 3)
    members: list[list[str]] = [[] for _ in range(count)]
    for path in sorted(set(files.paths)):
        members[_shard_of(path, count)].append(path)
    per_shard = max(map(len, members))
    slot = {path: s * per_shard + row for s, paths in enumerate(members) for row, path in enumerate(paths)}
    jobs = []
    for number, paths in enumerate(members):
        fingerprint = _fingerprint(files.root, paths, size, fit)
        target = folder / "shards" / f"{number:05d}-{fingerprint[:16]}.bin"
        jobs.append(_Job(files.root, tuple(paths), size, fit, target))
    return jobs, np.array([slot[path] for path in files.paths], np.int64), per_shard


def _shard_count(images: int, image_bytes: int) -> int:
    fewest = min(_SHARD_IMAGES, max(1, _SHARD_BYTES // image_bytes))
    enough = max(_MANY_SHARDS, _power_of_two(images * image_bytes / _LARGE_SHARD))
    return min(_power_of_two(images / fewest), enough, _MOST_SHARDS)


def _power_of_two(number: float) -> int:
    """Round up. The number of shards changes when the data doubles: one image more must not move the others."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


def _shard_of(path: str, count: int) -> int:
    digest = hashlib.sha256(path.encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") % count


def _fingerprint(root: Path, paths: Sequence[str], size: tuple[int, int], fit: str) -> str:
    digest = hashlib.sha256(f"{VERSION} {size} {fit}".encode())
    for path in paths:
        try:
            status = os.stat(root / path)
            # The time of the last change of the file's record too: a copy can bring the old time of its content along.
            facts = f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"
        except OSError:
            facts = "absent"
        digest.update(f"{path}\0{facts}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _decode_missing(plan: list[_Job], folder: Path, workers: int) -> None:
    todo = [job for job in plan if not job.is_done()]
    if not todo:
        return
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    if is_store(folder):
        console.say(f"{len(todo)} of {check.amount(len(plan), 'shard')} out of date or damaged: decoding their images.")
    with console.progress() as display:
        task = display.add_task("decoding", total=sum(len(job.paths) for job in todo))
        for done in _run(todo, min(workers, len(todo))):
            display.advance(task, done)


def _run(jobs: list[_Job], workers: int) -> Iterable[int]:
    # A process that is used again may have been started in another folder.
    calls = [(str(job.root.absolute()), job.paths, job.size, job.fit, str(job.target.absolute())) for job in jobs]
    if workers == 1:
        return (write_shard(*call) for call in calls)
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # joblib's processes start without a fork and without importing the caller's script again.
    parallel = Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", pre_dispatch="2*n_jobs")
    finished: Iterable[int] = parallel(delayed(write_shard)(*call) for call in calls)
    return finished


def _first_size(files: ImageFiles) -> tuple[int, int]:
    for path in files.paths[:1000]:
        try:
            height, width = image_size(files.root / path)
        except UnreadableError:
            continue
        shrink = max(1.0, max(height, width) / _LARGEST_SIDE)
        return max(1, round(height / shrink)), max(1, round(width / shrink))
    check.fail(str(files.root / files.paths[0]), "a readable image", "none, nor among the first 1,000 images")


def _list_failures(path: Path, failures: dict[str, str]) -> None:
    if not failures:
        if path.exists():
            path.unlink()
        return
    text = io.StringIO()
    csv.writer(text).writerows([("image", "reason"), *failures.items()])
    _write_if_new(path, text.getvalue().encode(errors="surrogateescape"))
    console.say(f"{check.amount(len(failures), 'image')} cannot be read; {path} lists them.")


def unreadable_images(folder: Path) -> frozenset[str]:
    """Return the paths of the images that a store leaves out because they could not be read."""
    path = folder / _UNREADABLE
    if not path.is_file():
        return frozenset()
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return frozenset(row["image"] for row in csv.DictReader(file))


def _check_failures(files: ImageFiles, failures: dict[str, str], kept: int, listed_in: Path, unreadable: str) -> None:
    if failures and unreadable == "raise":
        path, reason = next(iter(failures.items()))
        got = f"{len(failures):,} that are not, such as {path} ({reason}); {listed_in} lists them"
        check.fail(str(files.root), f"a folder of {len(files):,} readable images", got)
    if not kept:
        check.fail(str(files.root), "a folder with readable images", f"none of {len(files):,}; {listed_in} says why")


def _write_manifest(
    data: ImageData, images: StoredImages, folder: Path, fit: str, plan: list[_Job], records: list[dict[str, Any]]
) -> None:
    manifest = {
        "version": VERSION,
        "name": data.name,
        "notes": list(data.notes),
        **json.loads(data.space.to_json()),
        "samples": len(data),
        "size": list(images.size),
        "fit": fit,
        "per_shard": images.per_shard,
        "shards": [
            {"file": job.target.name, "samples": record["samples"], "sha256": record["sha256"]}
            for job, record in zip(plan, records, strict=True)
        ],
        "source": str(plan[0].root.resolve()),
        "source_fingerprint": hashlib.sha256("".join(job.target.name for job in plan).encode()).hexdigest(),
        "fingerprint": data.fingerprint,
        "slots_sha256": _checksum(images.slots),
    }
    text = json.dumps(manifest, indent=1).encode()
    path = folder / "manifest.json"
    if path.exists():
        if path.read_bytes() == text and _opens(folder):
            return  # nothing is written to a store that is as it should be: it may be read-only
        path.unlink()
    smallest = np.int16 if max(data.space.sizes) < 2**15 else np.int64
    samples = io.BytesIO()
    targets, split = data.targets.numpy().astype(smallest), data.split.numpy().astype(np.int8)
    np.savez_compressed(samples, targets=targets, split=split, slots=images.slots)
    write_bytes(folder / "samples.npz", samples.getvalue())
    write_bytes(folder / "ids.json", json.dumps(data.ids).encode())
    write_bytes(path, text)
    _remove_others(folder / "shards", {job.target.stem for job in plan})


def _remove_others(folder: Path, stems: set[str]) -> None:
    """Remove the shards of earlier sources, and what a killed process left behind.

    Data that still refers to such a shard fails with the name of the file.
    """
    an_hour_ago = time.time() - 3600
    for path in folder.iterdir():
        abandoned = path.suffix == ".tmp" and path.stat().st_mtime < an_hour_ago
        if abandoned or (path.suffix in (".bin", ".json") and path.stem not in stems):
            path.unlink(missing_ok=True)


def _checksum(slots: NDArray[np.int64]) -> str:
    return hashlib.sha256(slots.astype("<i8").tobytes()).hexdigest()


def _opens(folder: Path) -> bool:
    try:
        open_store(folder)
    except (ValueError, OSError):
        return False
    return True


def _owned_manifest(folder: Path, name: str, root: Path) -> dict[str, Any]:
    """Return the manifest that stands in the folder, if any; refuse to replace the store of other data."""
    if not is_store(folder):
        return {}
    try:
        manifest = _read_manifest(folder / "manifest.json")
        owner = manifest["name"], manifest["source"]
    except (ValueError, KeyError):
        return {}  # damaged, and about to be made anew
    if owner != (name, str(root.resolve())):
        got = f"that of {owner[0]!r} from {owner[1]}; choose another folder, or delete this one"
        check.fail(str(folder), f"the store of {name!r} from {root.resolve()}", got)
    return manifest


def _write_if_new(path: Path, content: bytes) -> None:
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        check.no_file(str(path), "the manifest of a store", "build_store makes one.")
    except ValueError as error:
        check.fail(str(path), "the manifest of a store", f"no JSON ({error}); build the store again")
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if version != VERSION:
        check.fail(str(path), f"of version {VERSION}", f"version {version}; build the store again")
    return dict(manifest)


def _resized(images: ImageArray, size: tuple[int, int] | None, fit: str) -> ImageArray:
    if size is None or images.shape[:2] == size:
        return images
    return ImageArray(np.stack([resize(image, size, fit) for image in images.pixels]))
