"""Batches of cached features equal a loop over samples, in memory or on disk; epochs draw views."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.features import FakeNetwork, maps, photographs
from rectifier.data import Loader
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import ImageData
from rectifier.data.features import blocks, cached_features
from rectifier.data.normalise import Normalisation
from rectifier.samplers import OverSampler, UniformSampler


@pytest.fixture
def raw(tmp_path: Path) -> ImageData:
    return photographs(tmp_path / "photos", 40)


@pytest.fixture
def data(raw: ImageData) -> ImageData:
    """Forty images with features of seven numbers, two views of the twenty for training."""
    return cached_features(raw, FakeNetwork(), views=2)


def epoch(loader: Loader) -> tuple[Tensor, Tensor]:
    batches = list(loader)
    return torch.cat([batch.positions for batch in batches]), torch.cat([batch.images for batch in batches])


def view(data: ImageData, part: str, number: int) -> Tensor:
    return torch.from_numpy(data.images.gather(data.indices(part).numpy(), number))


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("mode", ["resident", "streamed"])
@pytest.mark.parametrize("network", [FakeNetwork(), maps()], ids=["vectors", "maps"])
def test_batches_equal_the_loop(
    raw: ImageData, network: FakeNetwork, mode: str, on_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on_disk:
        monkeypatch.setattr(blocks, "RESIDENT_BYTES", 0)
    data = cached_features(raw, network, views=3)
    for part in ("train", "validation", "test"):
        loader = Loader(data, part, 8, shuffle=True, mode=mode)
        for batch in loader:
            rows = data.indices(part)[batch.positions]
            assert batch.images.dtype == torch.float32
            assert batch.images.shape[1:] == data.images.shape
            assert torch.equal(batch.targets, data.targets[rows])
            for features, row in zip(batch.images, rows.tolist(), strict=True):
                views = [data.images.gather(np.array([row]), v)[0] for v in range(3 if part == "train" else 1)]
                assert any(np.array_equal(features, each) for each in views)


def test_an_epoch_draws_a_view_of_each_sample(data: ImageData) -> None:
    loader = Loader(data, "train", 8, seed=4)
    plain, mirrored = view(data, "train", 0), view(data, "train", 1)
    seen = []
    for _ in range(20):
        _, features = epoch(loader)
        first = (features == plain).all(1)
        assert torch.equal(features, torch.where(first[:, None], plain, mirrored))
        seen.append(first)
    share = torch.stack(seen).float().mean(0)
    assert ((share > 0.1) & (share < 0.9)).all()
    loader.set_epoch(3)
    assert torch.equal((epoch(loader)[1] == plain).all(1), seen[3])
    other = Loader(data, "train", 8, seed=5)
    assert not torch.equal((epoch(other)[1] == plain).all(1), seen[0])


def test_evaluation_sees_the_images_as_they_are(data: ImageData) -> None:
    loader = Loader(data, "train", 8)
    assert torch.equal(epoch(loader.in_order(range(20)))[1], view(data, "train", 0))
    assert torch.equal(epoch(Loader(data, "test", 8))[1], view(data, "test", 0))
    train = data.part("train")
    assert torch.equal(
        epoch(Loader(replace(train, split=train.split + 1), "validation", 8))[1], view(train, "train", 0)
    )


@pytest.mark.parametrize("mode", ["resident", "streamed"])
def test_ranks_see_the_views_of_one_process(data: ImageData, mode: str) -> None:
    one = list(Loader(data, "train", 10, sampler=UniformSampler(20, seed=3), seed=5, mode=mode))
    for rank in range(2):
        sampler = UniformSampler(20, seed=3, num_replicas=2, rank=rank)
        for whole, part in zip(one, Loader(data, "train", 5, sampler=sampler, seed=5, mode=mode), strict=True):
            assert torch.equal(whole.images[rank::2], part.images)
            assert torch.equal(whole.positions[rank::2], part.positions)


@pytest.mark.parametrize("skip", [1, 2])
def test_an_epoch_resumes(data: ImageData, skip: int) -> None:
    whole, other = (Loader(data, "train", 8, shuffle=True) for _ in range(2))
    other.set_epoch(0, skip)
    for expected, got in zip(list(whole)[skip:], list(other), strict=True):
        assert torch.equal(expected.images, got.images)


def test_samplers_and_batches_made_together(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    def loader() -> Loader:
        return Loader(data, "train", 4, sampler=OverSampler(data.part("train").targets[:, 0], seed=5))

    expected = epoch(loader())
    monkeypatch.setattr(Loader, "_groups", lambda self, batches: [batches[:3], batches[3:]])
    assert all(map(torch.equal, expected, epoch(loader())))
    other = loader().with_sampler(UniformSampler(20, seed=1), 1)
    assert torch.equal(epoch(other)[1], epoch(Loader(data, "train", 4, sampler=UniformSampler(20, seed=1), seed=1))[1])


def test_features_in_memory_are_not_copied(data: ImageData) -> None:
    loader = Loader(data, "train", 8)
    assert loader.mode == "resident"
    assert loader._pixels._pixels.data_ptr() == data.images.blocks.in_memory().ctypes.data
    assert loader.description.startswith("train: 20 images, 7 features of 2 views, kept on cpu (")
    assert loader.normalisation is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(augment=CropAndFlip(2)), "augment to be None, because these images are cached features"),
        (dict(augment=lambda images: images), "augment to be None, because these images are cached features"),
        (dict(normalise=Normalisation((0.0,), (1.0,))), "normalise to be None, because these images are cached"),
        (dict(normalise="imagenet"), "normalise to be 'train', a Normalisation or None"),
    ],
)
def test_wrong_options(data: ImageData, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loader(data, "train", 8, **options)


def test_another_split_needs_its_own_views(data: ImageData) -> None:
    turned = replace(data, split=data.split.roll(1))
    with pytest.raises(ValueError, match="training images to be cached with 2 views, but got 10 that were not"):
        Loader(turned, "train", 8)
