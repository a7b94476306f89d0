"""Tiny copies of the data sets, written to disk in their true file formats, and ways to damage them."""

from __future__ import annotations

import pickle
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CIFAR100_NAMES = [f"class-{37 * i % 100:02d}" for i in range(100)]  # in no alphabetical order
CIFAR10_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
LAYOUTS = ("python", "repickled", "binary")

_CELEBA = (
    "5_o_Clock_Shadow Arched_Eyebrows Attractive Bags_Under_Eyes Bald Bangs Big_Lips Big_Nose Black_Hair Blond_Hair"
    " Blurry Brown_Hair Bushy_Eyebrows Chubby Double_Chin Eyeglasses Goatee Gray_Hair Heavy_Makeup High_Cheekbones"
    " Male Mouth_Slightly_Open Mustache Narrow_Eyes No_Beard Oval_Face Pale_Skin Pointy_Nose Receding_Hairline"
    " Rosy_Cheeks Sideburns Smiling Straight_Hair Wavy_Hair Wearing_Earrings Wearing_Hat Wearing_Lipstick"
    " Wearing_Necklace Wearing_Necktie Young"
)
CELEBA_ATTRIBUTES = _CELEBA.split()

DEEPFASHION_ATTRIBUTES = {
    "abstract": 1,
    "abstract chevron print": 1,
    "cotton": 2,
    "a-line": 3,
    "ankle strap": 4,
    "athletic": 5,
    "80s": 5,
}

_XDOMAIN = "category colour collar button pattern shape length sleeve-shape sleeve-length"
XDOMAIN_LABELS = tuple(_XDOMAIN.split())

FASHION_HEADER = "id,gender,masterCategory,subCategory,articleType,baseColour,season,year,usage,productDisplayName"


def line_of(path: Path, line: int) -> str:
    """A pattern for the place that an error names."""
    return re.escape(f"{path}, line {line},")


def change_line(path: Path, line: int, new: str | bytes | None) -> None:
    """Put another text on a line, counted from 1, or remove the line."""
    lines = path.read_bytes().split(b"\n")
    lines[line - 1 : line] = [] if new is None else [new.encode() if isinstance(new, str) else new]
    path.write_bytes(b"\n".join(lines))


# CIFAR


def cifar_image(number: int) -> NDArray[np.uint8]:
    """Image ``number`` of a training or test set: red counts, green grows downwards, blue to the right."""
    image = np.empty((32, 32, 3), np.uint8)
    image[..., 0] = number % 256
    image[..., 1] = 8 * np.arange(32)[:, None] + number // 256
    image[..., 2] = 7 * np.arange(32)
    return image


def cifar_targets(classes: int, per_class: int) -> list[int]:
    return np.random.default_rng(classes).permutation(np.repeat(np.arange(classes), per_class)).tolist()


def write_cifar100(folder: Path, layout: str = "python", per_class: int = 3, tests_per_class: int = 1) -> Path:
    """``python`` are Python 2 pickles as published, ``repickled`` what Python 3 writes, ``binary`` the C layout."""
    target = folder / ("cifar-100-binary" if layout == "binary" else "cifar-100-python")
    target.mkdir(parents=True)
    for name, count in (("train", per_class), ("test", tests_per_class)):
        fine = cifar_targets(100, count)
        rows = _cifar_rows(range(len(fine)))
        coarse = [(3 * c) % 20 for c in fine]
        if layout == "binary":
            records = np.concatenate([np.array([coarse, fine], np.uint8).T, rows], 1)
            (target / f"{name}.bin").write_bytes(records.tobytes())
        else:
            content = {
                b"filenames": [b"image_%05d.png" % i for i in range(len(fine))],
                b"batch_label": b"training batch 1 of 1",
                b"fine_labels": fine,
                b"coarse_labels": coarse,
                b"data": rows,
            }
            write_pickle(target / name, content, layout)
    names = [name.encode() for name in CIFAR100_NAMES]
    if layout == "binary":
        (target / "fine_label_names.txt").write_bytes(b"\n".join(names) + b"\n")
        (target / "coarse_label_names.txt").write_bytes(b"coarse\n" * 20)
    else:
        write_pickle(target / "meta", {b"fine_label_names": names, b"coarse_label_names": [b"coarse"] * 20}, layout)
    return target


