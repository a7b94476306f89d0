"""Read the pixels or features of a loader: from the device itself, or from the memory map, read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rectifier.data.dataset import Decoded, ImageArray, Ints
from rectifier.data.features import CachedFeatures
from rectifier.data.store import available_cores

AT_ONCE = 32 << 20  # bytes of pixels that a GPU receives, or turns into batches, at once
AHEAD = 3  # batches to read ahead when streaming; on a GPU, groups of batches of AT_ONCE bytes


class Resident:
    """The whole part on the device."""

    def __init__(self, images: Decoded | CachedFeatures, positions: Tensor, device: torch.device) -> None:
        self._rows: Tensor | None = None
        if device.type == "cpu" and (held := _in_memory(images, positions)) is not None:
            self._pixels, self._rows = held  # index the rows instead of copying them
            return
        self._pixels = torch.empty((len(positions), *images.shape), dtype=_kind(images), device=device)
        step = max(1, AT_ONCE // image_bytes(images))
        for start in range(0, len(positions), step):
            chunk = _gather(images, positions[start : start + step].numpy())
            self._pixels[start : start + len(chunk)] = chunk.to(device)

    def read(self, positions: Iterable[Tensor], on_device: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the pixels ``(n, H, W, C)`` at each list of positions, given on the CPU and on the device."""
        for index in on_device:
            yield self._pixels.index_select(0, index if self._rows is None else self._rows[index])


class Streamed:
    """Pixels from the memory map, read ahead by threads; a GPU gets them through pinned memory and its own stream."""

    def __init__(self, images: Decoded | CachedFeatures, positions: Tensor, device: torch.device) -> None:
        self._images, self._rows, self._device = images, positions.numpy(), device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def read(self, positions: Iterable[Tensor], on_device: Iterable[Tensor]) -> Iterator[Tensor]:
        threads = min(AHEAD, max(1, available_cores() // 2))
        with ThreadPoolExecutor(threads, "rectifier-loader") as readers:
            waiting: deque[Future[tuple[Tensor, Any]]] = deque()
            try:
                for index in positions:
                    waiting.append(readers.submit(self._fetch, index))
                    if len(waiting) > AHEAD:
                        yield self._take(waiting.popleft())
                while waiting:
                    yield self._take(waiting.popleft())
            finally:
                for future in waiting:
                    future.cancel()

    def _fetch(self, index: Tensor) -> tuple[Tensor, Any]:
        rows = self._rows[index.numpy()]
        if self._stream is None:
            return _gather(self._images, rows).to(self._device), None
        pinned = _gather(self._images, rows, pin_memory=True)
        with torch.cuda.stream(self._stream):
            moved = pinned.to(self._device, non_blocking=True)
            done = self._stream.record_event()
        return moved, (done, pinned)

    def _take(self, future: Future[tuple[Tensor, Any]]) -> Tensor:
        moved, copy = future.result()
        if copy is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copy[0])
            moved.record_stream(current)  # or its memory could be reused before this stream has read it
        return moved


def image_bytes(images: Decoded | CachedFeatures) -> int:
    """Return the bytes of one image, or of one view of its features."""
    return int(np.prod(images.shape)) * _kind(images).itemsize


def _kind(images: Decoded | CachedFeatures) -> torch.dtype:
    if not isinstance(images, CachedFeatures):
        return torch.uint8
    return torch.float16 if images.dtype == np.float16 else torch.float32


def _gather(images: Decoded | CachedFeatures, rows: Ints, pin_memory: bool = False) -> Tensor:
    out = torch.empty((len(rows), *images.shape), dtype=_kind(images), pin_memory=pin_memory)
    images.gather(rows, out=out.numpy())
    return out


def _in_memory(images: Decoded | CachedFeatures, positions: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return images that are in memory already, with their rows at these positions; None if they are on disk."""
    if isinstance(images, ImageArray):
        return torch.from_numpy(images.pixels), positions
    whole = images.blocks.in_memory() if isinstance(images, CachedFeatures) else None
    if whole is None:
        return None
    return torch.from_numpy(whole), torch.from_numpy(cast(CachedFeatures, images).rows[positions.numpy(), 0])


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device, for this process."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [_number_in("/proc/meminfo", "MemAvailable:", 1 << 10)]
    limit, used = (_number_in(f"/sys/fs/cgroup/memory.{name}", "", 1) for name in ("max", "current"))
    if limit is not None and used is not None:
        found.append(limit - used)
    return max(0, min((n for n in found if n is not None), default=4 << 30))


def _number_in(path: str, name: str, unit: int) -> int | None:
    """Return the number after ``name`` in a system file, or None without one (no limit, another system)."""
    try:
        line = next(line for line in Path(path).read_text().splitlines() if line.startswith(name))
        return int(line.removeprefix(name).split()[0]) * unit
    except (OSError, StopIteration, ValueError, IndexError):
        return None
