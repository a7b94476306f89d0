from __future__ import annotations

import hashlib
import io
import math
import re
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import fakes
from rectifier.data.dataset import ImageArray, ImageData
from rectifier.data.readers.cifar import cifar10, cifar100, read_cifar
from rectifier.data.readers.cifar_files import CIFAR100

SETS = {"cifar100": (cifar100, fakes.write_cifar100, 100), "cifar10": (cifar10, fakes.write_cifar10, 10)}
PAPER_GAMMAS = (0.2, 0.4, 0.6, 0.8, 1.0)


def pixels(data: ImageData) -> np.ndarray:
    assert isinstance(data.images, ImageArray)
    return data.images.pixels


def numbers(data: ImageData, part: str) -> list[int]:
    """Positions in the data set's own files."""
    return [int(name.split("/")[1]) for name in data.part(part).ids]


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty training images of each of the hundred classes."""
    root = tmp_path_factory.mktemp("twenty")
    fakes.write_cifar100(root, "binary", per_class=20)
    return root


# What is read


@pytest.mark.parametrize("layout", fakes.LAYOUTS)
@pytest.mark.parametrize("which", SETS)
def test_every_image_keeps_its_pixels_and_its_class(tmp_path: Path, which: str, layout: str) -> None:
    read, write, classes = SETS[which]
    write(tmp_path, layout, per_class=5, tests_per_class=2)
    data = read(tmp_path, validation=1)
    expected = {"train": fakes.cifar_targets(classes, 5), "test": fakes.cifar_targets(classes, 2)}
    assert len(data) == len(set(data.ids)) == 7 * classes
    for image, target, name in zip(pixels(data), data.targets[:, 0].tolist(), data.ids, strict=True):
        file, number = name.split("/")
        assert (image == fakes.cifar_image(int(number))).all()
        assert target == expected[file][int(number)]
    assert data.targets.shape == (7 * classes, 1)
    assert data.targets.dtype == data.split.dtype == torch.int64
    assert pixels(data).dtype == np.uint8
    assert data.name == which


@pytest.mark.parametrize("which", SETS)
def test_the_layouts_hold_the_same_data(tmp_path: Path, which: str) -> None:
    read, write, _ = SETS[which]
    for layout in fakes.LAYOUTS:
        write(tmp_path / layout, layout)
    data = [read(tmp_path / layout, validation=1) for layout in fakes.LAYOUTS]
    assert len({d.fingerprint for d in data}) == 1
    assert all((pixels(d) == pixels(data[0])).all() for d in data)
    assert {d.space.classes for d in data} == {(tuple(getattr(fakes, f"{which.upper()}_NAMES")),)}
    assert data[0].space.names == ("object",)


@pytest.mark.parametrize("layout", ["python", "binary"])
def test_the_root_may_be_the_folder_itself(tmp_path: Path, layout: str) -> None:
    folder = fakes.write_cifar100(tmp_path, layout)
    assert cifar100(folder, validation=1).fingerprint == cifar100(tmp_path, validation=1).fingerprint


# Parts


def test_the_standard_split_holds_ten_of_each_class_out(tmp_path: Path) -> None:
    fakes.write_cifar10(tmp_path, "binary", per_class=15, tests_per_class=3)
    data = cifar10(tmp_path)
    assert data.counts("train")[0].tolist() == [5] * 10
    assert data.counts("validation")[0].tolist() == [10] * 10
    assert data.counts("test")[0].tolist() == [3] * 10
    train, validation = numbers(data, "train"), numbers(data, "validation")
    assert sorted(train + validation) == list(range(150))
    assert train == sorted(train)
    assert validation == sorted(validation)
    assert numbers(data, "test") == list(range(30))
    assert data.notes == ("10 training images of each class held out for validation (seed 0).",)


def test_without_validation_every_image_is_trained_on(tmp_path: Path) -> None:
    fakes.write_cifar10(tmp_path, "binary")
    data = cifar10(tmp_path, validation=0)
    assert numbers(data, "train") == list(range(50))
    assert len(data.part("validation")) == 0


@pytest.mark.parametrize("options", [{}, {"imb": 1}, {"bln": 1}, {"exp": 10}, {"step": 10}])
def test_the_seed_chooses_the_images(twenty: Path, options: dict[str, float]) -> None:
    first, again, other = (cifar100(twenty, validation=2, seed=seed, **options) for seed in (3, 3, 4))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert numbers(first, "validation") != numbers(other, "validation")
    assert [c.tolist() for c in first.counts("train")] == [c.tolist() for c in other.counts("train")]
    assert first.part("test").ids == other.part("test").ids


@pytest.mark.parametrize("options", [{}, {"imb": 1}, {"bln": 0.4}, {"exp": 7}, {"step": 3, "largest": 9}])
def test_no_image_is_trained_on_and_validated_on(twenty: Path, options: dict[str, float]) -> None:
    data = cifar100(twenty, validation=3, **options)
    train, validation = numbers(data, "train"), numbers(data, "validation")
    assert len(set(train)) == len(train)
    assert len(set(validation)) == len(validation)
    assert not set(train) & set(validation)
    left = 20 - data.counts("train")[0]
    assert data.counts("validation")[0].tolist() == left.clamp(max=3).tolist()
    assert data.counts("test")[0].tolist() == [1] * 100


# Profiles


def power_law(classes: int, largest: int, gamma: float) -> list[int]:
    """The two equations n_1 = largest and n_K = largest / 20, solved as a linear system in a and b."""
    smallest = max(1, round(largest / 20))
    # a - n b = n i^gamma
    a, b = np.linalg.solve([[1, -largest], [1, -smallest]], [largest, smallest * classes**gamma])
    return [round(a / (i**gamma + b)) for i in range(1, classes + 1)]


@pytest.mark.parametrize("gamma", PAPER_GAMMAS)
def test_imb_has_the_sizes_of_the_papers_formula(twenty: Path, gamma: float) -> None:
    data = cifar100(twenty, imb=gamma)
    sizes = data.counts("train")[0].tolist()
    assert sizes == power_law(100, 20, gamma)
    assert (sizes[0], sizes[-1]) == (20, 1)
    assert sizes == sorted(sizes, reverse=True)
    assert data.name == f"cifar100:imb={gamma:g}"
    assert data.notes[0] == f"Training part: imb({gamma:g}), {sum(sizes):,} images, 20 to 1 a class."


@pytest.mark.parametrize("gamma", PAPER_GAMMAS)
def test_bln_has_as_many_images_as_imb_in_equal_classes(twenty: Path, gamma: float) -> None:
    sizes = cifar100(twenty, bln=gamma).counts("train")[0]
    assert int(sizes.sum()) == sum(power_law(100, 20, gamma))
    assert int(sizes.max() - sizes.min()) <= 1


@pytest.mark.parametrize("ratio", [1, 2.5, 7, 20])
def test_exp_has_the_sizes_of_the_long_tail_literature(twenty: Path, ratio: float) -> None:
    sizes = cifar100(twenty, exp=ratio).counts("train")[0].tolist()
    assert sizes == [math.floor(20 * (1 / ratio) ** (i / 99) + 1e-9) for i in range(100)]


@pytest.mark.parametrize(("ratio", "rare"), [(1, 20), (2.5, 8), (7, 2), (20, 1)])
def test_step_makes_the_second_half_rare(twenty: Path, ratio: float, rare: int) -> None:
    assert cifar100(twenty, step=ratio, largest=20).counts("train")[0].tolist() == [20] * 50 + [rare] * 50


def test_a_step_leaves_every_class_its_validation_images(twenty: Path) -> None:
    data = cifar100(twenty, step=4, validation=8)
    assert data.counts("train")[0].tolist() == [12] * 50 + [3] * 50
    assert data.counts("validation")[0].tolist() == [8] * 100


def test_the_largest_class_can_be_smaller(twenty: Path) -> None:
    data = cifar100(twenty, exp=4, largest=8, validation=5)
    sizes = data.counts("train")[0].tolist()
    assert (sizes[0], sizes[-1]) == (8, 2)
    assert data.name == "cifar100:exp=4,largest=8"
    assert data.counts("validation")[0].tolist() == [5] * 100


def test_a_class_without_validation_images_is_noted(twenty: Path) -> None:
    data = cifar100(twenty, step=4, validation=2, largest=20)
    assert data.counts("validation")[0].tolist() == [0] * 50 + [2] * 50
    note = "Fewer than 2 images left for validation: 50 classes of 100 (50 with none); largest=18 leaves enough."
    assert data.notes[1] == note
    assert "(0 with none); largest=17 leaves enough" in cifar100(twenty, exp=4, validation=2, largest=19).notes[1]
    assert cifar100(twenty, imb=1, validation=20).notes[1].endswith("(1 with none).")  # no size leaves enough
    assert len(cifar100(twenty, step=4, validation=0).notes) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"imb": 1, "exp": 10}, "Expected the profile to be one of imb, bln, exp, step, but got imb and exp."),
        ({"imb": 0}, "Expected gamma to be a positive number, but got 0."),
        ({"bln": "steep"}, "Expected gamma to be a positive number, but got 'steep'."),
        ({"exp": 6}, "Expected exp to be a ratio from 1 to 5, but got 6."),
        ({"step": "x"}, "Expected step to be a ratio from 1 to 1, but got 'x'."),
        ({"largest": 3}, "Expected largest to be given together with imb, bln, exp or step, but got no profile."),
        ({"imb": 1, "largest": 6}, "Expected largest to be from 1 to 5, the images of a class, but got 6."),
        ({"imb": 1, "largest": 2.5}, "Expected largest to be from 1 to 5, the images of a class, but got 2.5."),
        ({"validation": 5}, "Expected validation to be below 5, the size of the smallest class, but got 5."),
        ({"validation": -1}, "Expected validation to be an integer from 0, but got -1."),
        ({"validation": True}, "Expected validation to be an integer from 0, but got True."),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    fakes.write_cifar10(tmp_path, "binary")
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        cifar10(tmp_path, **options)


@pytest.mark.parametrize("which", SETS)
def test_an_absent_folder_says_where_to_get_it(tmp_path: Path, which: str) -> None:
    dashed = which.replace("cifar", "cifar-")
    message = f"Neither {tmp_path}/{dashed}.* exists. Pass download=True.*{dashed}-python"
    with pytest.raises(FileNotFoundError, match=message):
        SETS[which][0](tmp_path)


# Download


def test_a_download_is_read_and_not_repeated(server: Any, tmp_path: Path) -> None:
    folder = fakes.write_cifar100(tmp_path / "origin")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(folder, folder.name)
    server.content = packed.getvalue()
    here = replace(CIFAR100, url=server.url, md5=hashlib.md5(server.content).hexdigest())
    read = partial(read_cifar, here, validation=1)
    root = tmp_path / "new" / "root"
    with pytest.raises(FileNotFoundError, match=r"Pass download=True, or get http://127.0.0.1"):
        read(root)
    assert server.ranges == []
    data = read(root, download=True)
    assert data.fingerprint == read(tmp_path / "origin", download=True).fingerprint
    assert (pixels(data.part("test"))[3] == fakes.cifar_image(3)).all()
    assert read(root).fingerprint == read(root, download=True).fingerprint
    assert len(server.ranges) == 1


def test_another_archive_is_refused(server: Any, tmp_path: Path) -> None:
    read = partial(read_cifar, replace(CIFAR100, url=server.url))
    with pytest.raises(
        ValueError, match=r"does not match the known hash: expected md5:eb9058c3a382ffc7106e4002c42a8d85"
    ):
        read(tmp_path / "empty", download=True)
    assert list((tmp_path / "empty").iterdir()) == []