def write_cifar10(folder: Path, layout: str = "python", per_class: int = 5, tests_per_class: int = 2) -> Path:
    """Five training batches and one test batch; ``per_class`` is a multiple of five."""
    target = folder / ("cifar-10-batches-bin" if layout == "binary" else "cifar-10-batches-py")
    target.mkdir(parents=True)
    suffix = ".bin" if layout == "binary" else ""
    train, size = cifar_targets(10, per_class), 2 * per_class
    parts = [(f"data_batch_{b + 1}{suffix}", b * size, train[b * size : (b + 1) * size]) for b in range(5)]
    for name, first, labels in [*parts, (f"test_batch{suffix}", 0, cifar_targets(10, tests_per_class))]:
        rows = _cifar_rows(range(first, first + len(labels)))
        if layout == "binary":
            (target / name).write_bytes(np.concatenate([np.array([labels], np.uint8).T, rows], 1).tobytes())
        else:
            filenames = [b"image_%05d.png" % i for i in range(len(labels))]
            content = {b"batch_label": name.encode(), b"labels": labels, b"data": rows, b"filenames": filenames}
            write_pickle(target / name, content, layout)
    names = [name.encode() for name in CIFAR10_NAMES]
    if layout == "binary":
        (target / "batches.meta.txt").write_bytes(b"\n".join(names) + b"\n\n")
    else:
        content = {b"num_cases_per_batch": size, b"label_names": names, b"num_vis": 3072}
        write_pickle(target / "batches.meta", content, layout)
    return target


def _cifar_rows(numbers: Sequence[int]) -> NDArray[np.uint8]:
    return np.stack([cifar_image(i).transpose(2, 0, 1).reshape(3072) for i in numbers])


def write_pickle(path: Path, content: Any, layout: str = "repickled") -> None:
    path.write_bytes(python2_pickle(content) if layout == "python" else pickle.dumps(content, protocol=2))


