"""Build a store: decode and resize every image once, into memory-mapped shards of raw uint8 with a manifest.

A store is a folder::

    manifest.json    name, labels, size of the images, shards with their checksums, fingerprints of source and samples
    samples.npz      targets, split, place of each sample in the shards
    ids.json         the name of each sample
    unreadable.csv   the images that could not be read, and why
    shards/          00000-FINGERPRINT.bin: uint8 (n, H, W, 3), back to back; with .json: its record

A hash of its name assigns an image to a shard. A shard's own name contains the fingerprint of its images: names,
lengths, times of change, and how they are resized. So an interrupted build resumes, and a changed source rebuilds only
the shards that changed. Rows of the table may move, and no shard is ever mistaken for another. The manifest is written
last: a store that has one is complete.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rectifier._base import check, console
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles, ImageSize, Ints, as_size
from rectifier.data.decode import FITS, INTERPOLATIONS, UnreadableError, image_size, resize, write_shard
from rectifier.data.store.manifest import UNREADABLE, VERSION, is_store, list_unreadable, owned_manifest, write_manifest
from rectifier.data.store.shards import Maps, StoredImages

Plan = dict[Path, list[str]]  # the shards of a store: the file to write, and the images to decode

SHARD_IMAGES = 256  # most images of a shard, so that a few large photographs are also shared among processes
SHARD_BYTES = 16 << 20  # most bytes of a shard, until there are many shards
MOST_SHARDS = 512  # each stays open as a file
_MANY_SHARDS, _LARGE_SHARD = 64, 256 << 20  # more shards than this only if they would exceed this many bytes


def build_store(
    data: ImageData,
    folder: str | Path,
    size: ImageSize | None = None,
    *,
    fit: str = "stretch",
    unreadable: str = "skip",
    workers: int | None = None,
    interpolation: str = "bilinear",
) -> ImageData:
    """Decode and resize the images of ``data`` into a store, and return the data with its images there.

    Decoded images that have not changed are kept, so a second call is quick and resumes an interrupted one. A store
    contains one selection of one source, at one size.

    Args:
        data: the result of a reader. Images in memory are returned as they are, or resized to ``size``.
        folder: the folder of the store, existing or new.
        size: height and width: ``(64, 48)``, ``"64x48"``, or one number for a square. The default is the size of the
            first image, shrunk to at most 224 on its longer side.
        fit: how another aspect ratio is handled: ``"stretch"``, ``"crop"`` the middle, ``"pad"`` with black.
        unreadable: ``"skip"`` drops damaged and missing images; ``"raise"`` raises an error after all others are
            decoded. In both cases ``unreadable.csv`` lists them.
        workers: number of processes; the default is one per core.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.
    """
    complaints = [
        check.choice("fit", fit, FITS),
        check.choice("interpolation", interpolation, INTERPOLATIONS),
        check.choice("unreadable", unreadable, ("skip", "raise")),
        None if workers is None else check.count("workers", workers),
    ]
    check.raise_all(complaints)
    files, folder = data.images, Path(folder)
    if isinstance(files, ImageArray):
        wanted = as_size(size) or files.shape[:2]
        if wanted == files.shape[:2]:
            return data
        return replace(
            data, images=ImageArray(np.stack([resize(image, wanted, fit, interpolation) for image in files.pixels]))
        )
    if not isinstance(files, ImageFiles):
        raise ValueError("These images are already in a store.")
    if not len(files):
        raise ValueError(f"{data.name!r} has no images.")
    before = owned_manifest(folder, data.name, files.root)
    # A store keeps its size: the first row of a table may have another one today.
    resolved = as_size(size) or as_size(before.get("size")) or _first_size(files)
    how = (fit, interpolation)
    plan, slots, per_shard = _plan(files, folder, resolved, how)
    _decode_missing(plan, folder, files.root, resolved, how, workers or available_cores())
    records = {target.name: json.loads(target.with_suffix(".json").read_text()) for target in plan}
    failures = {path: reason for record in records.values() for path, reason in record["unreadable"].items()}
    list_unreadable(folder, failures)
    kept = np.array([i for i, path in enumerate(files.paths) if path not in failures], np.int64)
    _check_failures(files, failures, len(kept), folder / UNREADABLE, unreadable)
    images = StoredImages(Maps(list(plan), (*resolved, 3)), resolved, per_shard, slots[kept], fit)
    lost = len(files) - len(kept)
    note = (f"Dropped {check.amount(lost, 'unreadable image')}.",) if lost else ()
    stored = replace(data.select(kept.tolist()), images=images, notes=(*data.notes, *note))
    write_manifest(stored, images, folder, files.root, records)
    return stored


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _plan(files: ImageFiles, folder: Path, size: tuple[int, int], how: tuple[str, str]) -> tuple[Plan, Ints, int]:
    """Assign the images to shards: the plan, the slot ``(N,)`` of each image, and the slots of a shard."""
    members: list[list[str]] = [[] for _ in range(shard_count(len(files), size[0] * size[1] * 3))]
    for path in sorted(set(files.paths)):
        digest = hashlib.sha256(path.encode(errors="surrogateescape")).digest()
        members[int.from_bytes(digest[:8], "big") % len(members)].append(path)
    per_shard = max(map(len, members))
    slot = {path: s * per_shard + row for s, paths in enumerate(members) for row, path in enumerate(paths)}
    names = [f"{s:05d}-{_fingerprint(files.root, paths, size, how)}.bin" for s, paths in enumerate(members)]
    plan = {folder / "shards" / name: paths for name, paths in zip(names, members, strict=True)}
    return plan, np.array([slot[path] for path in files.paths], np.int64), per_shard


def shard_count(images: int, image_bytes: int) -> int:
    """Return the number of shards of a store.

    >>> shard_count(400, 32 * 32 * 3), shard_count(10**6, 224 * 224 * 3)
    (2, 512)
    """
    fewest = min(SHARD_IMAGES, max(1, SHARD_BYTES // image_bytes))
    enough = max(_MANY_SHARDS, _power_of_two(images * image_bytes / _LARGE_SHARD))
    return min(_power_of_two(images / fewest), enough, MOST_SHARDS)


def _power_of_two(number: float) -> int:
    """Round up. The number of shards changes only when the data doubles, so a new image does not move the others."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


