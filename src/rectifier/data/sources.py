"""open_data opens data by name or path. SOURCES lists the names."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rectifier._base import check
from rectifier.data.dataset import ImageData
from rectifier.data.folder import read_folder
from rectifier.data.readers.celeba import celeba
from rectifier.data.readers.cifar import cifar10, cifar100
from rectifier.data.readers.deepfashion import deepfashion
from rectifier.data.readers.digits import digits
from rectifier.data.readers.fashion import fashion
from rectifier.data.readers.shapes import shapes
from rectifier.data.readers.xdomain import xdomain
from rectifier.data.store import is_store, open_store
from rectifier.data.table import read_table


@dataclass(frozen=True)
class Source:
    """A named data set: its reader and one line about it. Readers of files take the data root first."""

    read: Callable[..., ImageData]
    about: str
    on_disk: bool = True
    mirrored: bool = True  # a mirrored image keeps its labels


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
    """Data that does not exist at its place."""


def open_data(
    spec: str | Path,
    *,
    root: str | Path | None = None,
    images: str | Path | None = None,
    seed: int | None = None,
    **options: Any,
) -> ImageData:
    """Open data by name or path.

    Options of the reader follow the name, ``cifar100:imb=1`` or ``shapes:samples=500,ratio=50``, or are keywords. A
    path is a CSV or Parquet table (``images`` is the folder that its paths start from), a folder per class, or a
    store. ``root`` contains the named data sets; the default is the environment variable ``RECTIFIER_DATA``, else
    ``./data``.

    >>> open_data("shapes:samples=60,size=16,ratio=4,labels=shape").space.names
    ('shape',)
    """
    name, given = _parse(str(spec))
    options = {**given, **options}
    read, *arguments = _reader(name, root)
    takes = reader_options(read)
    if images is not None:
        if "images" not in takes:
            check.fail("images", "given only with a table", f"{images} for {name!r}")
        options["images"] = Path(images)
    if seed is not None:
        if "seed" not in takes:
            check.fail("seed", f"omitted for {name!r}, which draws nothing", seed)
        options.setdefault("seed", seed)
    check.options_of(name, options, takes)
    # Text from a command line is read as a number or a truth value only if the reader does not take text.
    typed = {key: literal(v) if isinstance(v, str) and "str" not in takes[key] else v for key, v in options.items()}
    for key, value in typed.items():
        if takes[key] == "bool" and not isinstance(value, bool):
            check.fail(key, "true or false", repr(value))
    try:
        return read(*arguments, **typed)  # type: ignore[no-any-return]
    except FileNotFoundError as error:
        raise MissingDataError(*error.args) from error


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder that contains the named data sets."""
    return Path(root or os.environ.get("RECTIFIER_DATA") or "data")


def source_options(spec: str | Path, root: str | Path | None = None) -> tuple[str, ...]:
    """Return the names of the options of a data set or path, such as ratio and seed of digits."""
    return tuple(reader_options(_reader(_parse(str(spec))[0], root)[0]))


def may_mirror(spec: str | Path) -> bool:
    """Say whether mirrored images keep their labels. Digits do not; your own images are assumed to."""
    source = SOURCES.get(_parse(str(spec))[0])
    return source is None or source.mirrored


def _reader(name: str, root: str | Path | None) -> tuple[Any, ...]:
    """Return the reader of this data, and its positional arguments."""
    if name in SOURCES:
        source = SOURCES[name]
        return (source.read, data_root(root)) if source.on_disk else (source.read,)
    path = Path(name)
    if not name.strip() or not path.exists():
        if ":" not in name and (path.suffix or len(path.parts) > 1):  # meant as a path
            around = [other.name for other in path.parent.glob("*")]
            raise FileNotFoundError(f"{name} does not exist.{check.nearest(path.name, around)}")
        wanted = f"a data set ({', '.join(SOURCES)}) or an existing table or folder"
        hint = check.nearest(name.partition(":")[0].lower(), SOURCES)
        raise FileNotFoundError(check.sentence("data", wanted, repr(name)) + hint)
    if is_store(path):
        return (open_store, path)
    if (path / "shards").is_dir():
        raise ValueError(f"{path} is an unfinished store. Build it again to resume.")
    return (read_folder if path.is_dir() else read_table, path)


def reader_options(read: Callable[..., ImageData]) -> dict[str, str]:
    """Return the names of a reader's options with their annotations."""
    parameters = inspect.signature(read).parameters.values()
    return {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}


def _parse(spec: str) -> tuple[str, dict[str, Any]]:
    """Parse ``name:key=value,key=value``; a path has no options."""
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
    """Parse a number, true or false; anything else stays text.

    >>> literal("3"), literal("0.5"), literal("true"), literal("paper")
    (3, 0.5, True, 'paper')
    """
    if text.lower() in ("true", "yes", "on", "false", "no", "off"):
        return text.lower() in ("true", "yes", "on")
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