def python2_pickle(content: Any) -> bytes:
    """Pickle as Python 2 did with protocol 2: text is bytes, and NumPy has its modules of old."""
    return b"\x80\x02" + _python2(content) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, bytes):
        short = len(value) < 256
        return (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_python2, value)) + b"t"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(k) + _python2(v) for k, v in value.items()) + b"u"
    if isinstance(value, np.ndarray):
        dtype = (
            b"cnumpy\ndtype\n" + _python2((b"u1", 0, 1)) + b"R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _python2((0,)) + b"U\x01btR"
        return empty + b"(K\x01" + _python2(value.shape) + dtype + b"\x89" + _python2(value.tobytes()) + b"tb"
    raise TypeError(type(value).__name__)


# CelebA and DeepFashion


def celeba_signs(images: int) -> NDArray[np.int64]:
    return np.random.default_rng(40).choice([-1, 1], (images, 40))


def write_celeba(folder: Path, sizes: tuple[int, int, int] = (40, 6, 4)) -> Path:
    """Images 000001.jpg, 000002.jpg, ... of which ``sizes`` are in the partitions 0, 1 and 2, in turn."""
    target = folder / "celeba"
    names = [f"{i:06d}.jpg" for i in range(1, sum(sizes) + 1)]
    for name in names:
        write_image(target / "img_align_celeba" / name, int(name[:6]), (9, 11))
    rows = [
        f"{name} " + " ".join(f"{v:2d}" for v in row) for name, row in zip(names, celeba_signs(len(names)), strict=True)
    ]
    header = [str(len(names)), " ".join(CELEBA_ATTRIBUTES) + " "]
    (target / "list_attr_celeba.txt").write_text("\r\n".join([*header, *rows]) + "\r\n", newline="")
    parts = np.repeat([0, 1, 2], sizes)
    (target / "list_eval_partition.txt").write_text(
        "".join(f"{name} {part}\n" for name, part in zip(names, parts, strict=True))
    )
    return target


def deepfashion_values(images: int) -> NDArray[np.int64]:
    return np.random.default_rng(5).choice([-1, 0, 1], (images, len(DEEPFASHION_ATTRIBUTES)))


def write_deepfashion(folder: Path, images: int = 9, anno: str = "Anno") -> Path:
    """Every third image is for train, val and test; the partition lists them backwards."""
    target = folder / "deepfashion"
    names = [f"img/Sheer_Blouse-{i % 2}/img_{i:08d}.jpg" for i in range(1, images + 1)]
    for i, name in enumerate(names):
        write_image(target / name, i, (12, 8))
    (target / anno).mkdir(parents=True)
    (target / "Eval").mkdir()
    listed = [f"{name:<32}{kind}" for name, kind in DEEPFASHION_ATTRIBUTES.items()]
    _write_list(target / anno / "list_attr_cloth.txt", "attribute_name  attribute_type", listed)
    rows = [
        f"{name:<60}" + " ".join(f"{v:2d}" for v in row)
        for name, row in zip(names, deepfashion_values(images), strict=True)
    ]
    _write_list(target / anno / "list_attr_img.txt", "image_name  attribute_labels", rows)
    parts = [f"{name:<60}{('train', 'val', 'test')[i % 3]}" for i, name in enumerate(names)]
    _write_list(target / "Eval" / "list_eval_partition.txt", "image_name  evaluation_status", parts[::-1])
    return target


def _write_list(path: Path, header: str, rows: list[str]) -> None:
    path.write_text("\n".join([str(len(rows)), header, *rows]) + "\n")


# X-Domain and Fashion Product Images


def write_xdomain(folder: Path, images: int = 60, split: bool = False) -> Path:
    """Label a has 2 + a classes, ``colour-0`` and so on; image 7 has no colour."""
    target = folder / "xdomain"
    header = ["image", *XDOMAIN_LABELS, *(["split"] if split else [])]
    rows = []
    for i in range(images):
        name = f"shop/{i:04d}.jpg"
        write_image(target / "images" / name, i, (10, 10))
        classes = [f"{label}-{i % (2 + a)}" for a, label in enumerate(XDOMAIN_LABELS)]
        if i == 7:
            classes[1] = ""
        rows.append([name, *classes, *([("train", "validation", "test")[i % 3]] if split else [])])
    (target / "labels.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    return target


def fashion_row(number: int) -> list[str]:
    """Six rows share one set of values; the display name of every fourth contains unquoted commas."""
    n = number // 6 % 4
    return [
        str(1000 + number),
        ("Men", "Women")[n % 2],
        ("Apparel", "Footwear")[n // 2],
        f"Sub {n}",
        f"Type {n}",
        ("Blue", "Navy Blue", "Black", "Red")[n],
        ("Summer", "Winter")[n % 2],
        str(2010 + n),
        "NA" if number % 6 == 5 else ("Casual", "Sports")[n // 2],
        "Turtle, Check, Shirt" if number % 4 == 0 else "Turtle Check Shirt",
    ]


def write_fashion(folder: Path, images: int = 96, rows: list[list[str]] | None = None) -> Path:
    """``styles.csv`` and one different image per row."""
    target = folder / "fashion"
    rows = [fashion_row(i) for i in range(images)] if rows is None else rows
    for i, row in enumerate(rows):
        write_image(target / "images" / f"{row[0]}.jpg", i, (6, 8))
    (target / "styles.csv").write_text("\n".join([FASHION_HEADER, *map(",".join, rows)]) + "\n")
    return target


def write_image(path: Path, number: int, size: tuple[int, int]) -> None:
    """A JPEG of ``size`` (width, height), of another colour for each number below 4,000."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (number % 16 * 16, number // 16 % 16 * 16, number // 256 * 16)).save(path, quality=95)
