"""Broken copies of CIFAR, and pickles that attack."""

from __future__ import annotations

import os
import pickle
import pickletools
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import fakes
from rectifier.data.readers.cifar import cifar10, cifar100
from rectifier.data.readers.cifar_files import load_pickle

SETS = {"cifar100": (cifar100, fakes.write_cifar100, 100), "cifar10": (cifar10, fakes.write_cifar10, 10)}


@pytest.mark.parametrize(
    ("which", "layout", "file"),
    [
        ("cifar100", "python", "train"),
        ("cifar100", "python", "meta"),
        ("cifar100", "binary", "test.bin"),
        ("cifar100", "binary", "fine_label_names.txt"),
        ("cifar10", "python", "data_batch_4"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, which: str, layout: str, file: str) -> None:
    read, write, _ = SETS[which]
    path = write(tmp_path, layout) / file
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"^{path} does not exist"):
        read(tmp_path, validation=1)


ROWS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train", [1, 2], "'data' of PATH to be uint8 of shape (N, 3072), but got NoneType."),
        ("train", {b"data": ROWS}, "'fine_labels' of PATH to be a list of integers, but got NoneType."),
        (
            "test",
            {b"data": ROWS[:, :3071], b"fine_labels": [0, 1]},
            "'data' of PATH to be uint8 of shape (N, 3072), but got uint8 of shape (2, 3071).",
        ),
        (
            "train",
            {b"data": ROWS.astype(float), b"fine_labels": [0, 1]},
            "'data' of PATH to be uint8 of shape (N, 3072), but got float64 of shape (2, 3072).",
        ),
        (
            "train",
            {b"data": ROWS, b"fine_labels": [0, b"1"]},
            "'fine_labels' of PATH to be a list of 2 integers, one for each image, but got a list of 2 entries.",
        ),
        (
            "train",
            {b"data": ROWS, b"fine_labels": [0]},
            "'fine_labels' of PATH to be a list of 2 integers, one for each image, but got a list of 1 entries.",
        ),
        (
            "train",
            {b"data": ROWS, b"fine_labels": [0, 100]},
            "every label of PATH to be from 0 to 99, but got 100 for image 1.",
        ),
        (
            "test",
            {b"data": ROWS, b"fine_labels": [-1, 0]},
            "every label of PATH to be from 0 to 99, but got -1 for image 0.",
        ),
        ("meta", [b"apple"], "'fine_label_names' of PATH to be a list of class names, but got NoneType."),
        ("meta", {b"fine_label_names": [b"apple"] * 99}, "PATH to be a list of 100 class names, but got 99."),
        (
            "meta",
            {b"fine_label_names": [b"caf\xe9", *(b"%d" % i for i in range(99))]},
            "PATH to be a list of class names in UTF-8, but got b'caf\\xe9'.",
        ),
        (
            "meta",
            {b"fine_label_names": [b"apple", *(b"%d" % i for i in range(98)), b"apple"]},
            "PATH to be a list of different class names, but got 'apple' twice.",
        ),
    ],
)
def test_a_pickle_of_other_content(tmp_path: Path, file: str, content: Any, message: str) -> None:
    path = fakes.write_cifar100(tmp_path) / file
    fakes.write_pickle(path, content)
    with pytest.raises(ValueError, match=f"^Expected {re.escape(message.replace('PATH', str(path)))}$"):
        cifar100(tmp_path, validation=1)


@pytest.mark.parametrize("keep", [0, 20, 3000])
def test_a_pickle_cut_short(tmp_path: Path, keep: int) -> None:
    path = fakes.write_cifar100(tmp_path) / "train"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        ValueError, match=f"^Expected {path} to be a whole pickle of .*, but got one that does not load"
    ):
        cifar100(tmp_path, validation=1)


def test_class_names_of_a_broken_text(tmp_path: Path) -> None:
    path = fakes.write_cifar100(tmp_path, "binary") / "fine_label_names.txt"
    whole = path.read_bytes()
    fakes.change_line(path, 7, b"caf\xe9")
    with pytest.raises(ValueError, match=f"^Expected {fakes.line_of(path, 7)} to be UTF-8 text, but got the byte 0xe9"):
        cifar100(tmp_path, validation=1)
    path.write_bytes(whole + b"one more\n")
    with pytest.raises(ValueError, match=f"^Expected {path} to be a list of 100 class names, but got 101.$"):
        cifar100(tmp_path, validation=1)


