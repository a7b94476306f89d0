"""CIFAR-100 and CIFAR-10, in the python and in the binary layout, complete or made imbalanced."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from rectifier._base import check
from rectifier.data import download as downloads
from rectifier.data.dataset import ImageArray, ImageData, Ints
from rectifier.data.readers.cifar_files import CIFAR10, CIFAR100, CifarFiles
from rectifier.labels import imbalance
from rectifier.labels.space import LabelSpace


def read_cifar(
    files: CifarFiles,
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
    """Read CIFAR-100 or CIFAR-10 (``cifar100``, ``cifar10``) in the python or the binary layout.

    Without a profile each class gives ``validation`` of its training images to validation: the paper's 490/10/100.
    With a profile, the training part has the profile's class sizes. Validation takes ``validation`` images of each
    class among those not trained on, so a class that trains on all its images has none. Test is the official one.

    Args:
        files: which of the two data sets.
        root: the folder that contains the data set's own folder.
        imb: gamma of the paper's power law, the largest class 20 times the smallest: ``imb=1`` has 8,072 images.
        bln: as many images as ``imb`` has for this gamma, in equal classes.
        exp: ratio of the exponential profile of the long-tail literature (CIFAR-LT).
        step: ratio of the step profile: the second half of the classes is rare.
        largest: size of the largest class. The default is all images of a class. With ``step``, which keeps many
            classes at that size, the default leaves ``validation`` images of each.
        validation: images of each class held out for validation.
        seed: chooses the images that are held out and kept.
        download: fetch the python archive if there is no folder.
    """
    counts = {"validation": validation, "seed": seed}.items()
    check.raise_all([check.that(name, n, "an integer from 0", check.is_natural(n)) for name, n in counts])
    given = {"imb": imb, "bln": bln, "exp": exp, "step": step}
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) > 1:
        check.fail("the profile", "one of imb, bln, exp, step", " and ".join(chosen))
    folder, binary = _locate(files, root, download)
    train_rows, train_targets = files.read(folder, files.train, binary)
    test_rows, test_targets = files.read(folder, files.test, binary)
    sizes = _train_sizes(train_targets, files.classes, chosen, largest, validation)
    keep, held_out = _choose(train_targets, sizes, validation, seed)
    picked = np.concatenate([keep, held_out])
    rows = np.concatenate([train_rows[picked], test_rows])
    targets = np.concatenate([train_targets[picked], test_targets])
    split = np.repeat([0, 1, 2], [len(keep), len(held_out), len(test_targets)])
    options = chosen if largest is None else {**chosen, "largest": largest}
    return ImageData(
        ":".join(filter(None, [files.name, ",".join(f"{key}={value:g}" for key, value in options.items())])),
        ImageArray(np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))),
        torch.from_numpy(targets)[:, None],
        LabelSpace.from_names({"object": files.class_names(folder, binary)}),
        torch.from_numpy(split),
        (*(f"train/{i:05d}" for i in picked), *(f"test/{i:05d}" for i in range(len(test_targets)))),
        _notes(chosen, sizes, np.bincount(train_targets[held_out], minlength=files.classes), validation, seed),
    )


cifar100 = partial(read_cifar, CIFAR100)
cifar10 = partial(read_cifar, CIFAR10)


def _locate(files: CifarFiles, root: Path, download: bool) -> tuple[Path, bool]:
    """Return the folder with the files, and whether they are in the binary layout."""
    unpacked = root / files.name
    folders = [*(place / name for place in (root, unpacked) for name in files.folders), root]
    for folder, binary in product(folders, (False, True)):
        if files.is_in(folder, binary):
            return folder, binary
    if download:
        archive = downloads.fetch(files.url, root, known_hash=f"md5:{files.md5}")
        return downloads.unpack(archive, unpacked) / files.folders[0], False
    hint = f"Pass download=True, or get {files.url} and unpack it in {root}."
    raise FileNotFoundError(f"Neither {root / files.folders[0]} nor {root / files.folders[1]} exists. {hint}")


def _train_sizes(targets: Ints, classes: int, chosen: dict[str, float], largest: int | None, validation: int) -> Ints:
    """Return how many images of each class are trained on."""
    available = np.bincount(targets, minlength=classes)
    if not chosen:
        if largest is not None:
            check.fail("largest", "given together with imb, bln, exp or step", "no profile")
        if validation >= available.min():
            check.fail("validation", f"below {available.min()}, the size of the smallest class", validation)
        return available - validation
    ((profile, value),) = chosen.items()
    most = int(available.min())
    if largest is None:
        # A step profile keeps many classes whole; validation without them would mislead.
        largest = max(1, most - validation) if profile == "step" else most
    if not check.is_count(largest) or largest > most:
        check.fail("largest", f"from 1 to {most}, the images of a class", repr(largest))
    if profile in ("imb", "bln"):
        sizes = imbalance.power_law_profile(classes, largest, max(1, round(largest / 20)), value)
        if profile == "bln":
            sizes = [len(part) for part in np.array_split(np.arange(sum(sizes)), classes)]
    else:
        if not (check.is_real(value) and 1 <= value <= largest):
            check.fail(profile, f"a ratio from 1 to {largest}", repr(value))
        exponential = imbalance.exponential_profile(classes, largest, largest / value)
        sizes = exponential if profile == "exp" else imbalance.step_profile(classes, largest, exponential[-1])
    return np.asarray(sizes)


def _choose(targets: Ints, sizes: Ints, validation: int, seed: int) -> tuple[Ints, Ints]:
    """Choose ``sizes`` images of each class for training and up to ``validation`` of the others for validation."""
    shuffled = np.random.default_rng(seed).permutation(len(targets))
    classes = [shuffled[targets[shuffled] == number] for number in range(len(sizes))]
    keep = [own[:size] for own, size in zip(classes, sizes, strict=True)]
    held_out = [own[size : size + validation] for own, size in zip(classes, sizes, strict=True)]
    return np.sort(np.concatenate(keep)), np.sort(np.concatenate(held_out))


def _notes(chosen: dict[str, float], sizes: Ints, held_out: Ints, validation: int, seed: int) -> tuple[str, ...]:
    if not chosen:
        return (f"{validation} training images of each class held out for validation (seed {seed}).",)
    ((profile, value),) = chosen.items()
    notes = [f"Training part: {profile}({value:g}), {sizes.sum():,} images, {sizes.max()} to {sizes.min()} a class."]
    if without := int((held_out < validation).sum()):
        none, most = int((held_out == 0).sum()), int(sizes.max())
        notes.append(
            f"Fewer than {validation} images left for validation: {check.amount(without, 'class')} of {len(sizes)}"
            f" ({none} with none)" + (f"; largest={most - validation} leaves enough." if most > validation else ".")
        )
    return tuple(notes)