def _fingerprint(root: Path, paths: Sequence[str], size: tuple[int, int], how: tuple[str, str]) -> str:
    fit, interpolation = how
    resized = fit if interpolation == "bilinear" else f"{fit} {interpolation}"  # stores of before keep their names
    digest = hashlib.sha256(f"{VERSION} {size} {resized}".encode())
    for path in paths:
        try:
            status = os.stat(root / path)
            # ctime too: a copy can keep the old mtime.
            facts = f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"
        except OSError:
            facts = "absent"
        digest.update(f"{path}\0{facts}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _is_done(target: Path, images: int, image_bytes: int) -> bool:
    try:
        samples = json.loads(target.with_suffix(".json").read_text())["samples"]
        return bool(samples == images and target.stat().st_size == images * image_bytes)
    except (OSError, ValueError, TypeError, KeyError):
        return False


def _decode_missing(
    plan: Plan, folder: Path, root: Path, size: tuple[int, int], how: tuple[str, str], workers: int
) -> None:
    image_bytes = size[0] * size[1] * 3
    todo = {target: paths for target, paths in plan.items() if not _is_done(target, len(paths), image_bytes)}
    if not todo:
        return
    (folder / "shards").mkdir(parents=True, exist_ok=True)
    if is_store(folder):
        console.say(f"{len(todo)} of {check.amount(len(plan), 'shard')} out of date or damaged: decoding their images.")
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    # joblib's processes start without a fork and without importing the caller's script again. They are reused, and may
    # have been started in another folder: paths are absolute.
    jobs = min(workers, len(todo))
    parallel = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", pre_dispatch="2*n_jobs")
    write = delayed(write_shard)
    with console.progress() as display:
        task = display.add_task("decoding", total=sum(map(len, todo.values())))
        for done in parallel(write(root.absolute(), paths, size, how, to.absolute()) for to, paths in todo.items()):
            display.advance(task, done)


def _first_size(files: ImageFiles) -> tuple[int, int]:
    for path in files.paths[:1000]:
        try:
            height, width = image_size(files.root / path)
        except UnreadableError:
            continue
        shrink = max(1.0, max(height, width) / 224)
        return max(1, round(height / shrink)), max(1, round(width / shrink))
    raise ValueError(f"None of the first 1,000 images can be read, e.g. {files.root / files.paths[0]}.")


def _check_failures(files: ImageFiles, failures: dict[str, str], kept: int, listed_in: Path, unreadable: str) -> None:
    if not failures or (kept and unreadable == "skip"):
        return
    path = files.root / next(iter(failures))
    which, them = (f": {path}", "it") if len(failures) == 1 else (f", e.g. {path}", "them")
    remedy = f"Repair or remove {them}, or set unreadable='skip'." if kept else "No image is left."
    count = f"{len(failures):,} of {check.amount(len(files), 'image')}"
    raise ValueError(f"{count} cannot be read{which}. {remedy} {listed_in} gives the reason for each.")
