"""The loader: batches that are gathered, augmented and normalised as whole batches, from the device or from disk."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from rectifier import check, console
from rectifier.data.augment import CropAndFlip
from rectifier.data.dataset import PARTS, Decoded, ImageArray, ImageData
from rectifier.samplers import UniformSampler

MODES = ("auto", "resident", "streamed")
_STATISTICS_FROM = 4096  # images
_AT_ONCE = 32 << 20  # bytes of pixels that become batches in one go on a GPU


class Batch(NamedTuple):
    """Images ``(B, C, H, W)`` in channels-last memory, targets ``(B, A)``, and their positions ``(B,)`` in the part."""

    images: Tensor
    targets: Tensor
    positions: Tensor


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel, of pixels from 0 to 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class Loader:
    """Batches of one part of the data, on a device.

    When the part fits there it is kept on the device as uint8 and a batch is one gather; when it does not, batches are
    read from the memory map ahead of time, through pinned memory. Which of the two is said when the loader is made.

    Args:
        data: decoded images: in memory, or in a store (``build_store`` makes one of image files).
        part: ``"train"``, ``"validation"`` or ``"test"``.
        batch_size: images per batch. A batch sampler brings its own.
        shuffle: another order in every epoch, drawn by ``seed``.
        sampler: which samples come, of ``rectifier.samplers`` or any PyTorch (batch) sampler over the part's positions.
        augment: ``CropAndFlip``, or any callable from images to images: float ``(B, C, H, W)`` from 0 to 1, before they
            are normalised (torchvision's v2 transforms, kornia).
        device: where the batches shall be.
        mode: ``"resident"`` and ``"streamed"`` override the automatic choice.
        normalise: by default mean and deviation of the training part; ``None`` leaves pixels from 0 to 1.
        drop_last: leave out a last batch that is not full.
        dtype: of the images.
        seed: of order and augmentation.
        memory_share: of the device's free memory that a resident part may take.
        ahead: batches that a streamed part is read ahead.

    >>> from rectifier.data.shapes import shapes
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
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
        memory_share: float = 0.5,
        ahead: int = 3,
    ) -> None:
        self._check(data, part, batch_size, shuffle, sampler, augment, mode, memory_share, ahead, normalise)
        positions = data.indices(part)
        self.part, self.device, self.dtype, self.seed = part, torch.device(device), dtype, seed
        self.batch_size, self.drop_last, self.augment = batch_size, drop_last, augment
        self.sampler = UniformSampler(len(positions), seed=seed) if shuffle and sampler is None else sampler
        self.epoch = 0
        self._planned: tuple[int, list[Tensor]] | None = None
        self.normalisation = statistics(data) if normalise == "train" else cast(Normalisation | None, normalise)
        images = cast(Decoded, data.images)
        self._scale, self._shift = self._line(images.shape)
        narrow = torch.int8 if max(data.space.sizes) < 2**7 else torch.int32  # they stay in memory, batches do not
        self._targets = data.targets.clamp(min=-1).to(narrow)[positions].to(self.device)
        self._image_bytes = int(np.prod(images.shape))
        need = len(positions) * self._image_bytes
        free = free_memory(self.device)
        self.mode = mode if mode != "auto" else "resident" if need <= memory_share * free else "streamed"
        self._source: _Source = (
            _Resident(images, positions, self.device)
            if self.mode == "resident"
            else _Streamed(images, positions, self.device, ahead)
        )
        self.description = _describe(part, len(positions), images.shape, self.mode, self.device, need, free)
        console.say(self.description)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch: with it the order and the augmentation. Going through the loader moves on by one."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._batches())

    def __iter__(self) -> Iterator[Batch]:
        batches = self._batches()
        draws = self._draws(sum(map(len, batches)))
        self.epoch += 1
        groups = self._groups(batches)
        positions = [torch.cat(group) for group in groups]
        start = 0
        for group, index, pixels in zip(groups, positions, self._source.read(positions), strict=True):
            index = index.to(self.device)
            images = self._finish(pixels, None if draws is None else draws[start : start + len(index)])
            start += len(index)
            sizes = [len(batch) for batch in group]
            yield from map(Batch, images.split(sizes), self._targets[index].long().split(sizes), index.split(sizes))

    def _batches(self) -> list[Tensor]:
        """Return the positions of every batch of this epoch; drawn once, however often it is asked for."""
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = self.epoch, self._plan()
        return self._planned[1]

    def _plan(self) -> list[Tensor]:
        turn = getattr(self.sampler, "set_epoch", None)
        if callable(turn):
            turn(self.epoch)
        order = _order(self.sampler, len(self._targets))
        _check_positions(order, len(self._targets))
        if isinstance(order, list):
            return order
        size = self.batch_size if order.dim() == 1 else order.shape[1]
        batches = list(order.flatten().split(size))
        return batches[:-1] if self.drop_last and batches and len(batches[-1]) < size else batches

    def _groups(self, batches: list[Tensor]) -> list[list[Tensor]]:
        """Put batches together that are made in one go: a GPU would spend its time on starting small operations."""
        alone = self.device.type == "cpu" or not (self.augment is None or isinstance(self.augment, CropAndFlip))
        size = max(map(len, batches), default=1)
        count = 1 if alone else max(1, _AT_ONCE // (size * self._image_bytes))
        return [batches[i : i + count] for i in range(0, len(batches), count)]

    def _draws(self, count: int) -> Tensor | None:
        if not isinstance(self.augment, CropAndFlip):
            return None
        rank = int(getattr(self.sampler, "rank", 0) or 0)
        generator = torch.Generator().manual_seed(_mixed(self.seed, self.epoch, rank))
        return self.augment.draw(count, generator).to(self.device)

    def _finish(self, pixels: Tensor, draws: Tensor | None) -> Tensor:
        """Augment and normalise ``(B, H, W, C)`` uint8: float ``(B, C, H, W)`` in channels-last memory."""
        if isinstance(self.augment, CropAndFlip):
            pixels = self.augment(pixels, cast(Tensor, draws))
        elif self.augment is not None:
            images = self.augment(pixels.permute(0, 3, 1, 2) / 255)
            return self._normalised(images).to(self.dtype, memory_format=torch.channels_last)
        flat = pixels.view(len(pixels), pixels.shape[1], -1)
        # Whole rows of pixels at a time: a product over three channels alone would not be vectorised.
        images = torch.addcmul(self._shift, flat, self._scale).view(pixels.shape)
        return images.permute(0, 3, 1, 2).to(self.dtype)

    def _line(self, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
        """Return factor and summand of a row of pixels ``(W * C,)`` that normalise bytes."""
        _, width, channels = shape
        known = self.normalisation or Normalisation((0.0,) * channels, (1.0,) * channels)
        mean, std = torch.tensor(known.mean), torch.tensor(known.std)
        if len(mean) != channels or len(std) != channels:
            check.fail("normalise", f"given for {channels} channels", repr(known))
        scale, shift = 1 / (255 * std), -mean / std
        return scale.repeat(width).to(self.device), shift.repeat(width).to(self.device)

    def _normalised(self, images: Tensor) -> Tensor:
        if self.normalisation is None:
            return images
        mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (self.normalisation.mean, self.normalisation.std))
        return (images - mean) / std

    @staticmethod
    def _check(
        data: ImageData,
        part: str,
        batch_size: int,
        shuffle: bool,
        sampler: object,
        augment: object,
        mode: str,
        memory_share: float,
        ahead: int,
        normalise: object,
    ) -> None:
        check.raise_all(
            [
                check.choice("part", part, PARTS),
                check.choice("mode", mode, MODES),
                check.number("batch_size", batch_size, "a positive integer", check.is_count(batch_size)),
                check.number("ahead", ahead, "a positive integer", check.is_count(ahead)),
                check.share("memory_share", memory_share),
                check.number("augment", augment, "callable, or None", augment is None or callable(augment)),
                check.number("shuffle", shuffle, "False beside a sampler", not (shuffle and sampler is not None)),
            ]
        )
        if not isinstance(data.images, Decoded):
            got = "files that are not decoded; build_store(data, FOLDER, size=...) decodes them once"
            check.fail(f"the images of {data.name!r}", "in memory or in a store", got)
        if not (normalise is None or normalise == "train" or isinstance(normalise, Normalisation)):
            check.fail("normalise", "'train', a Normalisation or None", repr(normalise))
        if not len(data.indices(part)):
            check.fail(f"part {part!r} of {data.name!r}", "a part with samples", "an empty one")


def statistics(data: ImageData) -> Normalisation:
    """Return mean and deviation of the training part's channels, from up to 4,096 images spread over it."""
    images = cast(Decoded, data.images)
    positions = data.indices("train").numpy()
    positions = positions if len(positions) else np.arange(len(data))
    spread = positions[np.linspace(0, len(positions) - 1, min(len(positions), _STATISTICS_FROM)).astype(np.int64)]
    total, squares, count = 0.0, 0.0, 0
    for part in np.array_split(spread, -(-len(spread) // 256)):
        values = images.gather(part).reshape(-1, images.shape[2]) / 255.0
        total, squares, count = total + values.sum(0), squares + (values**2).sum(0), count + len(values)
    mean = np.asarray(total) / count
    std = np.sqrt(np.maximum(np.asarray(squares) / count - mean**2, 1e-6))
    return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else 1 << 32


class _Source(Protocol):
    """Where a loader's pixels come from."""

    def read(self, positions: list[Tensor]) -> Iterator[Tensor]:
        """Yield the pixels ``(n, H, W, C)`` at each of these lists of positions, on the device."""
        ...


class _Resident:
    """The whole part on the device."""

    def __init__(self, images: Decoded, positions: Tensor, device: torch.device) -> None:
        self._rows: Tensor | None = None
        if isinstance(images, ImageArray) and device.type == "cpu":
            # They are in memory already: no second copy, but a detour over their rows.
            self._pixels, self._rows = torch.from_numpy(images.pixels), positions
            return
        self._pixels = torch.empty((len(positions), *images.shape), dtype=torch.uint8, device=device)
        for start in range(0, len(positions), 4096):
            chunk = images.gather(positions[start : start + 4096].numpy())
            self._pixels[start : start + len(chunk)] = torch.from_numpy(chunk).to(device)

    def read(self, positions: list[Tensor]) -> Iterator[Tensor]:
        for index in positions:
            rows = index if self._rows is None else self._rows[index]
            yield self._pixels.index_select(0, rows.to(self._pixels.device))


class _Streamed:
    """Pixels from the memory map, read ahead by threads; to a GPU through pinned memory and a stream of their own."""

    def __init__(self, images: Decoded, positions: Tensor, device: torch.device, ahead: int) -> None:
        self._images, self._positions, self._device, self._ahead = images, positions.numpy(), device, ahead
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def read(self, positions: list[Tensor]) -> Iterator[Tensor]:
        threads = min(self._ahead, max(1, (os.cpu_count() or 1) // 2))
        with ThreadPoolExecutor(threads, "rectifier-loader") as readers:
            waiting: deque[Future[tuple[Tensor, Any]]] = deque()
            try:
                for index in positions:
                    waiting.append(readers.submit(self._fetch, index))
                    if len(waiting) > self._ahead:
                        yield self._take(waiting.popleft())
                while waiting:
                    yield self._take(waiting.popleft())
            finally:
                for future in waiting:
                    future.cancel()

    def _fetch(self, index: Tensor) -> tuple[Tensor, Any]:
        rows = self._positions[index.numpy()]
        if self._stream is None:
            return torch.from_numpy(self._images.gather(rows)).to(self._device), None
        pinned = torch.empty((len(rows), *self._images.shape), dtype=torch.uint8, pin_memory=True)
        self._images.gather(rows, pinned.numpy())
        with torch.cuda.stream(self._stream):
            moved = pinned.to(self._device, non_blocking=True)
            done = self._stream.record_event()
        return moved, (done, pinned)

    def _take(self, future: Future[tuple[Tensor, Any]]) -> Tensor:
        moved, copy = future.result()
        if copy is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copy[0])
            moved.record_stream(current)  # its memory must not be reused before this stream is done with it
        return moved


def _order(sampler: Iterable[Any] | None, samples: int) -> Tensor | list[Tensor]:
    """Bring any sampler to positions ``(n,)``, ``(batches, size)`` or, of unequal batches, a list."""
    if sampler is None:
        return torch.arange(samples)
    shard = getattr(sampler, "shard", None)
    if callable(shard):
        return cast(Tensor, shard())
    drawn = list(sampler)
    if drawn and not isinstance(drawn[0], int):
        return [torch.as_tensor(batch) for batch in drawn]
    return torch.tensor(drawn, dtype=torch.int64)


def _check_positions(order: Tensor | list[Tensor], samples: int) -> None:
    """An index out of range on a GPU would stop the whole process, far from its cause."""
    every = torch.cat(order) if isinstance(order, list) and order else order
    if isinstance(every, Tensor) and every.numel():
        low, high = int(every.min()), int(every.max())
        if low < 0 or high >= samples:
            check.fail("every position", f"from 0 to {samples - 1}, the part's", low if low < 0 else high)


def _mixed(*numbers: int) -> int:
    """Mix seed, epoch and rank to one seed."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1


def _describe(
    part: str, samples: int, shape: tuple[int, int, int], mode: str, device: torch.device, need: int, free: int
) -> str:
    where = f"kept on {device}" if mode == "resident" else f"streamed from disk to {device}"
    size = " x ".join(map(str, shape[:2]))
    return f"{part}: {samples:,} images of {size}, {where} ({need / 2**30:.2f} GiB, {free / 2**30:.1f} GiB free there)"
