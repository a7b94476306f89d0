from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rectifier.data.dataset import PARTS, ImageData
from rectifier.data.readers import shapes as module
from rectifier.data.readers.shapes import ATTRIBUTES, draw, long_tail, shapes
from rectifier.labels import imbalance_ratio

NAMES = list(ATTRIBUTES)
FEW: dict[str, Any] = {"samples": 200, "ratio": 5, "size": 16}


def counts(data: ImageData, part: str) -> list[list[int]]:
    return [own.tolist() for own in data.counts(part)]


@pytest.mark.parametrize("classes", [3, 4, 7, 10])
@pytest.mark.parametrize("ratio", [2, 5, 33.3, 100, 1000, 5000])
def test_long_tail_is_exact(classes: int, ratio: float) -> None:
    for samples in (300, 999, 2000, 9001, 14_200, 50_000):
        try:
            sizes = long_tail(classes, samples, ratio)
        except ValueError:
            assert samples < 2 * ratio
            continue
        assert sum(sizes) == samples
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] >= 1
        assert sizes[0] == round(ratio * sizes[-1])


@pytest.mark.parametrize("samples", [10, 11, 999, 1000])
def test_ratio_one_is_balanced(samples: int) -> None:
    sizes = long_tail(10, samples, 1)
    assert sum(sizes) == samples
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("samples", "expected"), [(505, [500, 5]), (600, [594, 6]), (101, [100, 1])])
def test_two_classes_come_as_near_as_they_can(samples: int, expected: list[int]) -> None:
    assert long_tail(2, samples, 100) == expected


def test_too_few_samples_says_how_many_are_needed() -> None:
    with pytest.raises(ValueError, match=r"samples to be at least (\d+) for 10 classes at ratio 5000") as caught:
        shapes(samples=5000, ratio=5000, labels="shape")
    needed = int(str(caught.value).split("at least ")[1].split()[0])
    assert long_tail(10, needed, 5000)[::9] == [5000, 1]
    with pytest.raises(ValueError, match=f"at least {needed}"):
        long_tail(10, needed - 1, 5000)


def test_ratio_of_5000() -> None:
    data = shapes(samples=9000, ratio=5000, size=16)
    assert len(data.part("train")) == 9000
    assert imbalance_ratio(data.counts("train")).tolist() == [5000] * 4
    assert min(min(own) for own in counts(data, "train")) == 1


def test_parts_and_names() -> None:
    data = shapes(samples=300, ratio=10, size=(16, 24), validation=50, test=61)
    assert data.name == "shapes"
    assert [len(data.part(part)) for part in PARTS] == [300, 50, 61]
    assert data.images.pixels.shape == (411, 16, 24, 3)
    assert (data.ids[12], data.ids[300]) == ("train/00012", "validation/00000")
    assert data.space.classes == tuple(ATTRIBUTES.values())
    assert "seed 0" in data.notes[0]
    assert "1:10" in data.notes[0]


@pytest.mark.parametrize("part", PARTS[1:])
def test_held_out_parts_are_balanced(part: str) -> None:
    data = shapes(**FEW)
    assert len(data.part(part)) == 40
    assert all(max(own) - min(own) <= 1 and min(own) > 0 for own in counts(data, part))


def test_held_out_parts_default_to_one_image_a_class_at_least() -> None:
    data = shapes(samples=30, ratio=2, size=16)
    assert all(min(own) > 0 for part in PARTS for own in counts(data, part))


def test_labels_are_imbalanced_independently() -> None:
    data = shapes(samples=5000, ratio=3, size=16, labels="shape=3/colour=3").part("train")
    joint = torch.zeros(3, 3).index_put(tuple(data.targets.T), torch.tensor(1.0), accumulate=True)
    independent = joint.sum(1, keepdim=True) * joint.sum(0) / joint.sum()
    assert ((joint - independent) ** 2 / independent).sum() < 20  # chi-square, 4 degrees of freedom


