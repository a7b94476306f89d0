"""CIFAR-100 and CIFAR-10, in the python and in the binary layout, as they are or made imbalanced."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import ImageArray, ImageData, Pixels
from rectifier.data.readers import download as downloads
from rectifier.data.readers.text_files import numbered_lines
from rectifier.labels import imbalance
from rectifier.labels.space import LabelSpace

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Layout:
    """Where one of the two data sets keeps what, in the python and in the binary layout."""

    name: str
    label: str
    url: str
    md5: str
    classes: int
    folders: tuple[str, str]
    train: tuple[tuple[str, ...], tuple[str, ...]]
    test: tuple[str, str]
    meta: tuple[str, str]
    targets_key: bytes
    names_key: bytes
    label_bytes: int  # of a binary record; the last of them is the label


_CIFAR100 = _Layout(
    name="cifar100",
    label="object",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    classes=100,
    folders=("cifar-100-python", "cifar-100-binary"),
    train=(("train",), ("train.bin",)),
    test=("test", "test.bin"),
    meta=("meta", "fine_label_names.txt"),
    targets_key=b"fine_labels",
    names_key=b"fine_label_names",
    label_bytes=2,
)
_CIFAR10 = _Layout(
    name="cifar10",
    label="object",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    classes=10,
    folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
    train=(
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
    ),
    test=("test_batch", "test_batch.bin"),
    meta=("batches.meta", "batches.meta.txt"),
    targets_key=b"labels",
    names_key=b"label_names",
    label_bytes=1,
)


def read_cifar(
    layout: _Layout,
    root: Path,
    *,
    imb: float | None = None,
    bln: float | None = None,
    exp: float | None = None,
    step: float | None = None,
    largest: int | None = None,
    validation: int = 10,
    seed: int = 0,
    download: bool = False,
) -> ImageData:
    """Read CIFAR-100 or CIFAR-10 (``cifar100``, ``cifar10``), python or binary layout.

    Without a profile each class gives ``validation`` of its training images to validation: the paper's 490/10/100.
    With one, the training part has the profile's class sizes and validation takes ``validation`` images of each class
    among those not trained on; a class that trains on all its images has none there. Test images are the official ones.

    Args:
        layout: which of the two.
        root: the folder that holds the data set's own.
        imb: gamma of the paper's power law, the largest class 20 times the smallest: ``imb=1`` has 8,072 images.
        bln: the same number of images as ``imb`` has for this gamma, with equal classes.
        exp: ratio of the exponential profile of the long-tail literature (CIFAR-LT).
        step: ratio of the step profile: the second half of the classes is rare.
        largest: size of the largest class. If not given: all images of a class; with ``step``, which keeps many
            classes at that size, all but those held out.
        validation: images of each class held out for validation.
        seed: which images are held out and kept.
        download: fetch the python archive if no folder is there.
    """
    check.raise_all([check.that("seed", seed, "an integer from 0", isinstance(seed, int) and seed >= 0)])
    given = {"imb": imb, "bln": bln, "exp": exp, "step": step}
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) > 1:
        check.fail("the profile", "one of imb, bln, exp, step", " and ".join(chosen))
    folder, binary = _locate(layout, root, download)
    train_rows, train_targets = _read_files(layout, folder, layout.train[binary], binary)
    test_rows, test_targets = _read_files(layout, folder, (layout.test[binary],), binary)
    space = LabelSpace.from_names({layout.label: _class_names(layout, folder / layout.meta[binary], binary)})
    sizes = _train_sizes(train_targets, layout.classes, chosen, largest, validation)
    keep, held_out = _choose(train_targets, sizes, validation, seed)
    picked = np.concatenate([keep, held_out])
    targets = np.concatenate([train_targets[picked], test_targets])
    split = np.repeat([0, 1, 2], [len(keep), len(held_out), len(test_targets)])
    return ImageData(
        _name(layout.name, chosen, largest),
        ImageArray(_as_images(np.concatenate([train_rows[picked], test_rows]))),
        torch.from_numpy(targets)[:, None],
        space,
        torch.from_numpy(split),
        (*(f"train/{i:05d}" for i in picked), *(f"test/{i:05d}" for i in range(len(test_targets)))),
        _notes(chosen, sizes, np.bincount(train_targets[held_out], minlength=layout.classes), validation, seed),
    )


def _name(base: str, chosen: dict[str, float], largest: int | None) -> str:
    options = [f"{key}={value:g}" for key, value in chosen.items()]
    options += [] if largest is None else [f"largest={largest}"]
    return f"{base}:{','.join(options)}" if options else base


cifar100 = partial(read_cifar, _CIFAR100)
cifar10 = partial(read_cifar, _CIFAR10)


def _locate(layout: _Layout, root: Path, download: bool) -> tuple[Path, bool]:
    inside = [root / layout.name / name for name in layout.folders]  # where a download is unpacked
    for folder in (*(root / name for name in layout.folders), *inside, root):
        for binary in (False, True):
            files = (layout.test[binary], *layout.train[binary], layout.meta[binary])
            if any((folder / name).is_file() for name in files):  # a missing one is then complained of by name
                return folder, binary
    if download:
        archive = downloads.fetch(layout.url, root, known_hash=f"md5:{layout.md5}")
        folder = downloads.unpack(archive, root / layout.name)
        return folder / layout.folders[0], False
    hint = (
        f"--set download=true fetches it, or get {layout.url} and unpack it in {root}"
        " (--data-root, or the environment variable RECTIFIER_DATA, names another folder)."
    )
    check.no_file(f"{root / layout.folders[0]} or {root / layout.folders[1]}", f"the folder of {layout.name}", hint)


def _read_files(layout: _Layout, folder: Path, names: tuple[str, ...], binary: bool) -> tuple[Pixels, Ints]:
    """Return rows of 3,072 pixels, plane by plane, and targets."""
    read: Callable[[_Layout, Path], tuple[Pixels, Ints]] = _read_binary if binary else _read_pickle
    parts = [read(layout, folder / name) for name in names]
    if len(parts) == 1:  # joining one would copy it
        return parts[0]
    return np.concatenate([p for p, _ in parts]), np.concatenate([t for _, t in parts])


def _read_binary(layout: _Layout, path: Path) -> tuple[Pixels, Ints]:
    record = layout.label_bytes + 3072
    content = np.frombuffer(_bytes(path), np.uint8)
    if len(content) == 0 or len(content) % record:
        check.fail(str(path), f"a whole number of records of {record} bytes", f"{len(content)} bytes")
    rows = content.reshape(-1, record)
    return rows[:, layout.label_bytes :], _as_targets(layout, path, rows[:, layout.label_bytes - 1])


def _read_pickle(layout: _Layout, path: Path) -> tuple[Pixels, Ints]:
    content = load_pickle(path)
    if not isinstance(content, dict):
        check.fail(str(path), "a pickled dictionary", type(content).__name__)
    for key in (b"data", layout.targets_key):
        if key not in content:
            check.fail(str(path), f"a dictionary with the entry {key.decode()!r}", f"none ({_keys(content)})")
    rows = content[b"data"]
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        got = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        check.fail(f"'data' of {path}", "uint8 of shape (N, 3072)", got)
    targets = content[layout.targets_key]
    if not isinstance(targets, list) or not all(isinstance(t, int) for t in targets):
        check.fail(f"{layout.targets_key.decode()!r} of {path}", "a list of integers", type(targets).__name__)
    if len(targets) != len(rows):
        check.fail(str(path), f"one label for each of the {len(rows)} images", f"{len(targets)} labels")
    return rows, _as_targets(layout, path, np.asarray(targets))


def _as_images(rows: Pixels) -> Pixels:
    """Return images ``(N, 32, 32, 3)``; turning them is slow, so it is done with those that are kept."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _as_targets(layout: _Layout, path: Path, targets: NDArray[Any]) -> Ints:
    wrong = np.flatnonzero((targets < 0) | (targets >= layout.classes))
    if len(wrong):
        got = f"{targets[wrong[0]]} for image {wrong[0]}"
        check.fail(f"every label of {path}", f"from 0 to {layout.classes - 1}", got)
    return targets.astype(np.int64)


