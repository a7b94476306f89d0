"""Batches equal a loop over samples, wherever the pixels are; order and augmentation follow the seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rectifier.data import Loader
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import ImageArray, ImageData, ImageFiles
from rectifier.data.normalise import Normalisation
from rectifier.samplers import ClassBatchSampler, OverSampler, UniformSampler

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


def slow_images(data: ImageData, part: str, positions: Tensor, norm: Normalisation) -> Tensor:
    """One image after the other, in float64."""
    out = []
    for position in positions.tolist():
        pixels = data.images.pixels[data.indices(part)[position]].astype(np.float64) / 255
        out.append((pixels - np.array(norm.mean)) / np.array(norm.std))
    return torch.from_numpy(np.stack(out)).permute(0, 3, 1, 2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["resident", "streamed"])
@pytest.mark.parametrize("part", ["train", "validation", "test"])
def test_batches_equal_the_loop(data: ImageData, stored: ImageData, part: str, mode: str, device: str) -> None:
    for source in (data, stored):
        loader = Loader(source, part, 8, shuffle=True, mode=mode, device=device)
        batches = list(loader)
        assert len(batches) == len(loader)
        seen = torch.cat([batch.positions for batch in batches]).cpu()
        assert sorted(seen.tolist()) == list(range(len(data.indices(part))))
        for images, targets, positions in batches:
            assert images.device.type == device
            assert images.is_contiguous(memory_format=torch.channels_last)
            expected = slow_images(data, part, positions.cpu(), loader.normalisation)
            torch.testing.assert_close(images.cpu().double(), expected, atol=1e-5, rtol=1e-5)
            assert torch.equal(targets.cpu(), data.part(part).targets[positions.cpu()])
            assert targets.dtype == torch.int64


@pytest.mark.parametrize("device", DEVICES)
def test_where_the_pixels_lie_changes_nothing(data: ImageData, stored: ImageData, device: str) -> None:
    options = dict(shuffle=True, augment=CropAndFlip(2), seed=3)
    loaders = [
        Loader(source, "train", 7, mode=mode, device=where, **options)
        for source in (data, stored)
        for mode in ("resident", "streamed")
        for where in ("cpu", device)
    ]
    for _ in range(2):  # epochs
        first, *others = (list(loader) for loader in loaders)
        for other in others:
            for a, b in zip(first, other, strict=True):
                torch.testing.assert_close(a.images, b.images.cpu(), atol=1e-6, rtol=1e-6)
                assert torch.equal(a.targets, b.targets.cpu())


def epoch(loader: Loader) -> tuple[Tensor, Tensor]:
    batches = list(loader)
    return torch.cat([b.positions for b in batches]), torch.cat([b.images for b in batches])


def test_epochs_differ_and_return(data: ImageData) -> None:
    loader = Loader(data, "train", 8, shuffle=True, augment=CropAndFlip(2))
    (order0, images0), (order1, _) = epoch(loader), epoch(loader)
    assert not torch.equal(order0, order1)
    loader.set_epoch(0)
    again, images = epoch(loader)
    assert torch.equal(again, order0)
    assert torch.equal(images, images0)
    other, _ = epoch(Loader(data, "train", 8, shuffle=True, seed=1))
    assert not torch.equal(other, order0)


def test_augmentation_changes_with_the_epoch_when_the_order_does_not(data: ImageData) -> None:
    loader = Loader(data, "train", 8, augment=CropAndFlip(2))
    (order0, images0), (order1, images1) = epoch(loader), epoch(loader)
    assert torch.equal(order0, order1)
    assert not torch.equal(images0, images1)


def test_an_epoch_left_early_leaves_nothing_behind(stored: ImageData) -> None:
    loader = Loader(stored, "train", 4, shuffle=True, mode="streamed")
    next(iter(loader))
    loader.set_epoch(0)
    order, _ = epoch(loader)
    assert sorted(order.tolist()) == list(range(30))


def test_last_batch(data: ImageData) -> None:
    assert [len(b.images) for b in Loader(data, "train", 8)] == [8, 8, 8, 6]
    assert [len(b.images) for b in Loader(data, "train", 8, drop_last=True)] == [8, 8, 8]
    assert len(Loader(data, "train", 8, drop_last=True)) == 3
    assert [len(b.images) for b in Loader(data, "train", 64)] == [30]


def test_samplers(data: ImageData) -> None:
    train = data.part("train")
    over = OverSampler(train.targets[:, 0], seed=5)
    loader = Loader(data, "train", 8, sampler=over)
    order, _ = epoch(loader)
    assert torch.equal(order, OverSampler(train.targets[:, 0], seed=5).shard())
    batches = ClassBatchSampler(train.targets, data.space, classes=3, samples=2)
    assert {len(b.images) for b in Loader(data, "train", sampler=batches)} == {6}
    plain = torch.utils.data.SequentialSampler(range(10))
    assert [b.positions.tolist() for b in Loader(data, "train", 4, sampler=plain)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    uneven = torch.utils.data.BatchSampler(range(7), 3, drop_last=False)
    assert [b.positions.tolist() for b in Loader(data, "train", sampler=uneven)] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.fixture
def equal_images(data: ImageData) -> ImageData:
    """Every image the same, so that batches differ by their augmentation alone."""
    return replace(data, images=ImageArray(np.repeat(data.images.pixels[:1], 50, 0)))


def test_every_sample_has_its_own_draw(equal_images: ImageData) -> None:
    _, images = epoch(Loader(equal_images, "train", 8, augment=CropAndFlip(2)))
    assert len(images.flatten(1).unique(dim=0)) > 15  # of 5 x 5 shifts, mirrored or not
    halves = images[:8], images[8:16]
    assert not torch.equal(*halves)


def test_ranks_see_the_images_of_one_process(data: ImageData) -> None:
    one = list(Loader(data, "train", 10, sampler=UniformSampler(30, seed=3), augment=CropAndFlip(2), seed=5))
    for rank in range(2):
        sampler = UniformSampler(30, seed=3, num_replicas=2, rank=rank)
        shard = list(Loader(data, "train", 5, sampler=sampler, augment=CropAndFlip(2), seed=5))
        for whole, part in zip(one, shard, strict=True):
            assert torch.equal(whole.images[rank::2], part.images)
            assert torch.equal(whole.positions[rank::2], part.positions)


def test_shuffling_in_a_process_group_gives_every_rank_its_share(
    data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = torch.cat([batch.positions for batch in Loader(data, "train", 10, shuffle=True, seed=5)])
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    for rank in range(2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        share = torch.cat([batch.positions for batch in Loader(data, "train", 5, shuffle=True, seed=5)])
        assert torch.equal(share, order[rank::2])


@pytest.mark.parametrize("mode", ["resident", "streamed"])
@pytest.mark.parametrize("skip", [0, 1, 3, 4, 9])
def test_an_epoch_resumes(data: ImageData, mode: str, skip: int) -> None:
    make = partial(Loader, data, "train", 8, shuffle=True, augment=CropAndFlip(2), mode=mode)
    whole, other = make(), make()
    whole.set_epoch(2)
    other.set_epoch(2, skip)
    for expected, got in zip(list(whole)[skip:], list(other), strict=True):
        assert torch.equal(expected.images, got.images)
        assert torch.equal(expected.positions, got.positions)
    assert other.epoch == 3
    assert len(list(other)) == len(whole)  # the next epoch is whole


def test_positions_of_a_batch(data: ImageData) -> None:
    loader = Loader(data, "train", 8, shuffle=True)
    expected = [loader.positions(batch) for batch in range(len(loader))]
    assert all(map(torch.equal, expected, [batch.positions for batch in loader]))


def batch_sampler(rank: int) -> torch.utils.data.BatchSampler:
    inner = torch.utils.data.DistributedSampler(range(30), num_replicas=2, rank=rank)
    return torch.utils.data.BatchSampler(inner, 5, drop_last=False)


@pytest.mark.parametrize(
    "make",
    [lambda rank: UniformSampler(30, num_replicas=2, rank=rank), batch_sampler],
    ids=["ours", "within a batch sampler"],
)
def test_ranks_draw_different_augmentation(equal_images: ImageData, make: Callable[[int], Any]) -> None:
    first, second = (
        epoch(Loader(equal_images, "train", 5, sampler=make(rank), augment=CropAndFlip(2))) for rank in (0, 1)
    )
    assert not torch.equal(first[1], second[1])


@pytest.mark.parametrize("count", [2, 3, 100])
@pytest.mark.parametrize("mode", ["resident", "streamed"])
def test_batches_made_together_are_the_same(
    data: ImageData, monkeypatch: pytest.MonkeyPatch, mode: str, count: int
) -> None:
    options = dict(shuffle=True, augment=CropAndFlip(2), mode=mode)
    alone = list(Loader(data, "train", 4, **options))
    monkeypatch.setattr(
        Loader, "_groups", lambda self, batches: [batches[i : i + count] for i in range(0, len(batches), count)]
    )
    together = list(Loader(data, "train", 4, **options))
    assert len(together) == len(alone)
    for a, b in zip(alone, together, strict=True):
        assert all(map(torch.equal, a, b))


class Counted(UniformSampler):
    drawn = 0

    def shard(self) -> Tensor:
        self.drawn += 1
        return super().shard()


@pytest.mark.parametrize("mode", ["resident", "streamed"])
def test_loaders_share_their_pixels(stored: ImageData, mode: str) -> None:
    samples = len(stored.indices("train"))
    options = {"augment": CropAndFlip(2), "mode": mode}
    first = Loader(stored, "train", 8, sampler=UniformSampler(samples, seed=1), seed=1, **options)
    alone = Loader(stored, "train", 8, sampler=UniformSampler(samples, seed=2), seed=2, **options)
    list(first)  # it is an epoch ahead, which is no matter of the other's
    other = first.with_sampler(UniformSampler(samples, seed=2), 2)
    assert other._pixels is first._pixels
    for _ in range(2):
        both = list(zip(other, alone, strict=True))
        assert all(torch.equal(mine, its) for pair in both for mine, its in zip(*pair, strict=True))
    assert first.epoch == 1


def test_an_epoch_is_drawn_once(data: ImageData) -> None:
    sampler = Counted(30)
    loader = Loader(data, "train", 8, sampler=sampler)
    for _ in range(3):
        assert len(loader) == 4
        for _ in loader:
            assert len(loader) == 4  # as a progress bar asks, in the middle of an epoch
    assert sampler.drawn == 3
    assert sampler.epoch == loader.epoch == 3  # the next


def test_an_epoch_chosen_at_the_sampler(data: ImageData) -> None:
    expected = UniformSampler(30)
    expected.set_epoch(7)
    sampler = UniformSampler(30)
    loader = Loader(data, "train", 8, sampler=sampler)
    sampler.set_epoch(7)
    assert loader.epoch == 7
    assert torch.equal(epoch(loader)[0], expected.shard())
    assert loader.epoch == 8
    loader.set_epoch(7)
    assert torch.equal(epoch(loader)[0], expected.shard())
    sampler.set_epoch(7)  # the one just gone through, again
    assert torch.equal(epoch(loader)[0], expected.shard())
    late = UniformSampler(30)
    late.set_epoch(7)
    assert torch.equal(epoch(Loader(data, "train", 8, sampler=late))[0], expected.shard())


def test_a_batch_sampler_turns_with_the_epoch(data: ImageData) -> None:
    loader = Loader(data, "train", sampler=batch_sampler(0))
    assert not torch.equal(epoch(loader)[0], epoch(loader)[0])


@pytest.mark.parametrize(
    "sampler",
    [
        torch.utils.data.SubsetRandomSampler(torch.arange(10)),
        torch.utils.data.SubsetRandomSampler(range(10)),
        np.random.default_rng(0).permutation(10),
        torch.randperm(10),
        list(range(10)),
    ],
    ids=["tensors", "integers", "array", "tensor", "list"],
)
def test_any_sampler(data: ImageData, sampler: Any) -> None:
    order, _ = epoch(Loader(data, "train", 4, sampler=sampler))
    assert sorted(order.tolist()) == list(range(10))


def test_drop_last_of_a_batch_sampler(data: ImageData) -> None:
    batches = torch.utils.data.BatchSampler(range(10), 4, drop_last=False)
    assert [len(b.images) for b in Loader(data, "train", sampler=batches, drop_last=True)] == [4, 4]


@pytest.mark.parametrize(
    ("sampler", "message"),
    [(iter([1, 2]), "sampler to be one that can be iterated in every epoch, but got an iterator"), ([], "got none")],
)
def test_samplers_that_cannot_serve(data: ImageData, sampler: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(Loader(data, "train", 4, sampler=sampler))


def test_drop_last_of_everything(data: ImageData) -> None:
    with pytest.raises(ValueError, match="an epoch to be of at least one batch of 64, but got 30 samples"):
        list(Loader(data, "train", 64, drop_last=True))


def test_reading_ahead_stops_with_the_epoch(data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rectifier.data.pixels.available_cores", lambda: 2)  # one thread reads
    monkeypatch.setattr("rectifier.data.pixels.AHEAD", 9)
    read = []

    class Slow(ImageArray):
        def gather(self, index: Any, out: Any = None) -> Any:
            read.append(len(index))
            time.sleep(0.05)
            return super().gather(index, out)

    slow = replace(data, images=Slow(data.images.pixels))
    loader = Loader(slow, "train", 3, mode="streamed", normalise=None)
    next(iter(loader))
    assert len(read) <= 4  # of the ten that were asked for


def test_any_callable_augments(data: ImageData) -> None:
    seen = []

    def halve(images: Tensor) -> Tensor:
        seen.append((tuple(images.shape), images.dtype, float(images.min()) >= 0, float(images.max()) <= 1))
        return images[:, :, ::2, ::2] / 2

    norm = Normalisation((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    (batch,) = Loader(data, "train", 64, augment=halve, normalise=norm)
    assert seen == [((30, 3, 6, 5), torch.float32, True, True)]
    pixels = data.part("train").images.pixels.astype(np.float64) / 255
    expected = (pixels[:, ::2, ::2] / 2 - np.array(norm.mean)) / np.array(norm.std)
    torch.testing.assert_close(batch.images.double(), torch.from_numpy(expected).permute(0, 3, 1, 2))
    assert batch.images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (lambda images: (images * 255).to(torch.uint8), "torch.uint8"),
        (lambda images: images[:1], "torch.float32"),
        (lambda images: images.numpy(), "ndarray"),
    ],
)
def test_what_a_callable_must_return(data: ImageData, wrong: Callable[[Tensor], Any], got: str) -> None:
    with pytest.raises(ValueError, match=f"the result of augment to be a float tensor of 30 images .*, but got {got}"):
        list(Loader(data, "train", 64, augment=wrong))


def test_missing_labels_of_any_negative_value_come_as_minus_one(data: ImageData) -> None:
    targets = data.targets.clone()
    targets[0, 1] = -100
    hidden = ImageData("tiny", data.images, targets, data.space, data.split)
    assert next(iter(Loader(hidden, "train", 8))).targets[0, 1] == -1


def test_the_choice_is_automatic_and_said(
    data: ImageData, stored: ImageData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need = 30 * 6 * 5 * 3
    for free, mode in ((2 * need, "resident"), (2 * need - 2, "streamed")):
        monkeypatch.setattr("rectifier.data.loader.free_memory", lambda device, free=free: free)
        loader = Loader(stored, "train", 8)
        assert loader.mode == mode
        said = capsys.readouterr().err
        assert f"train: 30 images of 6 x 5, {'kept on' if mode == 'resident' else 'streamed from disk to'} cpu" in said
        assert Loader(data, "train", 8).mode == "resident"  # in memory already
        assert "streamed from memory to cpu" in Loader(data, "train", 8, mode="streamed").description
        capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(part="training"), "part to be one of .*Did you mean 'train'"),
        (dict(mode="ram"), "mode to be one of"),
        (dict(batch_size=0), "batch_size to be a positive integer, but got 0"),
        (dict(seed=-3), "seed to be an integer from 0, but got -3"),
        (dict(augment=3), "augment to be callable, or None, but got 3"),
        (dict(shuffle=True, sampler=[1]), "shuffle to be False if a sampler is given"),
        (dict(normalise=Normalisation((0.0,), (1.0,))), "normalise to be given for 3 channels"),
        (dict(normalise="imagenet"), "normalise to be 'train', a Normalisation or None, but got 'imagenet'"),
    ],
)
def test_wrong_options(data: ImageData, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Loader(data, **options)


def test_files_are_not_loaded_undecoded(data: ImageData) -> None:
    files = ImageFiles(Path("x"), data.ids)
    raw = ImageData("photos", files, data.targets, data.space, data.split)
    with pytest.raises(ValueError, match=r"images of 'photos' to be in memory or in a store.*build_store\(data"):
        Loader(raw)


def test_an_empty_part(data: ImageData) -> None:
    with pytest.raises(ValueError, match="The test split of 'tiny' is empty"):
        Loader(data.part("train"), "test")


def test_a_negative_epoch(data: ImageData) -> None:
    with pytest.raises(ValueError, match="epoch to be an integer from 0, but got -1"):
        Loader(data).set_epoch(-1)


def test_positions_outside_the_part(data: ImageData) -> None:
    with pytest.raises(ValueError, match="every position to be from 0 to 29, but got 30"):
        list(Loader(data, "train", 8, sampler=[0, 30]))


def test_an_error_while_reading_reaches_the_caller(stored: ImageData, tmp_path: Path) -> None:
    loader = Loader(stored, "train", 8, mode="streamed", normalise=None)
    for path in (tmp_path / "store/shards").glob("*.bin"):
        path.unlink()
    with pytest.raises(FileNotFoundError):
        list(loader)