def test_binary_labels_are_the_classes_one_by_one() -> None:
    options: dict[str, Any] = {"samples": 200, "size": 16, "ratio": 10, "missing": 0.3, "labels": "shape=4/texture=3"}
    whole, single = shapes(**options), shapes(**options, binary=True)
    assert np.array_equal(single.images.gather(np.arange(9)), whole.images.gather(np.arange(9)))
    labels = zip(whole.space.names, whole.space.classes, strict=True)
    names = [f"{name}/{kind}" for name, kinds in labels for kind in kinds]
    assert list(single.space.names) == names
    for image, (old, new) in enumerate(zip(whole.targets.tolist(), single.targets.tolist(), strict=True)):
        expected = []
        for kind, size in zip(old, whole.space.sizes, strict=True):
            expected += [-1 if kind < 0 else int(kind == one) for one in range(size)]
        assert new == expected, image


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.9])
def test_missing_share(missing: float) -> None:
    data = shapes(**FEW, missing=missing)
    train = data.part("train").targets
    assert (train < 0).sum(0).tolist() == [round(200 * missing)] * 4
    assert all(min(own) > 0 for own in counts(data, "train"))
    assert (data.part("validation").targets >= 0).all()
    assert (data.part("test").targets >= 0).all()
    shown = train >= 0
    assert torch.equal(train[shown], shapes(**FEW).part("train").targets[shown])


def test_missing_never_takes_a_class_away() -> None:
    with pytest.raises(ValueError, match=r"missing to be at most 0\.95, .* but got 0\.96"):
        shapes(**FEW, labels="shape", missing=0.96)
    assert counts(shapes(**FEW, labels="shape", missing=0.95), "train") == [[1] * 10]


def test_seed_decides_everything() -> None:
    one, again, other = shapes(**FEW, seed=1), shapes(**FEW, seed=1), shapes(**FEW, seed=2)
    assert one.fingerprint == again.fingerprint
    assert np.array_equal(one.images.pixels, again.images.pixels)
    assert counts(one, "train") != counts(other, "train")
    assert sorted(counts(one, "train")[0]) == sorted(counts(other, "train")[0])
    assert not np.array_equal(one.images.pixels, other.images.pixels)


def test_training_part_does_not_depend_on_the_others() -> None:
    one, other = shapes(**FEW).part("train"), shapes(**FEW, validation=77, test=11).part("train")
    assert one.fingerprint == other.fingerprint
    assert np.array_equal(one.images.pixels, other.images.pixels)


@pytest.mark.parametrize(
    "labels", ["shape=5/colour", {"shape": 5, "colour": 10}, ["shape=5", "colour"], " shape=5 / colour=10 "]
)
def test_forms_of_labels(labels: Any) -> None:
    data = shapes(**FEW, labels=labels)
    assert data.space.names == ("shape", "colour")
    assert data.space.sizes == (5, 10)
    assert data.fingerprint == shapes(**FEW, labels="shape=5/colour=10").fingerprint


@pytest.mark.parametrize(
    ("size", "shape"), [(20, (20, 20)), ("20", (20, 20)), ("64x48", (64, 48)), ([16, 512], (16, 512))]
)
def test_forms_of_size(size: Any, shape: tuple[int, int]) -> None:
    data = shapes(samples=20, ratio=2, size=size, labels="shape=2")
    assert data.images.pixels.shape[1:] == (*shape, 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"samples": 0}, "Expected samples to be a positive integer, but got 0"),
        ({"samples": 5, "ratio": 1}, "Expected train to be at least 10 images, one for each class, but got 5"),
        ({"ratio": 0.5}, "Expected ratio to be from 1 to 5000, but got 0.5"),
        ({"ratio": "100"}, "Expected ratio to be from 1 to 5000, but got '100'"),
        ({"missing": -0.1}, "Expected missing to be from 0 to 1, but got -0.1"),
        ({"noise": 2}, r"Expected noise to be from 0 to 0\.5, but got 2"),
        ({"seed": -1}, "Expected seed to be a non-negative integer, but got -1"),
        ({"size": 15}, "Expected size to be from 16 to 512 pixels on each side, but got 15"),
        ({"size": "32x32x3"}, "but got '32x32x3'"),
        ({"size": "big"}, "but got 'big'"),
        ({"validation": 9}, "Expected validation to be at least 10 images, one for each class, but got 9"),
        ({"labels": "shape/color"}, "Expected every label to be one of .* but got 'color'. Did you mean 'colour'?"),
        ({"labels": {"shape": 11}}, "Expected the number of classes of label 'shape' to be from 2 to 10, but got 11"),
        ({"labels": "texture=1"}, "Expected the number of classes of label 'texture' to be from 2 to 8, but got 1"),
        ({"labels": "shape=many"}, "but got 'many'"),
        ({"labels": "shape/shape=3"}, "Expected every label to be named once, but got 'shape' twice"),
        ({"labels": {}}, "Expected a label space to be of at least one label, but got none"),
    ],
)
def test_wrong_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        shapes(**options)


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)Expected samples .*\nExpected ratio .*\nExpected noise"):
        shapes(samples=0, ratio=0, noise=-1)