def _class_names(layout: _Layout, path: Path, binary: bool) -> list[str]:
    if binary:
        names = [line for _, line in numbered_lines(path)]
    else:
        content = load_pickle(path)
        if not isinstance(content, dict) or layout.names_key not in content:
            check.fail(str(path), f"a dictionary with the entry {layout.names_key.decode()!r}", _keys(content))
        listed = content[layout.names_key]
        if not isinstance(listed, list):
            check.fail(str(path), f"a list of {layout.classes} class names", type(listed).__name__)
        names = [_text(path, name) for name in listed]
    if len(names) != layout.classes:
        check.fail(str(path), f"a list of {layout.classes} class names", f"{len(names)}")
    for position, name in enumerate(names):
        if name in names[:position]:
            check.fail(str(path), "a list of different class names", f"{name!r} twice")
    return names


def _text(path: Path, name: object) -> str:
    try:
        return name.decode() if isinstance(name, bytes) else str(name)
    except UnicodeDecodeError:
        check.fail(str(path), "a list of class names in UTF-8", repr(name))


def _keys(content: object) -> str:
    if not isinstance(content, dict):
        return type(content).__name__
    return ", ".join(key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in content) or "empty"


def _train_sizes(targets: Ints, classes: int, chosen: dict[str, float], largest: int | None, validation: int) -> Ints:
    """Return how many images of each class are trained on."""
    if not isinstance(validation, int) or isinstance(validation, bool) or validation < 0:
        check.fail("validation", "a number of images per class, 0 or more", repr(validation))
    available = np.bincount(targets, minlength=classes)
    if not chosen:
        if largest is not None:
            check.fail("largest", "given beside one of imb, bln, exp, step", "no profile")
        if validation >= available.min():
            check.fail("validation", f"below {available.min()}, the size of the smallest class", validation)
        return available - validation
    most = int(available.min())
    if largest is None:
        # A step keeps many classes whole, and a validation part without them would be no guide.
        largest = max(1, most - validation) if "step" in chosen else most
    if not check.is_count(largest) or largest > most:
        check.fail("largest", f"from 1 to {most}, the images of a class", repr(largest))
    ((profile, value),) = chosen.items()
    if profile in ("imb", "bln"):
        sizes = imbalance.power_law_profile(classes, largest, max(1, round(largest / 20)), value)
        if profile == "bln":
            total = sum(sizes)
            sizes = [total // classes + (i < total % classes) for i in range(classes)]
    else:
        if not (check.is_real(value) and 1 <= value <= largest):
            check.fail(profile, f"a ratio from 1 to {largest}", repr(value))
        exponential = imbalance.exponential_profile(classes, largest, largest / value)
        sizes = exponential if profile == "exp" else imbalance.step_profile(classes, largest, exponential[-1])
    return np.asarray(sizes)


def _choose(targets: Ints, sizes: Ints, validation: int, seed: int) -> tuple[Ints, Ints]:
    """Choose ``sizes`` images of each class to train on and, of what is left, up to ``validation`` to validate on."""
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(targets))
    by_class = shuffled[np.argsort(targets[shuffled], kind="stable")]
    counts = np.bincount(targets, minlength=len(sizes))
    rank = np.arange(len(targets)) - np.repeat(counts.cumsum() - counts, counts)
    size = np.repeat(sizes, counts)
    keep = by_class[rank < size]
    held_out = by_class[(rank >= size) & (rank < size + validation)]
    return np.sort(keep), np.sort(held_out)


