"""Read the pixels of a loader: from the device itself, or from the memory map, read ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rectifier.data.dataset import Decoded, ImageArray
from rectifier.data.store import available_cores

AT_ONCE = 32 << 20  # bytes of pixels that a GPU receives, or turns into batches, at once
AHEAD = 3  # batches to read ahead when streaming; on a GPU, groups of batches of AT_ONCE bytes


class Resident:
    """The whole part on the device."""

    def __init__(self, images: Decoded, positions: Tensor, device: torch.device) -> None:
        self._rows: Tensor | None = None
        if isinstance(images, ImageArray) and device.type == "cpu":
            # The images are already in memory: index their rows instead of copying them.
            self._pixels, self._rows = torch.from_numpy(images.pixels), positions
            return
        self._pixels = torch.empty((len(positions), *images.shape), dtype=torch.uint8, device=device)
        step = max(1, AT_ONCE // int(np.prod(images.shape)))
        for start in range(0, len(positions), step):
            chunk = images.gather(positions[start : start + step].numpy())
            self._pixels[start : start + len(chunk)] = torch.from_numpy(chunk).to(device)

    def read(self, positions: Iterable[Tensor], on_device: Iterable[Tensor]) -> Iterator[Tensor]:
        """Yield the pixels ``(n, H, W, C)`` at each list of positions, given on the CPU and on the device."""
        for index in on_device:
            yield self._pixels.index_select(0, index if self._rows is None else self._rows[index])


class Streamed:
    """Pixels from the memory map, read ahead by threads; a GPU gets them through pinned memory and its own stream."""

    def __init__(self, images: Decoded, positions: Tensor, device: torch.device) -> None:
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
            moved.record_stream(current)  # or its memory could be reused before this stream has read it
        return moved


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
