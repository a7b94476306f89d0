"""The loader: gathers, augments and normalises whole batches, from the device or from disk; or gathers features."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from rectifier._base import check, console
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import PARTS, Decoded, ImageArray, ImageData
from rectifier.data.features import CachedFeatures
from rectifier.data.normalise import Normalisation, statistics
from rectifier.data.order import order_of
from rectifier.data.pixels import AT_ONCE, Resident, Streamed, free_memory, image_bytes
from rectifier.samplers import UniformSampler
from rectifier.samplers.base import in_process_group


class Batch(NamedTuple):
    """Images ``(B, C, H, W)`` in channels-last memory, targets ``(B, A)``, and their positions ``(B,)`` in the part.

    From cached features, ``images`` are float32 features ``(B, *shape)``.
    """

    images: Tensor
    targets: Tensor
    positions: Tensor


class Loader:
    """Batches of one part of the data, on a device.

    A part that fits on the device stays there as uint8, and a batch is one gather. Otherwise batches are read ahead
    from the memory map, through pinned memory. The loader says which of the two it chose.

    Each pass over the loader is the next epoch. ``set_epoch``, of the loader or of its sampler, chooses another. The
    ranks of a sampler share the order and augmentation of one process.

    Cached features come as they are. In the training part, where images have several views, each gets one of its views
    at random in every epoch.

    Args:
        data: decoded images, in memory or in a store (``build_store`` decodes image files into one), or
            cached features.
        part: ``"train"``, ``"validation"`` or ``"test"``.
        batch_size: images per batch. A batch sampler has its own.
        shuffle: draw another order in every epoch from ``seed``. In a process group every rank gets its share.
        sampler: chooses the samples: one of ``rectifier.samplers``, or any PyTorch (batch) sampler of positions.
        augment: ``CropAndFlip``, or any callable from images to images (torchvision's v2 transforms, kornia). It gets
            float ``(B, C, H, W)`` from 0 to 1, before normalisation. ``seed`` controls only ``CropAndFlip``.
        device: device of the batches.
        mode: ``"resident"`` and ``"streamed"`` override the automatic choice.
        normalise: mean and deviation; by default those of the training part. ``None`` keeps pixels from 0 to 1.
            Features are not normalised.
        drop_last: drop a last batch that is not full.
        seed: seed of order, augmentation and views.

    >>> from rectifier.data.readers.shapes import shapes
    >>> loader = Loader(shapes(samples=40, size=16, ratio=4), "train", 8, shuffle=True, augment=CropAndFlip(2))
    >>> len(loader), [tuple(batch.images.shape) for batch in loader][0]
    (5, (8, 3, 16, 16))
    """

    def __init__(
        self,
        data: ImageData,
        part: str = "train",
        batch_size: int = 256,
        *,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        augment: CropAndFlip | Callable[[Tensor], Tensor] | None = None,
        device: str | torch.device = "cpu",
        mode: str = "auto",
        normalise: Normalisation | str | None = "train",
        drop_last: bool = False,
        seed: int = 0,
    ) -> None:
        complaints = [
            check.choice("part", part, PARTS),
            check.choice("mode", mode, ("auto", "resident", "streamed")),
            check.count("batch_size", batch_size),
            check.that("seed", seed, "an integer from 0", check.is_natural(seed)),
            check.that("augment", augment, "callable, or None", augment is None or callable(augment)),
            check.that("shuffle", shuffle, "False if a sampler is given", not (shuffle and sampler is not None)),
        ]
        check.raise_all(complaints)
        images, positions = data.images, data.indices(part)
        if not isinstance(images, (CachedFeatures, Decoded)):
            got = "files that are not decoded; build_store(data, FOLDER, size=...) decodes them once"
            check.fail(f"the images of {data.name!r}", "in memory or in a store", got)
        if not len(positions):
            raise ValueError(f"The {part} split of {data.name!r} is empty.")
        if not (normalise is None or normalise == "train" or isinstance(normalise, Normalisation)):
            check.fail("normalise", "'train', a Normalisation or None", repr(normalise))
        self.part, self.device, self.seed = part, torch.device(device), seed
        self.batch_size, self.drop_last, self.augment = batch_size, drop_last, augment
        if shuffle:
            sampler = UniformSampler(len(positions), seed=seed, distributed=in_process_group())
        self._use(sampler)
        self._views, rows = 1, positions  # the views of a sample lie one after the other
        if isinstance(images, CachedFeatures):
            self.normalisation = None
            images, self._views = _features_of(images.select(positions.numpy()), part, augment, normalise)
            rows = torch.arange(len(images))
        else:
            self.normalisation = statistics(data) if isinstance(normalise, str) else normalise
            self._scale, self._shift = self._line(images.shape)
        self._draws_views = self._views > 1
        narrow = torch.int8 if max(data.space.sizes) < 2**7 else torch.int32  # these stay in memory
        self._targets = data.targets.clamp(min=-1).to(narrow)[positions].to(self.device)
        self._image_bytes, self._of_features = image_bytes(images), isinstance(images, CachedFeatures)
        self.mode, self.description = _chosen_mode(mode, images, part, len(positions), self._views, self.device)
        self._pixels = (Resident if self.mode == "resident" else Streamed)(images, rows, self.device)
        console.say(self.description)

    def _use(self, sampler: Iterable[Any] | None) -> None:
        """Take a sampler, at the epoch that it shows."""
        if isinstance(sampler, Iterator):
            check.fail("sampler", "one that can be iterated in every epoch", f"an iterator ({type(sampler).__name__})")
        self.sampler, self._timed = sampler, cast(Any, sampler)
        while self._timed is not None and not hasattr(self._timed, "set_epoch"):
            self._timed = getattr(self._timed, "sampler", None)  # inside a batch sampler; None if no sampler has epochs
        self._shown = int(getattr(self._timed, "epoch", 0))
        self._next, self._skip = self._shown, 0
        self._planned: tuple[tuple[int, int], list[Tensor]] | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next pass, from 0."""
        turned = int(getattr(self._timed, "epoch", self._shown))
        if turned != self._shown:  # the sampler's own set_epoch was called
            self._next = self._shown = turned
        return self._next

    def set_epoch(self, epoch: int, skip: int = 0) -> None:
        """Choose the next epoch, and with it order and augmentation. Skip its first ``skip`` batches."""
        given = {"epoch": epoch, "skip": skip}.items()
        check.raise_all([check.that(name, n, "an integer from 0", check.is_natural(n)) for name, n in given])
        self._turn(int(epoch), int(skip))

    def with_sampler(self, sampler: Iterable[Any], seed: int) -> Loader:
        """Return a loader that shares these pixels, with its own order and augmentation."""
        other = copy.copy(self)
        other.seed = seed
        other._use(sampler)
        return other

    def in_order(self, positions: Iterable[int]) -> Loader:
        """Return a loader that shares these pixels and yields these positions in order, without augmentation; of
        features, view 0.
        """
        other = self.with_sampler(positions, self.seed)
        other.augment, other.drop_last, other._draws_views = None, False, False
        return other

    def positions(self, batch: int) -> Tensor:
        """Return the positions in the part of one batch of the next epoch."""
        return self._batches()[batch]

    def __len__(self) -> int:
        return len(self._batches() if self._planned is None else self._planned[1])

    def __iter__(self) -> Iterator[Batch]:
        epoch = self.epoch
        batches = self._batches()
        draws, views = self._draws(epoch, samples := sum(map(len, batches))), self._drawn_views(epoch, samples)
        start = sum(map(len, batches[: self._skip]))
        batches = batches[self._skip :]
        self._turn(epoch + 1)
        if not batches:
            return
        groups = self._groups(batches)
        sizes = [sum(map(len, group)) for group in groups]
        order = torch.cat(batches)
        on_device = order.to(self.device)  # once an epoch: a copy in every step would stall the device
        places = self._places(order, views, start)
        there = on_device if places is order else places.to(self.device)
        pixels_of = self._pixels.read(places.split(sizes), there.split(sizes))
        for group, index, pixels in zip(groups, on_device.split(sizes), pixels_of, strict=True):
            images = self._finish(pixels, None if draws is None else draws[start : start + len(index)])
            start += len(index)
            each = [len(batch) for batch in group]
            yield from map(Batch, images.split(each), self._targets[index].long().split(each), index.split(each))

    def _batches(self) -> list[Tensor]:
        """Return the positions of every batch of the next epoch. They are drawn only once."""
        epoch = self.epoch
        asked = epoch, int(getattr(self._timed, "rounds", 0))  # a sampler that has mined again needs a new plan
        if self._planned is None or self._planned[0] != asked:
            self._turn(epoch, self._skip)
            self._planned = asked, self._plan()
        return self._planned[1]

    def _turn(self, epoch: int, skip: int = 0) -> None:
        """Turn loader and sampler to an epoch. If the sampler later shows another, its own set_epoch was called."""
        self._next, self._shown, self._skip = epoch, epoch, skip
        if self._timed is not None:
            self._timed.set_epoch(epoch)

    def _plan(self) -> list[Tensor]:
        order = order_of(self.sampler, len(self._targets))
        batches = list(order.split(self.batch_size)) if isinstance(order, Tensor) else order
        full = self.batch_size if isinstance(order, Tensor) else len(batches[0])
        if self.drop_last and len(last := batches[-1]) < full:
            del batches[-1]
            if not batches:
                check.fail(
                    "an epoch", f"of at least one batch of {full}", f"{len(last)} samples, which drop_last drops"
                )
        return batches

    def _groups(self, batches: list[Tensor]) -> list[list[Tensor]]:
        """Group batches that are made at once: a GPU would spend its time on starting small operations."""
        alone = self.device.type == "cpu" or not (self.augment is None or isinstance(self.augment, CropAndFlip))
        count = 1 if alone else max(1, AT_ONCE // (max(map(len, batches)) * self._image_bytes))
        return [batches[i : i + count] for i in range(0, len(batches), count)]

    def _draws(self, epoch: int, count: int) -> Tensor | None:
        if not isinstance(self.augment, CropAndFlip):
            return None
        return self._drawn(self.augment.draw, epoch, count).to(self.device)

    def _drawn_views(self, epoch: int, count: int) -> Tensor | None:
        if not self._draws_views:
            return None
        return self._drawn(lambda n, generator: torch.randint(self._views, (n,), generator=generator), epoch, count)

    def _places(self, order: Tensor, views: Tensor | None, start: int) -> Tensor:
        """Return where the images of these positions lie: with several views of each, one of them."""
        if self._views == 1:
            return order
        return order * self._views + (0 if views is None else views[start : start + len(order)])

    def _drawn(self, draw: Callable[[int, torch.Generator], Tensor], epoch: int, count: int) -> Tensor:
        """Draw for all ranks and distribute like the samples, so several ranks see the images of one process."""
        ranks, rank = int(getattr(self._timed, "num_replicas", 1)), int(getattr(self._timed, "rank", 0))
        seed = int(np.random.SeedSequence((self.seed, epoch)).generate_state(1, np.uint64)[0]) >> 1
        return draw(count * ranks, torch.Generator().manual_seed(seed))[rank::ranks]

    def _finish(self, pixels: Tensor, draws: Tensor | None) -> Tensor:
        """Augment and normalise ``(B, H, W, C)`` uint8: float ``(B, C, H, W)`` in channels-last memory."""
        if self._of_features:
            return pixels.float()
        if isinstance(self.augment, CropAndFlip):
            pixels = self.augment(pixels, cast(Tensor, draws))
        elif self.augment is not None:
            images = _checked(self.augment(pixels.permute(0, 3, 1, 2) / 255), len(pixels))
            if known := self.normalisation:
                mean, std = (images.new_tensor(values).view(-1, 1, 1) for values in (known.mean, known.std))
                images = (images - mean) / std
            return images.to(torch.float32, memory_format=torch.channels_last)
        # Whole rows of pixels at a time: a product over three channels would not be vectorised.
        flat = torch.addcmul(self._shift, pixels.view(len(pixels), pixels.shape[1], -1), self._scale)
        return flat.view(pixels.shape).permute(0, 3, 1, 2)

    def _line(self, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
        """Return the factor and the summand ``(W * C,)`` that normalise a row of bytes."""
        _, width, channels = shape
        known = self.normalisation or Normalisation((0.0,) * channels, (1.0,) * channels)
        if len(known.mean) != channels:
            check.fail("normalise", f"given for {channels} channels", repr(known))
        mean, std = torch.tensor(known.mean), torch.tensor(known.std)
        return (1 / (255 * std)).repeat(width).to(self.device), (-mean / std).repeat(width).to(self.device)


def _checked(images: object, count: int) -> Tensor:
    if not isinstance(images, Tensor) or images.dim() != 4 or len(images) != count or not images.is_floating_point():
        got = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        check.fail("the result of augment", f"a float tensor of {count} images (B, C, H, W)", got)
    return images


def _features_of(images: CachedFeatures, part: str, augment: object, normalise: object) -> tuple[CachedFeatures, int]:
    """Return the features with each view as an image of its own, and the number of views."""
    views = images.views if part == "train" else 1
    wanted = "None, because these images are cached features"
    plain = not isinstance(normalise, Normalisation)  # "train" asks for what suits the data
    complaints = [
        check.that("augment", augment, f"{wanted}; cache several views of each", augment is None),
        check.that("normalise", normalise, wanted, plain),
    ]
    check.raise_all(complaints)
    if missing := int((images.rows[:, :views] < 0).any(1).sum()):
        got = f"{missing:,} that were not in the training part when they were cached"
        check.fail("training images", f"cached with {views} views", got)
    return images.apart(views), views


def _chosen_mode(
    mode: str, images: Decoded | CachedFeatures, part: str, samples: int, views: int, device: torch.device
) -> tuple[str, str]:
    """Choose where the pixels stay, and describe it."""
    need, free = samples * views * image_bytes(images), free_memory(device)
    source = "memory" if isinstance(images, ImageArray) else "disk"
    if mode == "auto":
        here_already = source == "memory" and device.type == "cpu"
        mode = "resident" if here_already or need <= free / 2 else "streamed"
    where = f"kept on {device}" if mode == "resident" else f"streamed from {source} to {device}"
    amount = f"{need / 2**30:.2f} GiB, {free / 2**30:.1f} GiB free there"
    if isinstance(images, CachedFeatures):
        what = f"images, {' x '.join(map(str, images.shape))} features{f' of {views} views' if views > 1 else ''}"
    else:
        what = f"images of {images.shape[0]} x {images.shape[1]}"
    return mode, f"{part}: {samples:,} {what}, {where} ({amount})"
