"""rectifier store: decode images once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer import Option

from rectifier.cli.options import ReaderSeed, ReaderSet, open_described, verb
from rectifier.training.settings import SETTINGS


@verb(
    "store --data labels.csv --images photos --size 64x48 --out photos.store",
    settings=("data", "images", "data_root", "fit", "unreadable"),
    required="data",
)
def store(
    out: Path = Option(..., metavar="DIR", help="New folder for the store."),
    size: str | None = Option(None, help=SETTINGS["size"].help + " \\[default: the first image's, at most 224]"),
    workers: int | None = Option(None, help="Number of processes. \\[default: one per core]"),
    seed: ReaderSeed = None,
    settings: ReaderSet = None,
    **given: Any,
) -> None:
    """Decode and resize images once, into a folder that every command takes as --data."""
    from rectifier._base import check
    from rectifier.data.dataset import ImageArray, as_size
    from rectifier.data.store import build_store

    as_size(size)  # before a large data set is read
    opened = open_described(given, seed, settings)
    if isinstance(opened.images, ImageArray):
        raise ValueError(f"{given['data']} needs no store: its images are in memory once it is read.")
    handling = {key: given[key] for key in ("fit", "unreadable") if given[key]}
    stored = build_store(opened, out, size, workers=workers, **handling)
    height, width, _ = stored.images.shape  # type: ignore[attr-defined]
    skipped = len(opened) - len(stored)
    typer.echo(f"{out}: {check.amount(len(stored), 'image')} of {height} x {width} pixels, {skipped:,} skipped.")
