"""open_data: a name, or a path, to data. SOURCES lists the names."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.data.dataset import ImageData
from rectifier.data.readers.celeba import celeba
from rectifier.data.readers.cifar import cifar10, cifar100
from rectifier.data.readers.deepfashion import deepfashion
from rectifier.data.readers.digits import digits
from rectifier.data.readers.fashion import fashion
from rectifier.data.readers.folder import read_folder
from rectifier.data.readers.shapes import shapes
from rectifier.data.readers.xdomain import xdomain
from rectifier.data.store.build import is_store, open_store
from rectifier.data.table import read_table


@dataclass(frozen=True)
class Source:
    """A reader and one line about what it reads. Readers of files take the data root first."""

    read: Callable[..., ImageData]
    about: str
    on_disk: bool = True
    mirrored: bool = True  # an image keeps its labels when it is mirrored


SOURCES = {
    "digits": Source(digits, "8 x 8 digits of scikit-learn, made imbalanced (embedded)", False, mirrored=False),
    "shapes": Source(shapes, "generated images with several labels, any imbalance (embedded)", False, mirrored=False),
    "cifar10": Source(cifar10, "CIFAR-10; imb=, bln=, exp=, step= make it imbalanced"),
    "cifar100": Source(cifar100, "CIFAR-100; imb=, bln=, exp=, step= make it imbalanced"),
    "celeba": Source(celeba, "CelebA, 40 binary attributes; split=official or paper"),
    "deepfashion": Source(deepfashion, "DeepFashion, 1,000 binary attributes in five groups"),
    "xdomain": Source(xdomain, "X-Domain, nine clothing labels (not public)"),
    "fashion": Source(fashion, "Fashion Product Images, eight labels"),
}


class MissingDataError(FileNotFoundError):
    """Data that is not where it was looked for."""


def open_data(
    spec: str | Path,
    *,
    root: str | Path | None = None,
    images: str | Path | None = None,
    seed: int | None = None,
    **options: Any,
) -> ImageData:
    """Open data by name or path.

    A name may carry options, ``cifar100:imb=1`` or ``shapes:samples=500,ratio=50``; so may a call. A path is a CSV or
    Parquet table (``images`` is the folder that its paths start from), a folder per class, or a store. ``root`` is the
    folder that the named data sets lie in: the environment variable ``RECTIFIER_DATA``, else ``./data``.

    >>> open_data("shapes:samples=60,size=16,ratio=4,labels=shape").space.names
    ('shape',)
    """
    name, given = _parse(str(spec))
    options = {**given, **options}
    read, *arguments = _reader(name, root)
    takes = reader_options(read)
    if images is not None:
        if "images" not in takes:
            check.fail("images", "given with a table alone", f"{images} beside {name!r}")
        options["images"] = Path(images)
    if seed is not None:
        if "seed" not in takes:
            check.fail("seed", f"left out for {name!r}, which draws nothing", seed)
        options.setdefault("seed", seed)
    check.options_of(name, options, takes)
    # What comes as text, from a command line, is a number or a yes and no only where the reader takes no text.
    typed = {key: literal(v) if isinstance(v, str) and "str" not in takes[key] else v for key, v in options.items()}
    for key, value in typed.items():
        if takes[key] == "bool" and not isinstance(value, bool):
            check.fail(key, "true or false", repr(value))
    try:
        data: ImageData = read(*arguments, **typed)
    except FileNotFoundError as error:
        raise MissingDataError(*error.args) from error
    return data


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder that named data sets lie in."""
    return Path(root or os.environ.get("RECTIFIER_DATA") or "data")


def source_options(spec: str | Path, root: str | Path | None = None) -> tuple[str, ...]:
    """Return the names of the options that data takes.

    >>> source_options("digits")
    ('ratio', 'seed')
    """
    return tuple(reader_options(_reader(_parse(str(spec))[0], root)[0]))


def may_mirror(spec: str | Path) -> bool:
    """Say whether images of this data keep their labels when they are mirrored: digits do not; others are taken to."""
    source = SOURCES.get(_parse(str(spec))[0])
    return source is None or source.mirrored


def _reader(name: str, root: str | Path | None) -> tuple[Any, ...]:
    """Return what reads this data, and its positional arguments."""
    if name in SOURCES:
        source = SOURCES[name]
        return (source.read, data_root(root)) if source.on_disk else (source.read,)
    path = Path(name)
    if not name.strip() or not path.exists():
        wanted = f"a data set ({', '.join(SOURCES)}) or an existing table or folder"
        hint = check.nearest(name.partition(":")[0].lower(), SOURCES)
        raise FileNotFoundError(check.sentence("data", wanted, repr(name)) + hint)
    if is_store(path):
        return (open_store, path)
    if (path / "shards").is_dir():
        check.fail(str(path), "a whole store", "an unfinished one; run what makes it again, and it goes on")
    return (read_folder if path.is_dir() else read_table, path)


def reader_options(read: Callable[..., ImageData]) -> dict[str, str]:
    """Return the names of a reader's options, and what each takes, as its signature writes it."""
    parameters = inspect.signature(read).parameters.values()
    return {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}


def _parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Take ``name:key=value,key=value`` apart; a path has no options."""
    name, colon, rest = spec.partition(":")
    if name not in SOURCES or not colon:
        return spec, {}
    options = {}
    for entry in filter(None, rest.split(",")):
        key, equals, value = entry.partition("=")
        if not equals:
            check.fail(f"options of {name}", "key=value, with commas between", repr(entry))
        options[key.strip()] = value.strip()
    return name, options


def literal(text: str) -> Any:
    """Read a number, true or false off text; anything else stays text.

    >>> literal("3"), literal("0.5"), literal("true"), literal("paper")
    (3, 0.5, True, 'paper')
    """
    if text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