@pytest.mark.parametrize("attribute", range(4), ids=NAMES)
def test_each_attribute_is_visible(attribute: int) -> None:
    kinds = np.zeros((len(ATTRIBUTES[NAMES[attribute]]), 4), np.int64)
    kinds[:, attribute] = np.arange(len(kinds))
    # Equal generators vary scale, place, shade and noise alike, so only the attribute differs.
    images = [
        draw(row[None], size=(32, 32), noise=0.05, rng=np.random.default_rng(7)).astype(float)[0] for row in kinds
    ]
    for one, other in itertools.combinations(images, 2):
        assert (np.abs(one - other).max(2) > 40).sum() > 25


def test_noise_is_what_it_says() -> None:
    kinds = np.zeros((1, 4), np.int64)
    kinds[:, 3] = list(module.POSITIONS).index("left")
    clean, noisy = (
        draw(kinds, size=(512, 512), noise=noise, rng=np.random.default_rng(0)).astype(float) for noise in (0, 0.1)
    )
    background = (noisy - clean)[:, :, 400:]  # the shape is on the left
    assert background.std() / 255 == pytest.approx(0.1, rel=0.05)


def test_chunks_bound_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    class Recorded(np.random.Generator):
        def uniform(self, low: Any, high: Any, size: Any) -> Any:
            drawn.append(size[0])
            return super().uniform(low, high, size)

    monkeypatch.setattr(module, "CHUNK_PIXELS", 3 * 16 * 16)
    draw(np.zeros((7, 4), np.int64), size=(16, 16), noise=0, rng=Recorded(np.random.PCG64(0)))
    assert [images for images, _ in itertools.groupby(drawn)] == [3, 1]


def accuracies(data: ImageData, epochs: int, width: int, batch: int = 50) -> list[float]:
    """Train a small network on all labels at once and return its test accuracy for each."""
    torch.manual_seed(0)
    blocks: list[nn.Module] = []
    for i, o in ((3, width), (width, 2 * width), (2 * width, 2 * width)):
        blocks += [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(2 * width * 16, data.space.columns))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def prepared(part: ImageData) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(part.images.pixels).permute(0, 3, 1, 2) / 255 - 0.5, part.targets  # type: ignore[attr-defined]

    images, targets = prepared(data.part("train"))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=epochs * -(-len(images) // batch))
    for _ in range(epochs):
        for index in torch.randperm(len(images)).split(batch):
            outputs = model(images[index]).split(data.space.sizes, 1)
            loss = sum(nn.functional.cross_entropy(own, targets[index, a]) for a, own in enumerate(outputs))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[union-attr]
            optimizer.step()
            schedule.step()
    images, targets = prepared(data.part("test"))
    with torch.no_grad():
        predicted = torch.stack([own.argmax(1) for own in model.eval()(images).split(data.space.sizes, 1)], 1)
    return (predicted == targets).float().mean(0).tolist()


def test_a_small_network_learns_every_label() -> None:
    data = shapes(samples=2000, ratio=1, test=500, labels="shape=4/colour=8/texture=4/position=5")
    assert all(accuracy > bound for accuracy, bound in zip(accuracies(data, 5, 12), (0.7, 0.9, 0.8, 0.9), strict=True))
