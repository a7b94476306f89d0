"""The files of CIFAR-100 and CIFAR-10, in the python and in the binary layout."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rectifier._base import check
from rectifier.data.dataset import Ints, Pixels
from rectifier.data.text_files import numbered_lines


@dataclass(frozen=True)
class CifarFiles:
    """File names and keys of one CIFAR data set. Pairs are for the python and the binary layout."""

    name: str
    url: str
    md5: str
    classes: int
    folders: tuple[str, str]
    train: tuple[str, ...]  # with the suffix .bin in the binary layout
    test: tuple[str, ...]
    meta: tuple[str, str]
    prefix: bytes  # of the keys "labels" and "label_names"
    label_bytes: int  # of a binary record; the last of them is the label

    def is_in(self, folder: Path, binary: bool) -> bool:
        """Say whether a folder has any file of the layout. The reader then names those that are missing."""
        names = [f"{name}.bin" if binary else name for name in (*self.train, *self.test)]
        return any((folder / name).is_file() for name in (*names, self.meta[binary]))

    def read(self, folder: Path, names: Sequence[str], binary: bool) -> tuple[Pixels, Ints]:
        """Return rows of 3,072 pixels, plane by plane, and targets. ``names`` is ``train`` or ``test``."""
        parts = [self._read_binary(folder / f"{n}.bin") if binary else self._read_pickle(folder / n) for n in names]
        return np.concatenate([p for p, _ in parts]), np.concatenate([t for _, t in parts])

    def class_names(self, folder: Path, binary: bool) -> list[str]:
        """Return the names of the classes in the order of their numbers."""
        path = folder / self.meta[binary]
        if binary:
            names = [line for _, line in numbered_lines(path)]
        else:
            listed = _entry(path, load_pickle(path), self.prefix + b"label_names", list, "a list of class names")
            try:
                names = [name.decode() if isinstance(name, bytes) else str(name) for name in listed]
            except UnicodeDecodeError as error:
                check.fail(str(path), "a list of class names in UTF-8", repr(error.object))
        if len(names) != self.classes:
            check.fail(str(path), f"a list of {self.classes} class names", f"{len(names)}")
        if repeated := [name for name in names if names.count(name) > 1]:
            check.fail(str(path), "a list of different class names", f"{repeated[0]!r} twice")
        return names

    def _read_binary(self, path: Path) -> tuple[Pixels, Ints]:
        record = self.label_bytes + 3072
        try:
            content = np.frombuffer(path.read_bytes(), np.uint8)
        except FileNotFoundError:
            check.no_file(path)
        if len(content) == 0 or len(content) % record:
            check.fail(str(path), f"a whole number of records of {record} bytes", f"{len(content)} bytes")
        rows = content.reshape(-1, record)
        return rows[:, self.label_bytes :], self._targets(path, rows[:, self.label_bytes - 1])

    def _read_pickle(self, path: Path) -> tuple[Pixels, Ints]:
        content = load_pickle(path)
        rows = _entry(path, content, b"data", np.ndarray, "uint8 of shape (N, 3072)")
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
            check.fail(f"'data' of {path}", "uint8 of shape (N, 3072)", f"{rows.dtype} of shape {rows.shape}")
        key = self.prefix + b"labels"
        targets = _entry(path, content, key, list, "a list of integers")
        if len(targets) != len(rows) or not all(isinstance(target, int) for target in targets):
            wanted = f"a list of {len(rows)} integers, one for each image"
            check.fail(f"{key.decode()!r} of {path}", wanted, f"a list of {len(targets)} entries")
        return rows, self._targets(path, np.asarray(targets))

    def _targets(self, path: Path, targets: NDArray[Any]) -> Ints:
        if len(wrong := np.flatnonzero((targets < 0) | (targets >= self.classes))):
            got = f"{targets[wrong[0]]} for image {wrong[0]}"
            check.fail(f"every label of {path}", f"from 0 to {self.classes - 1}", got)
        return targets.astype(np.int64)


CIFAR100 = CifarFiles(
    name="cifar100",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    classes=100,
    folders=("cifar-100-python", "cifar-100-binary"),
    train=("train",),
    test=("test",),
    meta=("meta", "fine_label_names.txt"),
    prefix=b"fine_",
    label_bytes=2,
)
CIFAR10 = CifarFiles(
    name="cifar10",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    classes=10,
    folders=("cifar-10-batches-py", "cifar-10-batches-bin"),
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    meta=("batches.meta", "batches.meta.txt"),
    prefix=b"",
    label_bytes=1,
)


def load_pickle(path: Path) -> Any:
    """Unpickle a file of plain containers, text, numbers and NumPy arrays; refuse anything else."""
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file, encoding="bytes").load()
    except FileNotFoundError:
        check.no_file(path)
    except Exception as error:  # a damaged pickle can raise almost anything
        check.fail(str(path), "a whole pickle of lists, text, numbers and arrays", f"one that does not load: {error}")


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),  # how protocol 2 writes bytes
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which was not run")
        return super().find_class(module, name)


def _entry(path: Path, content: object, key: bytes, kind: type, wanted: str) -> Any:
    value = content.get(key) if isinstance(content, dict) else None
    if not isinstance(value, kind):
        check.fail(f"{key.decode()!r} of {path}", wanted, type(value).__name__)
    return value