def _notes(chosen: dict[str, float], sizes: Ints, held_out: Ints, validation: int, seed: int) -> tuple[str, ...]:
    if not chosen:
        return (f"{validation} training images of each class held out for validation (seed {seed}).",)
    ((profile, value),) = chosen.items()
    notes = [f"Training part: {profile}({value:g}), {sizes.sum():,} images, {sizes.max()} to {sizes.min()} a class."]
    without = int((held_out < validation).sum())
    if without:
        none = int((held_out == 0).sum())
        notes.append(
            f"Fewer than {validation} images left for validation: {check.amount(without, 'class')} of {len(sizes)}"
            f" ({none} with none)" + _advice(int(sizes.max()), validation)
        )
    return tuple(notes)


def _advice(largest: int, validation: int) -> str:
    return f"; largest={largest - validation} leaves enough." if largest > validation else "."


def load_pickle(path: Path) -> Any:
    """Unpickle a file of plain containers, text, numbers and NumPy arrays; anything else is refused."""
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file, encoding="bytes").load()
    except FileNotFoundError:
        check.no_file(str(path), "a pickle of the data set", "")
    except _RefusedError:
        raise
    except Exception as error:  # a damaged pickle can raise almost anything
        check.fail(str(path), "a whole pickle", f"a damaged one ({error})")


class _RefusedError(ValueError):
    """A pickle that asks for more than data."""


class _PlainUnpickler(pickle.Unpickler):
    _ADMITTED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),  # how protocol 2 writes bytes
        }
    )

    def __init__(self, file: BinaryIO, **options: Any) -> None:
        super().__init__(file, **options)
        self._name = file.name

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ADMITTED:
            wanted = "a pickle of lists, text, numbers and arrays"
            raise _RefusedError(
                check.sentence(self._name, wanted, f"one that asks for {module}.{name}; it was not run")
            )
        return super().find_class(module, name)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        check.no_file(str(path), "a file of the binary layout", "")
