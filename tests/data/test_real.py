"""The readers on the real data sets, where RECTIFIER_TEST_DATA names their folder; skipped otherwise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.fakes import CELEBA_ATTRIBUTES
from rectifier.data.dataset import PARTS, ImageArray, ImageData, ImageFiles
from rectifier.data.readers.celeba import celeba
from rectifier.data.readers.cifar import cifar100
from rectifier.data.readers.fashion import fashion

# Real data sets in their packed form, where a developer has them.
_SIBLING = Path(__file__).parents[3] / "shared" / "data"
PACKED = Path(os.environ.get("RECTIFIER_TEST_DATA") or _SIBLING)

pytestmark = [
    pytest.mark.xdist_group("real"),
    pytest.mark.skipif(not (PACKED / "unpack.py").is_file(), reason="the real data sets are not there"),
]

# Percent of the 202,599 images that have each attribute, in the order of the file.
CELEBA_RATES = (
    "11.1 26.7 51.3 20.5 2.2 15.2 24.1 23.5 23.9 14.8 5.1 20.5 14.2 5.8 4.7 6.5 6.3 4.2 38.7 45.5 41.7 48.3 4.2 11.5"
    " 83.5 28.4 4.3 27.7 8.0 6.6 5.7 48.2 20.8 32.0 18.9 4.9 47.2 12.3 7.3 77.4"
)


def unpack(name: str, folder: Path) -> Path:
    subprocess.run([sys.executable, PACKED / "unpack.py", name, "--out", folder], check=True)
    return folder


@pytest.fixture(scope="module")
def cifar_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("cifar100", tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("celeba", tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def products(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("fashion", tmp_path_factory.mktemp("real"))


def sizes(data: ImageData) -> list[int]:
    return [len(data.part(part)) for part in PARTS]


# CIFAR-100


def test_cifar_has_its_images_and_the_standard_split(cifar_root: Path) -> None:
    data = cifar100(cifar_root)
    assert sizes(data) == [49_000, 1_000, 10_000]
    assert [data.counts(part)[0].unique().tolist() for part in PARTS] == [[490], [10], [100]]
    assert len(set(data.ids)) == 60_000
    assert sizes(cifar100(cifar_root, validation=0)) == [50_000, 0, 10_000]
    names = data.space.classes[0]
    assert (names[0], names[1], names[53], names[99]) == ("apple", "aquarium_fish", "orange", "worm")
    assert list(names) == sorted(names)


def test_cifar_has_the_colours_of_its_classes(cifar_root: Path) -> None:
    """Oranges are red before green before blue, dolphins the other way round: channels are not exchanged."""
    data = cifar100(cifar_root)
    assert isinstance(data.images, ImageArray)
    mean = {
        name: data.images.pixels[(data.targets[:, 0] == data.space.classes[0].index(name)).numpy()].mean((0, 1, 2))
        for name in ("orange", "dolphin")
    }
    assert mean["orange"][0] > mean["orange"][1] > mean["orange"][2]
    assert mean["dolphin"][0] < mean["dolphin"][1] < mean["dolphin"][2]
    # The means and deviations of the training images that the literature normalises by.
    train = data.images.pixels[:50_000]
    for channel, (mean_of, deviation) in enumerate([(0.5071, 0.2673), (0.4865, 0.2564), (0.4409, 0.2762)]):
        share = np.bincount(train[..., channel].ravel(), minlength=256) / train[..., channel].size
        value = np.arange(256) / 255
        assert share @ value == pytest.approx(mean_of, abs=2e-4)
        assert np.sqrt(share @ (value - share @ value) ** 2) == pytest.approx(deviation, abs=2e-4)


def test_cifar_imb_has_the_papers_sizes(cifar_root: Path) -> None:
    data = cifar100(cifar_root, imb=1)
    assert len(data.part("train")) == 8_072
    counts = data.counts("train")[0].tolist()
    a = 500 * 25 * 99 / 475
    assert a == pytest.approx(2605.26, abs=0.005)
    b = a / 500 - 1
    assert b == pytest.approx(4.2105, abs=5e-5)
    assert counts == [round(a / (i + b)) for i in range(1, 101)]
    assert (counts[0], counts[-1]) == (500, 25)
    assert data.counts("validation")[0].tolist() == [0] + [10] * 99
    assert data.counts("test")[0].tolist() == [100] * 100
    balanced = cifar100(cifar_root, bln=1).counts("train")[0]
    assert int(balanced.sum()) == 8_072
    assert balanced.unique().tolist() == [80, 81]
    assert len(cifar100(cifar_root, exp=100).part("train")) == 10_847


def test_cifar_keeps_its_seed(cifar_root: Path) -> None:
    first, again, other = (cifar100(cifar_root, imb=1, seed=seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert not set(first.part("train").ids) & set(first.part("validation").ids)


# CelebA


def test_celeba_has_the_official_partition(faces: Path) -> None:
    data = celeba(faces)
    assert sizes(data) == [37_540, 4_535, 4_640]
    assert data.space.names == tuple(CELEBA_ATTRIBUTES)
    assert set(data.targets.unique().tolist()) == {0, 1}
    numbers = torch.tensor([int(name.removesuffix(".jpg")) for name in data.ids])
    borders = torch.tensor([162_770, 182_637])  # the official parts follow each other
    assert data.split.equal(torch.bucketize(numbers, borders))


def test_celeba_has_the_rates_of_the_full_set(faces: Path) -> None:
    rates = 100 * celeba(faces).targets.double().mean(0)
    expected = torch.tensor(list(map(float, CELEBA_RATES.split())), dtype=torch.float64)
    off = {n: (round(r, 1), e) for n, r, e in zip(CELEBA_ATTRIBUTES, rates.tolist(), expected.tolist(), strict=True)}
    assert not {name: pair for name, pair in off.items() if abs(pair[0] - pair[1]) > 4}


def test_celebas_images_are_there(faces: Path) -> None:
    images = celeba(faces).images
    assert isinstance(images, ImageFiles)
    assert set(images.paths) == {path.name for path in images.root.iterdir()}
    with Image.open(images.root / images.paths[0]) as image:
        assert image.size == (64, 78)


def test_celebas_split_of_the_paper(faces: Path) -> None:
    official, data = celeba(faces), celeba(faces, split="paper")
    held_out = round(37_540 * 10_000 / 162_770)
    assert sizes(data) == [37_540 - held_out, held_out, 4_535]
    assert data.part("test").ids == official.part("validation").ids
    assert not set(official.part("test").ids) & set(data.ids)


# Fashion Product Images


@pytest.fixture(scope="module")
def clothes(products: Path) -> ImageData:
    return fashion(products)


def test_fashion_has_its_labels(clothes: ImageData) -> None:
    assert len(clothes) == len(set(clothes.ids)) == 44_441
    assert clothes.space.sizes == (5, 6, 43, 132, 46, 4, 12, 7)  # of (5, 7, 45, 142, 46, 4, 13, 8)
    assert clothes.notes[1:] == (
        "780 duplicate images were kept in the same split as their twins.",
        "70 groups of identical images have different labels, e.g. 1165.jpg and 5062.jpg. Check them.",
        "Dropped 15 classes with fewer than 3 different images"
        " (masterCategory 1, subCategory 2, articleType 10, year 1, usage 1).",
    )
    counts = clothes.counts()
    assert [int(c.max()) for c in counts] == [22_160, 21_395, 15_401, 7_069, 9_731, 21_474, 16_290, 34_409]
    assert [int(c.min()) for c in counts] == [655, 25, 3, 3, 5, 2_984, 7, 26]


def test_fashion_has_every_class_in_every_part(clothes: ImageData) -> None:
    assert [round(size / 44_441, 2) for size in sizes(clothes)] == [0.8, 0.1, 0.1]
    bare = {part: [int((c == 0).sum()) for c in clothes.counts(part)] for part in PARTS}
    assert sum(map(sum, bare.values())) == 0


def test_fashion_keeps_exact_duplicates_on_one_side(clothes: ImageData) -> None:
    assert isinstance(clothes.images, ImageFiles)
    parts = defaultdict(list)
    for name, part in zip(clothes.images.paths, clothes.split.tolist(), strict=True):
        parts[sha256((clothes.images.root / name).read_bytes()).digest()].append(part)
    repeated = [found for found in parts.values() if len(found) > 1]
    assert sum(map(len, repeated)) >= 780
    assert all(len(set(found)) == 1 for found in repeated)


def test_fashion_keeps_its_seed(products: Path, clothes: ImageData) -> None:
    assert fashion(products).fingerprint == clothes.fingerprint != fashion(products, seed=1).fingerprint


# From files to a finished run, by the command line.


def trained(data: str, root: Path, folder: Path, **settings: object) -> dict[str, Any]:
    """Train for an epoch on small pictures, and return the metrics of the test part."""
    small = {"network": "mlp", "epochs": 1, "baselines": False}  # baselines read every picture in another size
    options = [f"--set={key}={value}" for key, value in {**small, **settings}.items()]
    command = [sys.executable, "-m", "rectifier", "train", "--data", data, "--data-root", root, *options]
    environment = {**os.environ, "RECTIFIER_CACHE": str(folder / "cache")}
    subprocess.run([*map(str, command), "--out", str(folder / "run")], check=True, env=environment)
    metrics: dict[str, Any] = json.loads((folder / "run" / "metrics.json").read_text())["test"]
    return metrics


def test_a_run_on_products_beats_chance_on_every_label(products: Path, tmp_path: Path) -> None:
    found = trained("fashion", products, tmp_path, size=12, batch_size=256)["rules"]["prior"]["labels"]
    assert len(found) == 8
    for name, label in found.items():
        chance = 1 / sum(value is not None for value in label["sensitivity"].values())
        assert label["class_balanced_accuracy"] > 1.3 * chance, name


def test_a_run_on_faces_beats_chance_and_the_rule_is_worth_points(faces: Path, tmp_path: Path) -> None:
    found = trained("celeba", faces, tmp_path, size=16, batch_size=256)["rules"]
    plain, adjusted = (found[rule]["class_balanced_accuracy"] for rule in ("argmax", "prior"))
    assert len(found["prior"]["labels"]) == 40
    assert plain > 0.52
    assert adjusted > plain + 0.05