@pytest.mark.parametrize("size", [0, 3073, 3074 * 300 - 1])
def test_a_binary_file_of_another_length(tmp_path: Path, size: int) -> None:
    path = fakes.write_cifar100(tmp_path, "binary") / "train.bin"
    path.write_bytes(path.read_bytes()[:size])
    message = f"^Expected {path} to be a whole number of records of 3074 bytes, but got {size} bytes.$"
    with pytest.raises(ValueError, match=message):
        cifar100(tmp_path, validation=1)


@pytest.mark.parametrize(
    ("which", "file", "position", "most"),
    [("cifar100", "test.bin", 3074 * 4 + 1, 99), ("cifar10", "test_batch.bin", 3073 * 4, 9)],
)
def test_a_binary_label_out_of_range(tmp_path: Path, which: str, file: str, position: int, most: int) -> None:
    read, write, _ = SETS[which]
    path = write(tmp_path, "binary") / file
    content = bytearray(path.read_bytes())
    content[position] = 200
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=f"^Expected every label of {path} to be from 0 to {most}, but got 200 for image 4.$"
    ):
        read(tmp_path, validation=1)


# Pickles that attack


class Call:
    """Pickles as a call: whoever unpickles it calls."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def leave(mark: Path) -> dict[str, Call]:
    return {
        f"{os.name}.system": Call(os.system, f"touch {mark}"),
        "(__builtin__|builtins).eval": Call(eval, f"open({str(mark)!r}, 'w').close()"),
        "functools.partial": Call(partial(os.system, f"touch {mark}")),
    }


ATTACKS = list(leave(Path("mark")))


@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_pickle_that_calls_is_refused_and_not_run(tmp_path: Path, attack: str, protocol: int) -> None:
    path = tmp_path / "train"
    call = leave(tmp_path / "mark")[attack]
    objects = np.empty(2, object)
    objects[:] = [call, 1]
    for content in (call, {b"more": call, b"data": ROWS, b"fine_labels": [0, 1]}, {b"data": objects}):
        path.write_bytes(pickle.dumps(content, protocol))
        with pytest.raises(ValueError, match=f"^Expected {path} to be .*asks for {attack}, which was not run.$"):
            load_pickle(path)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("file", ["train", "test", "meta"])
def test_a_reader_refuses_the_attack_in_every_file(tmp_path: Path, file: str) -> None:
    path = fakes.write_cifar100(tmp_path) / file
    path.write_bytes(pickle.dumps(leave(tmp_path / "mark")[f"{os.name}.system"]))
    with pytest.raises(ValueError, match=f"^Expected {path} to be .*which was not run.$"):
        cifar100(tmp_path, validation=1)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    "name",
    [
        "numpy load",
        "numpy.core.multiarray scalar",
        "_codecs decode",
        "builtins getattr",
        "copyreg _reconstructor",
        "rectifier.data.readers.cifar_files load_pickle",
    ],
)
def test_neighbours_of_what_is_admitted_are_refused(tmp_path: Path, name: str) -> None:
    module, attribute = name.split()
    short = lambda text: b"\x8c" + bytes([len(text)]) + text.encode()  # noqa: E731
    (tmp_path / "train").write_bytes(b"\x80\x04" + short(module) + short(attribute) + b"\x93.")
    with pytest.raises(ValueError, match=rf"asks for {re.escape(module)}\.{re.escape(attribute)}, which was not run"):
        load_pickle(tmp_path / "train")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_content_is_admitted_whatever_wrote_it(tmp_path: Path, protocol: int) -> None:
    content = {b"data": ROWS + 7, b"labels": [1, 2**40, -3], b"text": "é", b"more": (None, 1.5, True)}
    (tmp_path / "train").write_bytes(pickle.dumps(content, protocol))
    read = load_pickle(tmp_path / "train")
    assert (read.pop(b"data") == 7).all()
    assert read == {k: v for k, v in content.items() if k != b"data"}


def test_the_published_pickles_ask_for_the_old_names() -> None:
    """The tiny copy is worth nothing if it does not say what Python 2 said."""
    asked = {op[1] for op in pickletools.genops(fakes.python2_pickle({b"data": ROWS})) if op[0].name == "GLOBAL"}
    assert asked == {"numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"}
    assert "SHORT_BINUNICODE" not in {op[0].name for op in pickletools.genops(fakes.python2_pickle({b"data": ROWS}))}
