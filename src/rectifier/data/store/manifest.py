"""The manifest of a store, and opening a store without its source."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rectifier._base import check, console
from rectifier._base.files import write_bytes
from rectifier.data.dataset import ImageData, Ints
from rectifier.data.store.shards import Maps, StoredImages
from rectifier.labels.space import LabelSpace

VERSION = 1
MANIFEST, SAMPLES, IDS, UNREADABLE = "manifest.json", "samples.npz", "ids.json", "unreadable.csv"


def is_store(path: Path) -> bool:
    """Say whether a path is a store's folder."""
    return (path / MANIFEST).is_file() and (path / "shards").is_dir()


def open_store(folder: str | Path, *, verify: bool = False) -> ImageData:
    """Open a store without its source. ``verify`` also compares every shard with its checksum."""
    folder = Path(folder)
    manifest = _read_manifest(folder / MANIFEST)
    try:
        height, width = manifest["size"]
        listed = [(s["file"], s["samples"] * height * width * 3, s["sha256"]) for s in manifest["shards"]]
        samples = np.load(io.BytesIO((folder / SAMPLES).read_bytes()), allow_pickle=False)
        maps = Maps([folder / "shards" / file for file, _, _ in listed], (height, width, 3))
        data = ImageData(
            manifest["name"],
            StoredImages(maps, (height, width), manifest["per_shard"], samples["slots"], manifest["fit"]),
            torch.from_numpy(samples["targets"].astype(np.int64)),
            LabelSpace.from_json(json.dumps(manifest)),
            torch.from_numpy(samples["split"].astype(np.int64)),
            tuple(json.loads((folder / IDS).read_text(encoding="utf-8"))),
            tuple(manifest["notes"]),
        )
        expected = manifest["fingerprint"], manifest["slots_sha256"]
    except Exception as error:  # a damaged file can raise almost anything
        check.fail(str(folder), "a whole store", f"damage ({type(error).__name__}: {error}); build it again")
    if (data.fingerprint, _checksum(samples["slots"])) != expected:
        raise ValueError(f"{folder} does not match its manifest. Build the store again.")
    for file, length, checksum in listed:
        path = folder / "shards" / file
        if (found := path.stat().st_size if path.exists() else 0) != length:
            check.fail(str(path), f"a shard of {length:,} bytes", f"{found:,}; build the store again")
        if verify and hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
            raise ValueError(f"{path} does not match its manifest. Delete it and build the store again.")
    return data


def owned_manifest(folder: Path, name: str, root: Path) -> dict[str, Any]:
    """Return the manifest in the folder, if there is one. The store of other data is an error: it is not replaced."""
    if not is_store(folder):
        return {}
    try:
        manifest = _read_manifest(folder / MANIFEST)
        owner = manifest["name"], manifest["source"]
    except (ValueError, KeyError):
        return {}  # damaged, and about to be rebuilt
    if owner != (name, str(root.resolve())):
        got = f"that of {owner[0]!r} from {owner[1]}; choose another folder, or delete this one"
        check.fail(str(folder), f"the store of {name!r} from {root.resolve()}", got)
    return manifest


def write_manifest(data: ImageData, images: StoredImages, folder: Path, root: Path, shards: Mapping[str, Any]) -> None:
    """Write the manifest and the samples of a store, whose ``shards`` are records by file name.

    The manifest comes last. A store that is already right stays untouched, so it may be read-only.
    """
    manifest = {
        "version": VERSION,
        "name": data.name,
        "notes": list(data.notes),
        **json.loads(data.space.to_json()),
        "samples": len(data),
        "size": list(images.size),
        "fit": images.fit,
        "per_shard": images.per_shard,
        "shards": [{"file": file, "samples": r["samples"], "sha256": r["sha256"]} for file, r in shards.items()],
        "source": str(root.resolve()),
        "source_fingerprint": hashlib.sha256("".join(shards).encode()).hexdigest(),
        "fingerprint": data.fingerprint,
        "slots_sha256": _checksum(images.slots),
    }
    text = json.dumps(manifest, indent=1).encode()
    path = folder / MANIFEST
    if path.exists():
        if path.read_bytes() == text:
            with suppress(ValueError, OSError):
                open_store(folder)
                return
        path.unlink()
    smallest = np.int16 if max(data.space.sizes) < 2**15 else np.int64
    samples = io.BytesIO()
    targets, split = data.targets.numpy().astype(smallest), data.split.numpy().astype(np.int8)
    np.savez_compressed(samples, targets=targets, split=split, slots=images.slots)
    write_bytes(folder / SAMPLES, samples.getvalue())
    write_bytes(folder / IDS, json.dumps(data.ids).encode())
    write_bytes(path, text)
    _remove_others(folder / "shards", {Path(file).stem for file in shards})


def list_unreadable(folder: Path, failures: Mapping[str, str]) -> None:
    """Write the unreadable images and the reasons to ``unreadable.csv``; without any there is no such file."""
    path = folder / UNREADABLE
    if not failures:
        if path.exists():
            path.unlink()
        return
    text = io.StringIO()
    csv.writer(text).writerows([("image", "reason"), *failures.items()])
    content = text.getvalue().encode(errors="surrogateescape")
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)
    console.say(f"{check.amount(len(failures), 'image')} cannot be read; see {path}.")


def unreadable_images(folder: Path) -> frozenset[str]:
    """Return the paths of the images that a store lacks because they could not be read."""
    path = folder / UNREADABLE
    if not path.is_file():
        return frozenset()
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return frozenset(row["image"] for row in csv.DictReader(file))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        check.no_file(path, "build_store makes one.")
    except ValueError as error:
        check.fail(str(path), "the manifest of a store", f"text that is not JSON ({error}); build the store again")
    version = manifest.get("version") if isinstance(manifest, dict) else None
    if version != VERSION:
        check.fail(str(path), f"of version {VERSION}", f"version {version}; build the store again")
    return dict(manifest)


def _remove_others(folder: Path, stems: set[str]) -> None:
    """Remove the shards of earlier sources, and the drafts of killed processes."""
    an_hour_ago = time.time() - 3600
    for path in folder.iterdir():
        abandoned = path.suffix == ".tmp" and path.stat().st_mtime < an_hour_ago
        if abandoned or (path.suffix in (".bin", ".json") and path.stem not in stems):
            path.unlink(missing_ok=True)


def _checksum(slots: Ints) -> str:
    return hashlib.sha256(slots.astype("<i8").tobytes()).hexdigest()
